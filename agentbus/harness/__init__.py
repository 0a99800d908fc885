"""The clients of coding agents: what agentbus puts into their settings, and what their hooks say. Imports nothing:

a hook that starts fast comes by here.
"""
