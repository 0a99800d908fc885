"""Random calls of one process, every tool that writes among them; what is refused is refused and nothing else fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from agentbus.errors import BusError
from agentbus.events import AckedAll, AnyEvent, Evicted
from tests.agentbus.hosts import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from agentbus.host import Host
    from agentbus.state import State

_CHANNELS = ("general", "memory", "one", "two", "facts")


class RandomCalls:
    """Identities of one host, their last tokens, and a source of chance."""

    def __init__(self, host: Host, name: str, chance: Random) -> None:
        self._host = host
        self._name = name
        self._chance = chance
        self._identities = [call(host, "register", name=name)["as"]]
        self._tokens: dict[str, str] = {}

    def step(self) -> None:
        """One call."""
        often = [self._post] * 5 + [self._receive] * 4
        seldom = [self._register, self._channel, self._subscribe, self._unsubscribe, self._edit, self._evict]
        act = self._chance.choice(often + seldom)
        try:
            act(self._chance.choice(self._identities))
        except BusError as refused:
            if refused.code not in {"not_found", "conflict", "not_registered"}:
                raise

    def _register(self, identity: str) -> None:
        name = self._chance.choice([self._name, "shared"])
        parent: dict[str, Any] = self._chance.choice([{}, {"parent": identity}])
        resume = self._chance.random() < 0.8
        registered = call(self._host, "register", name=name, resume=resume, **parent)["as"]
        if registered not in self._identities:
            self._identities.append(registered)

    def _channel(self, identity: str) -> None:
        name = self._chance.choice(_CHANNELS)
        call(self._host, "create_channel", as_=identity, name=name, kind="memory" if name == "facts" else "ordinary")

    def _subscribe(self, identity: str) -> None:
        start = self._chance.choice(["now", "oldest"])
        call(self._host, "subscribe", as_=identity, channel=self._chance.choice(_CHANNELS), from_=start)

    def _unsubscribe(self, identity: str) -> None:
        call(self._host, "unsubscribe", as_=identity, channel=self._chance.choice(_CHANNELS))

    def _post(self, identity: str) -> None:
        key: dict[str, Any] = self._chance.choice([{}, {"idempotency_key": str(self._chance.randrange(5))}])
        text = self._chance.choice(["hello", "hello @shared", f"@{identity}!", "@shared2 漢字"])
        call(self._host, "post", as_=identity, channel=self._chance.choice(_CHANNELS), content=text, **key)

    def _receive(self, identity: str) -> None:
        token = self._tokens.pop(identity, None)
        ack: dict[str, Any] = {} if token is None or self._chance.random() < 0.3 else {"ack": token}
        own = self._chance.random() < 0.2
        count = self._chance.randrange(6)
        received = call(self._host, "receive", as_=identity, count=count, include_own=own, **ack)
        if "token" in received:
            self._tokens[identity] = received["token"]

    def _edit(self, identity: str) -> None:
        number = self._chance.choice(self._host.bus.ask(lambda state: sorted(state.memories)) or [0])
        key: dict[str, Any] = self._chance.choice([{}, {"idempotency_key": str(self._chance.randrange(5))}])
        if self._chance.random() < 0.5:
            call(self._host, "delete_memory", as_=identity, id=number, **key)
        else:
            call(self._host, "edit_memory", as_=identity, id=number, content="new @shared", **key)

    def _evict(self, identity: str) -> None:
        def evicted(state: State) -> AnyEvent | None:
            seqs = state.channels["general"].retained.seqs
            if self._chance.random() < 0.5 and identity in state.subscriptions:
                return AckedAll(as_=identity, before=state.last_seq, by="test")
            return Evicted(channel="general", before=seqs[len(seqs) // 2]) if seqs else None

        self._write(evicted)

    def _write(self, choose: Callable[[State], AnyEvent | None]) -> None:
        """One event chosen under the writer lock, as a command of a later version would be."""
        bus = self._host.bus

        def build(_: str) -> bytes:
            event = bus.ask(choose)
            if event is None:
                raise BusError("not_found", "nothing to write about")
            return msgspec.json.encode([event])

        bus._journal.commit(build, deadline=time.monotonic() + 5, flush=False)
