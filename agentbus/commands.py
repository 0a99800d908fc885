"""What may be asked of the bus, what a rule must be told to decide it, and what it answers. Pure.

Every text here was parsed (names.py) and every number checked against its bounds (arguments.py, asking.py); what is
left to decide depends on the State. ``Command[R]`` names the result a command leads to.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct, field

from agentbus.events import AnyEvent, Expired, Gap
from agentbus.kinds import ChannelKind
from agentbus.names import AgentName, ChannelName

R = TypeVar("R")


class Command(Struct, Generic[R], frozen=True):
    """A request that may write events; R is the type of its result."""


class Policy(Struct, frozen=True):
    """The settings that rules depend on."""

    cursor_idle_ms: int
    receipt_retention_ms: int
    event_bytes_max: int
    result_bytes_max: int
    message_retention_ms: int = 168 * 3600 * 1000
    cleanup_interval_ms: int = 3600 * 1000


class Facts(Struct, frozen=True):
    """What a rule cannot know by itself: gathered after the State has caught up, anew under the writer lock.

    Attributes:
        time_ms: the commit's time, in ms since 1970 UTC.
        owner: this process's owner token.
        token: a fresh one for a batch; 12 hex characters.
        gone: owners with a session in the State whose process no longer lives.
    """

    time_ms: int
    owner: str
    token: str
    policy: Policy
    gone: frozenset[str] = frozenset()

    @property
    def horizon_ms(self) -> int:
        """Ordinary messages from before that time are over age. One from after now is not: no age is below 0."""
        return self.time_ms - self.policy.message_retention_ms


class Decision(Struct, Generic[R], frozen=True):
    """What a rule decided: events to append (none: nothing is written) and the answer, but for the commit's own seq."""

    events: tuple[AnyEvent, ...]
    result: R


class RegisterResult(Struct, frozen=True):
    """``subscribed`` and ``failed`` are about the persistent list."""

    as_: AgentName
    resumed: bool
    already: bool
    subscribed: list[str]
    failed: dict[str, str]
    expired: list[Expired]


class Register(Command[RegisterResult], frozen=True, kw_only=True):
    """``channels`` is the repository's persistent list, ``failed`` what it holds that is no channel name.

    ``apart``: only a name without subscriptions will do, for one who must not come into an agent's backlog.
    """

    name: AgentName
    context: str
    parent: AgentName | None = None
    resume: bool = True
    apart: bool = False
    client: str | None = None
    channels: tuple[ChannelName, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


class CreateChannelResult(Struct, frozen=True):
    """``created`` is false if the channel was there already, with this kind."""

    channel: str
    kind: ChannelKind
    created: bool


class CreateChannel(Command[CreateChannelResult], frozen=True, kw_only=True):
    """Make a channel, once."""

    as_: AgentName
    channel: ChannelName
    kind: ChannelKind


class SubscribeResult(Struct, frozen=True):
    """``already``: the subscription was there and its cursor did not move."""

    already: bool


class Subscribe(Command[SubscribeResult], frozen=True, kw_only=True):
    """``oldest``: begin just before the oldest retained message, else after the newest."""

    as_: AgentName
    channel: ChannelName
    oldest: bool = False


class Unsubscribe(Command[None], frozen=True, kw_only=True):
    """Drop a subscription; one that is not there is no fault."""

    as_: AgentName
    channel: ChannelName


class PostResult(Struct, frozen=True):
    """``seq``, ``memory_id`` and ``revision`` are those of the first post if ``repeated``; else the commit tells.

    ``unknown``: names behind an ``@`` that no identity has ever had, the first few of them.
    """

    addressed: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    repeated: bool = False
    seq: int | None = None
    memory_id: int | None = None
    revision: int | None = None


class Post(Command[PostResult], frozen=True, kw_only=True):
    """A message; on a memory channel a memory."""

    as_: AgentName
    channel: ChannelName
    content: str
    label: str | None = None
    reply_to: int | None = None
    metadata: dict[str, str] | None = None
    key: str | None = None


class EditResult(Struct, frozen=True):
    """The revision made, in the place of the one before it; ``seq`` is the first edit's if ``repeated``."""

    memory_id: int
    revision: int
    repeated: bool = False
    seq: int | None = None


class EditMemory(Command[EditResult], frozen=True, kw_only=True):
    """A new revision of memory ``id``: what is not given here it does not have, whatever the one before it had."""

    as_: AgentName
    id: int
    content: str
    label: str | None = None
    metadata: dict[str, str] | None = None
    key: str | None = None


class DeleteResult(Struct, frozen=True):
    """``revision``: the one that was live until then."""

    memory_id: int
    revision: int
    repeated: bool = False


class DeleteMemory(Command[DeleteResult], frozen=True, kw_only=True):
    """No live revision of memory ``id`` any more."""

    as_: AgentName
    id: int
    key: str | None = None


class ReceiveResult(Struct, frozen=True):
    """``messages`` is (seq, channel); without a ``token`` nothing was handed out."""

    token: str | None = None
    messages: tuple[tuple[int, str], ...] = ()
    more: int = 0
    redelivered: bool = False
    acked: bool = False
    ack_ignored: bool = False
    gaps: tuple[Gap, ...] = ()
    expired: tuple[Expired, ...] = ()


class Receive(Command[ReceiveResult], frozen=True, kw_only=True):
    """``channels`` None: all subscriptions. ``count`` 0: an ack and nothing else."""

    as_: AgentName
    count: int
    ack: str | None = None
    channels: tuple[ChannelName, ...] | None = None
    include_own: bool = False


class Backlog(Struct, frozen=True):
    """What waits for an identity in one of its channels below a seq; ``gaps``: so many it was not told of."""

    channel: str
    messages: int
    oldest_ms: int | None
    gaps: int


class AckAllResult(Struct, frozen=True):
    """What counts as read from here on. ``batch``: a pending batch is gone, all of which lay below that seq."""

    backlogs: tuple[Backlog, ...]
    batch: bool

    @property
    def anything(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.backlogs) or self.batch


class AckAll(Command[AckAllResult], frozen=True, kw_only=True):
    """Everything below ``before`` counts as read by an identity; ``by`` is the person who asked."""

    as_: AgentName
    before: int
    by: str


class EndSessions(Command[None], frozen=True):
    """End every session of this process."""


class Reset(Command[None], frozen=True, kw_only=True):
    """Empty the bus; ``by`` is the person who asked."""

    by: str
