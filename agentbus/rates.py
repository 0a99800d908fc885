"""How much each identity of this process may send in a second. Knows no message and writes nothing.

Two buckets an identity, one of messages and one of bytes, each holding a second's worth and filling up all the time.
What a call takes it gets back unless it succeeds, so only what was sent is paid for.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.errors import RATE_LIMITED, BusError, render_value
from agentbus.events import Keyed
from agentbus.wire import encoded_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from agentbus.events import AnyEvent


class _Bucket(Struct):
    """What is left of a second's worth at a time. Below 0 after a text that is larger than all of it."""

    per_s: int
    left: float
    at_s: float

    def fill(self, now_s: float) -> None:
        self.left = min(float(self.per_s), self.left + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s

    def has(self, amount: int) -> bool:
        """Whether ``amount`` can be taken. More than the bucket holds can be when it is full."""
        return self.left >= min(amount, self.per_s)

    def wait_s(self, amount: int) -> float:
        """In how many seconds it can be."""
        return (min(amount, self.per_s) - self.left) / self.per_s


class Rates:
    """What may be sent now. Threads share it.

    Args:
        messages_per_s: from 1.
        kib_per_s: from 1.
        clock: seconds that never step back.
    """

    def __init__(self, messages_per_s: int, kib_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = (messages_per_s, kib_per_s << 10)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[_Bucket, _Bucket]] = {}

    def turn(self, identity: str) -> Turn:
        """One call of an identity, as a context."""
        return Turn(self, identity)

    def take(self, identity: str, size: int) -> None:
        """Take one message of ``size`` bytes.

        Raises:
            BusError: rate_limited; nothing was taken.
        """
        with self._lock:
            messages, data = self._filled(identity)
            if messages.has(1) and data.has(size):
                messages.left -= 1
                data.left -= size
                return
            waits = (messages.wait_s(1), data.wait_s(size))
        limit = f"{self._per_s[0]} messages a second (send_messages_per_second)"
        if waits[1] > waits[0]:
            limit = f"{self._per_s[1] >> 10} KiB a second (send_kib_per_second), and this takes {size} bytes"
        wait_s = math.ceil(max(waits) * 10) / 10
        text = f"{render_value(identity)} may send {limit}: try again in {wait_s} s"
        raise BusError(RATE_LIMITED, text, retryable=True)

    def give_back(self, identity: str, size: int) -> None:
        """As if it had never been taken."""
        with self._lock:
            messages, data = self._filled(identity)
            messages.left += 1
            data.left += size

    def _filled(self, identity: str) -> tuple[_Bucket, _Bucket]:
        now_s = self._clock()
        buckets = self._buckets.get(identity)
        if buckets is None:
            messages, data = (_Bucket(per_s, per_s, now_s) for per_s in self._per_s)
            buckets = self._buckets[identity] = messages, data
        for bucket in buckets:
            bucket.fill(now_s)
        return buckets


class Turn:
    """What one call has taken of its identity's rates: once, however often it comes to write.

    If the call fails it is given back.
    """

    __slots__ = ("_identity", "_rates", "_taken")

    def __init__(self, rates: Rates, identity: str) -> None:
        self._rates = rates
        self._identity = identity
        self._taken: int | None = None

    def __enter__(self) -> Self:
        """Nothing is taken yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The call is done, or has failed."""
        if kind is not None:
            self.give_back()

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Pay for what is about to be written.

        Raises:
            BusError: rate_limited.
        """
        if self._taken is None:
            size = sum(encoded_bytes(event) for event in events if isinstance(event, Keyed))
            self._rates.take(self._identity, size)
            self._taken = size

    def give_back(self) -> None:
        """Nothing was written."""
        if self._taken is not None:
            self._rates.give_back(self._identity, self._taken)
            self._taken = None
