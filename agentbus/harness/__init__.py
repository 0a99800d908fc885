"""The harnesses that agentbus can be set up in, one file each, and what they share."""
