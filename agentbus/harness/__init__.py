"""The clients of coding agents: what agentbus puts into their settings, and what their hooks say.

Imports nothing: a hook, which has to start fast, comes by here.
"""
