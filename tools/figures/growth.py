"""P12: what a call takes on a long journal, beside itself on a short one. Nothing may grow with what is retained."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from tools.figures import children
from tools.figures.child import CONTENT, SNAPSHOT_WAIT_S
from tools.figures.journals import Plan
from tools.figures.measuring import Bar, Figure, NotMeasuredError, Sample, in_turns
from tools.figures.servers import MCP, Server

if TYPE_CHECKING:
    from tools.figures.places import Place

_SHORT = 1_000
_BAR = Bar(1.5)
_CALLS = 10
_TURNS = 5
_PAGE = 10
_SNAPSHOT_COMMITS_MIN = 20_000  # from here on the product keeps one by itself

_SETTINGS = '{"message_retention_hours": 8760, "send_messages_per_second": 10000, "send_kib_per_second": 65536}'
"""What is over age is no message of the journal any more; and a bench sends without a pause."""
_HALF_YEAR_MS = 183 * 24 * 3600 * 1000
_POSTED = 0.77
"""Which part of the commits of a plan at least are messages, behind those by which everybody comes."""
_COMING = 60


def plan(messages: int) -> Plan:
    """A journal with so many messages, none of which is over age by the settings above; kept for half a year."""
    commits = round(messages / _POSTED) + _COMING
    now_ms = time.time_ns() // 1_000_000
    start_ms = now_ms - now_ms % _HALF_YEAR_MS
    return Plan(commits, start_ms=start_ms - commits * Plan.step_ms)


class Growth:
    """P12: post; receive of one new message with the ack of the one before; receive of a page when all is unread."""

    rounds = 9

    def __init__(self, place: Place) -> None:
        sizes = [_SHORT, place.commits // 10, place.commits]
        self.figures = [
            Figure("P12", f"{what}: {size:,} messages", f"the same with {_SHORT:,}", "s", _BAR)
            for what in ("post", "receive", "receive, all unread")
            for size in sizes[1:]
        ]
        self._buses = [_Bus(place, size) for size in sizes]

    def sample(self) -> list[Sample]:
        """All sizes in turn; medians of all of a round."""
        samples = []
        for work in (_Bus.post, _Bus.receive, _Bus.receive_all_unread):
            short_s, *longer = in_turns(_TURNS, *(partial(work, bus) for bus in self._buses))
            samples += [Sample(each_s, short_s) for each_s in longer]
        return samples

    def close(self) -> None:
        """End the servers."""
        for bus in self._buses:
            bus.close()


class _Bus:
    """A server on a journal with so many messages, and three sessions of it."""

    def __init__(self, place: Place, messages: int) -> None:
        data = place.new("growth")
        settings = place.new("settings") / "settings.json"
        settings.write_text(_SETTINGS)
        place.shelf.put(plan(messages), data)
        if messages >= _SNAPSHOT_COMMITS_MIN and not children.run("snapshot", data)["made"]:
            raise NotMeasuredError(f"no snapshot was made within {SNAPSHOT_WAIT_S:.0f} s")
        self._server = Server((*MCP, "--config", str(settings)), place, data)
        self._server.initialize()
        for name in ("poster", "reader", "late"):
            self._server.call("register", name=name)
        listed = self._server.call("list_channels", as_="poster")["channels"]
        self._channels = [row["channel"] for row in listed]
        retained = sum(row["messages"] for row in listed)
        if retained < messages:
            raise NotMeasuredError(f"{retained:,} messages are retained where {messages:,} should be")
        self._token = ""

    def post(self) -> list[float]:
        return self._server.timed("post", _CALLS, as_="poster", channel="general", content=CONTENT)

    def receive(self) -> list[float]:
        """Each takes the one message posted since the last."""
        found = []
        for _ in range(_CALLS):
            self._server.call("post", as_="poster", channel="general", content=CONTENT)
            seconds, self._token = self._receive("reader", self._token)
            found.append(seconds)
        return found

    def receive_all_unread(self) -> list[float]:
        """Each takes the next page of all there is, and acknowledges the one before."""
        for channel in self._channels:
            self._server.call("unsubscribe", as_="late", channel=channel)
            self._server.call("subscribe", as_="late", channel=channel, from_="oldest")
        found, token = [], ""
        for _ in range(_CALLS):
            seconds, token = self._receive("late", token)
            found.append(seconds)
        return found

    def _receive(self, identity: str, token: str) -> tuple[float, str]:
        """Seconds until a page is there, and its token."""
        began = time.perf_counter()
        received = self._server.call("receive", as_=identity, ack=token, count=_PAGE)
        return time.perf_counter() - began, received["token"]

    def close(self) -> None:
        self._server.kill()
