"""P3 and P4: what a call takes over MCP, to post and to have it received."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tools.figures.child import CONTENT
from tools.figures.measuring import Bar, Figure, Sample, in_turns
from tools.figures.servers import MCP, NO_OP_LEAN, NO_OP_SDK, RELAY_LEAN, Server
from tools.figures.yardsticks import SyncedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tools.figures.places import Place

LINE_BYTES = 424
"""What a post of CONTENT takes in the journal."""

_CALLS = 20
_TURNS = 5
_DELIVERIES = 10
_WAIT_S = 30
_ASLEEP_S = 0.005
"""Until a server that was asked to wait does wait."""


class _Floor:
    """What nobody can be faster than: no-op calls and one write+fdatasync, one after the other.

    In turns and not apart: behind a flush, in which the processor sleeps, the same code is slower than in a tight loop.
    So it is behind a pause: where the figure needs one, it is made here too.
    """

    def __init__(self, place: Place, no_ops: int, pause_s: float = 0.0) -> None:
        self._lean = Server(NO_OP_LEAN, place, place.new("lean"))
        self._lean.initialize()
        self._file = SyncedFile(place.new("flush") / "file", LINE_BYTES)
        self._no_ops = no_ops
        self._pause_s = pause_s

    def timed(self, times: int) -> list[float]:
        found = []
        for _ in range(times):
            time.sleep(self._pause_s)
            began = time.perf_counter()
            self._lean.timed("noop", self._no_ops)
            self._file.write()
            found.append(time.perf_counter() - began)
        return found

    def close(self) -> None:
        self._lean.kill()
        self._file.close()


class Post:
    """P3."""

    figures = (
        Figure("P3", "MCP post, p50", "lean no-op + write+fdatasync, p50", "s", Bar(1.6)),
        Figure("P3", "MCP post, p50", "SDK server's no-op, p50", "s", Bar(0.8)),
    )
    rounds = 11

    def __init__(self, place: Place) -> None:
        self._server = Server(MCP, place, place.new("post"))
        self._sdk = Server(NO_OP_SDK, place, place.new("sdk"))
        for server in (self._server, self._sdk):
            server.initialize()
        self._as = self._server.call("register", name="alice")["as"]
        self._floor = _Floor(place, 1)

    def sample(self) -> list[Sample]:
        """A few calls of each in turn; medians of all of a round."""
        post_s, floor_s, sdk_s = in_turns(
            _TURNS,
            lambda: self._server.timed("post", _CALLS, as_=self._as, channel="general", content=CONTENT),
            lambda: self._floor.timed(_CALLS),
            lambda: self._sdk.timed("noop", _CALLS),
        )
        return [Sample(post_s, floor_s), Sample(post_s, sdk_s)]

    def close(self) -> None:
        """End the servers."""
        self._server.kill()
        self._sdk.kill()
        self._floor.close()


class _Pair:
    """Two servers on one directory, one of which waits for what the other posts."""

    def __init__(self, place: Place, argv: tuple[str, ...], data: Path) -> None:
        self.poster, self.reader = Server(argv, place, data), Server(argv, place, data)
        for server in (self.poster, self.reader):
            server.initialize()

    def deliver(self, post: Mapping[str, object], receive: Mapping[str, object]) -> tuple[float, dict[str, Any]]:
        """Seconds from the first byte of a post to the last byte of the answer of who waited, and that answer."""
        self.reader.begin("receive", **receive)
        time.sleep(_ASLEEP_S)
        began = time.perf_counter()
        self.poster.begin("post", **post)
        received = self.reader.end()
        seconds = time.perf_counter() - began
        self.poster.end()
        return seconds, received

    def close(self) -> None:
        self.poster.kill()
        self.reader.kill()


class Delivery:
    """P4, and what it stands on: the same path with no bus in it."""

    figures = (
        Figure("P4", "post -> another server's receive, p50", "2 lean no-ops + fdatasync, p50", "s", Bar(1.5)),
        Figure("P4", "  the same with a bare file for a bus", "2 lean no-ops + fdatasync, p50", "s", None),
    )
    rounds = 11

    def __init__(self, place: Place) -> None:
        self._pair = _Pair(place, MCP, place.new("delivery"))
        self._pair.poster.call("register", name="poster")
        self._pair.reader.call("register", name="reader")
        self._pair.reader.call("subscribe", as_="reader", channel="general")
        relayed = place.new("relay")
        self._bare = _Pair(place, (*RELAY_LEAN, str(relayed)), relayed)
        self._floor = _Floor(place, 2, _ASLEEP_S)

    def sample(self) -> list[Sample]:
        """A few of each in turn; medians of all of a round."""
        delivery_s, bare_s, floor_s = in_turns(
            _TURNS,
            lambda: [self._deliver() for _ in range(_DELIVERIES)],
            lambda: [self._bare.deliver({}, {})[0] for _ in range(_DELIVERIES)],
            lambda: self._floor.timed(_DELIVERIES),
        )
        return [Sample(delivery_s, floor_s), Sample(bare_s, floor_s)]

    def _deliver(self) -> float:
        post = {"as_": "poster", "channel": "general", "content": CONTENT}
        seconds, received = self._pair.deliver(post, {"as_": "reader", "wait_seconds": _WAIT_S})
        self._pair.reader.call("receive", as_="reader", count=0, ack=received["token"])
        return seconds

    def close(self) -> None:
        """End the servers."""
        self._pair.close()
        self._bare.close()
        self._floor.close()
