"""agentbus: a message bus for coding agents on one machine; the meaning of what stands in the journal."""

__version__ = "0.1.0"
