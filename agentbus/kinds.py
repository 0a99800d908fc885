"""The two kinds of channel. Pure; apart from events.py because a client is told of them before any event is needed."""

from __future__ import annotations

from typing import Literal

ChannelKind = Literal["ordinary", "memory"]

ORDINARY: ChannelKind = "ordinary"
MEMORY: ChannelKind = "memory"
