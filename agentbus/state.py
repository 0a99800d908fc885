"""The projection: what the bus knows after a commit. Pure: no files, no clock, and nothing here changes a State.

The fold (fold.py) is the only code that writes to one; the rules (decide/) and the answers (queries.py) read it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from agentbus.addressing import Identities
from agentbus.events import Expired, Gap
from agentbus.kinds import MEMORY, ChannelKind
from agentbus.retained import Retained

if TYPE_CHECKING:
    from collections.abc import Iterator

ALWAYS_MS: Final = -(1 << 62)
"""A horizon before every time: nothing is over age."""
NEVER_MS: Final = 1 << 62
"""A time after every other."""


class Channel(Struct):
    """One channel. ``last_seq`` is that of the last message ever posted on it, 0 if there was none."""

    name: str
    kind: ChannelKind
    retained: Retained
    last_seq: int = 0


class Session(Struct, frozen=True):
    """A live identity and the owner that holds it. ``registered_at`` is RFC 3339."""

    as_: str
    owner: str
    name: str
    parent: str | None
    context: str
    client: str | None
    registered_at: str


class Subscription(Struct):
    """(identity, channel): everything up to ``cursor`` is acknowledged. ``active_ms`` is its idle clock."""

    cursor: int
    active_ms: int
    gaps: list[Gap] = field(default_factory=list)


class Batch(Struct):
    """What one receive handed out and nobody has acked: in each channel what lies above its start, up to its end.

    Its messages are not listed here, as nearly every batch is acked before anybody asks: see ``handed_out``.

    Attributes:
        ends: by channel, as its event says.
        starts: by channel, the cursor at that time.
        gone: (seq, channel) of messages in it that were evicted, replaced or deleted since.
    """

    token: str
    ends: dict[str, int]
    starts: dict[str, int]
    include_own: bool
    gaps: list[Gap]
    expired: list[Expired]
    gone: list[tuple[int, str]] = field(default_factory=list)


class Memory(Struct):
    """A live memory: its revision's number and that revision's seq, which is the memory's id for revision 1."""

    id: int
    channel: str
    seq: int
    revision: int


class Receipt(Struct, frozen=True):
    """What an idempotency key was used for. ``digest`` is events.payload_digest of it."""

    time_ms: int
    digest: bytes
    seq: int
    memory_id: int | None
    revision: int | None


class State:
    """The bus after ``last_seq``. Only ``fold`` writes to it.

    Attributes:
        sessions: by display name; subscriptions by display name and channel; batches by display name.
        memories: live ones, by id. ``revised`` leads from an edited one's live seq to its id.
        receipts: by identity and idempotency key; forgotten from the front, where the oldest are.
        replies: the seq (of a memory: its id) of what the thread of a retained message began with, where it replies.
        addressed: the identities each retained message is addressed to, where there are any.
        orphans: (seq, what) of events that a lost line robbed of what they are about.
        lost: a lost line was met. resets: how many resets were.
        evicted_ms: when messages were evicted last; long ago if never.
        oldest_ms: no ordinary channel's first retained message is older: most often nothing needs to be looked for.
    """

    def __init__(self) -> None:
        self.last_seq = 0
        self.channels: dict[str, Channel] = {}
        self.sessions: dict[str, Session] = {}
        self.subscriptions: dict[str, dict[str, Subscription]] = {}
        self.batches: dict[str, Batch] = {}
        self.memories: dict[int, Memory] = {}
        self.revised: dict[int, int] = {}
        self.receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self.identities = Identities()
        self.replies: dict[int, int] = {}
        self.addressed: dict[int, tuple[str, ...]] = {}
        self.orphans: list[tuple[int, str]] = []
        self.lost: list[int] = []
        self.resets = 0
        self.evicted_ms = ALWAYS_MS
        self.oldest_ms = NEVER_MS

    def locate(self, seq: int, likely: str = "") -> tuple[Channel, int] | None:
        """The channel and index of a retained message or live revision; None if there is none with this seq.

        Args:
            seq: its own.
            likely: the channel to look into first, which need not exist.
        """
        first = self.channels.get(likely)
        for channel in self.channels.values() if first is None else (first, *self.channels.values()):
            index = channel.retained.find(seq)
            if index is not None:
                return channel, index
        return None

    def memory_at(self, seq: int) -> Memory | None:
        """The live memory whose live revision has this seq."""
        memory = self.memories.get(self.revised.get(seq, seq))
        return memory if memory is not None and memory.seq == seq else None

    def author_of(self, seq: int, likely: str = "") -> str | None:
        """Who wrote the retained message, live revision or live memory (by id) with this seq; None if it is gone.

        ``likely`` as in `locate`.
        """
        memory = self.memories.get(seq)
        found = self.locate(memory.seq if memory else seq, likely)
        if found is None:
            return None
        channel, index = found
        return self.identities.names[channel.retained.authors[index]]


def addressed_by(state: State, author: str, content: str, reply_to: int | None, channel: str = "") -> tuple[str, ...]:
    """Whom a text addresses at this State, its author left out: those it mentions, then the one it replies to.

    The ``channel`` it is posted to is where what it replies to is looked for first.
    """
    if reply_to is None and "@" not in content:
        return ()
    names = list(state.identities.mentioned(content)) if "@" in content else []
    if reply_to is not None and (replied := state.author_of(reply_to, channel)) is not None:
        names.append(replied)
    return tuple(dict.fromkeys(name for name in names if name != author))


def handed_out(state: State, identity: str, channel: Channel) -> Iterator[int]:
    """Indexes of what is left in a channel of the messages in an identity's pending batch."""
    batch = state.batches[identity]
    start = batch.starts.get(channel.name)
    if start is None:
        return
    end, seqs = batch.ends[channel.name], channel.retained.seqs
    own = None if batch.include_own else state.identities.find(identity)
    for index in channel.retained.walk(start, without=own):
        if seqs[index] > end:
            return
        yield index


def hidden_through(channel: Channel, horizon_ms: int) -> int:
    """The seq at or below which a channel's texts are over age and shown to nobody, evicted yet or not; 0 for none."""
    if channel.kind == MEMORY:
        return 0
    index = channel.retained.first_since(horizon_ms)
    return channel.retained.seqs[index - 1] if index else 0


def is_hidden(state: State, seq: int, horizon_ms: int) -> bool:
    """Whether the message or live memory (by its id) with this seq is over age, or not retained at all."""
    memory = state.memories.get(seq)
    found = state.locate(memory.seq if memory else seq)
    return found is None or hidden_through(found[0], horizon_ms) >= found[0].retained.seqs[found[1]]


def handed_through(state: State, identity: str, channel: str) -> int:
    """The seq up to which an identity was handed a channel of its subscriptions, acked or pending."""
    batch = state.batches.get(identity)
    handed = batch.ends.get(channel, 0) if batch else 0
    return max(state.subscriptions[identity][channel].cursor, handed)


def gaps_after_eviction(state: State, identity: str, channel: Channel, before: int) -> list[Gap]:
    """The gaps of a subscription once its channel's messages below ``before`` are evicted.

    One that was not told yet grows: nothing between it and the new one was handed out. So whoever never comes back has
    one gap a channel, not one more with each eviction.
    """
    known = state.subscriptions[identity][channel.name].gaps
    gap = _eviction_gap(state, identity, channel, before)
    if gap is None:
        return known
    batch, last = state.batches.get(identity), known[-1] if known else None
    if last is None or last.cause != gap.cause or (batch is not None and last in batch.gaps):
        return [*known, gap]
    count = (last.count or 0) + (gap.count or 0)
    return [*known[:-1], Gap(channel.name, last.from_, gap.to, count, gap.cause)]


def _eviction_gap(state: State, identity: str, channel: Channel, before: int) -> Gap | None:
    """What an identity misses if a channel's messages below ``before`` are evicted now; None if nothing.

    That is what it was never handed, its own left out.
    """
    after = handed_through(state, identity, channel.name)
    retained, own = channel.retained, state.identities.find(identity)
    count = retained.count_between(after, before, without=own)
    if not count:
        return None
    first = retained.seqs[next(retained.walk(after, without=own))]
    return Gap(channel.name, first, retained.last_before(before), count, "retention")


def shown_bytes(channel: Channel, index: int) -> int:
    """At most how many bytes a message takes in a result.

    Its line bounds that: what a line adds (pid, type, hash) outweighs what a result does (age, addressed, memory_id,
    revision). But an edit's line does not name its channel. A name may double where JSON escapes it.
    """
    unnamed = 2 * len(channel.name.encode()) if channel.kind == MEMORY else 0
    return channel.retained.line_bytes(index) + unnamed


def unread_messages(state: State, identity: str, channel: str, horizon_ms: int = ALWAYS_MS) -> int:
    """How many messages of the channel lie above the identity's cursor, its own not counted; the unacked ones are.

    Those over age are not, if there is a horizon.
    """
    found = state.channels[channel]
    after = max(state.subscriptions[identity][channel].cursor, hidden_through(found, horizon_ms))
    return found.retained.count_between(after, state.last_seq + 1, without=state.identities.find(identity))
