"""Random walks over a bus: what a few identities may do, one step after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import strategies as st

from agentbus import commands as cmd
from agentbus import events as ev
from agentbus.names import AgentName, ChannelName
from tests.agentbus.building import POLICY, World

if TYPE_CHECKING:
    from agentbus.commands import ReceiveResult

WHO = ("Ann", "Bob", "Cy")
CHANNELS = ("general", "memory", "reviews")
ORDINARY = ("general", "reviews")
NARROW = msgspec.structs.replace(POLICY, result_bytes_max=1024 + 1100)
"""Room for four messages in a result."""


class Post(msgspec.Struct, frozen=True):
    who: str
    channel: str
    content: str


class Revise(msgspec.Struct, frozen=True):
    """Edit, or delete, the live memory that is ``which`` in order, if there is one."""

    who: str
    which: int
    delete: bool


class Evict(msgspec.Struct, frozen=True):
    """All but the last ``keep`` messages of a channel."""

    channel: str
    keep: int


class Join(msgspec.Struct, frozen=True):
    who: str
    channel: str
    oldest: bool


class Leave(msgspec.Struct, frozen=True):
    who: str
    channel: str


class Take(msgspec.Struct, frozen=True):
    """A receive; ``only`` cuts ``CHANNELS`` down to those subscribed."""

    who: str
    count: int
    ack: str
    own: bool
    only: str | None


Step = Post | Revise | Evict | Join | Leave | Take

who, channels = st.sampled_from(WHO), st.sampled_from(CHANNELS)
contents = st.sampled_from(["x", "@Ann", "@Bob @Cy", "long " * 60, "very long " * 250])
posts = st.builds(Post, who, channels, contents)
takes = st.builds(
    Take,
    who,
    st.sampled_from([0, 1, 2, 100, 100]),
    st.sampled_from(["none", "right", "right", "right", "wrong"]),
    st.booleans(),
    st.none() | channels,
)
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        posts,
        posts,
        posts,
        takes,
        takes,
        takes,
        st.builds(Revise, who, st.integers(0, 2), st.booleans()),
        st.builds(Evict, st.sampled_from(ORDINARY), st.integers(0, 3)),
        st.builds(Join, who, channels, st.booleans()),
        st.builds(Leave, who, channels),
    ),
    min_size=12,  # Hypothesis draws about twice as many
    max_size=60,
)


def begun() -> World:
    """Three sessions, each subscribed to all channels."""
    world = World()
    world.channel("reviews")
    for identity in WHO:
        world.register(identity, *CHANNELS)
    return world


def walk(world: World, step: Step) -> ReceiveResult | None:
    """Take one step by the rules where there are rules; what a receive answered."""
    match step:
        case Post():
            world.post(step.who, step.channel, step.content, key=f"k{world.state.last_seq % 7}")
        case Revise():
            _revise(world, step)
        case Evict():
            seqs = world.state.channels[step.channel].retained.seqs
            before = seqs[-step.keep] if 0 < step.keep <= len(seqs) else world.state.last_seq + 1
            world.commit(ev.Evicted(step.channel, before))
        case Join():
            joined = cmd.Subscribe(as_=AgentName(step.who), channel=ChannelName(step.channel), oldest=step.oldest)
            world.run(joined)
        case Leave():
            world.run(cmd.Unsubscribe(as_=AgentName(step.who), channel=ChannelName(step.channel)))
        case Take():
            return world.run(taken(world, step), policy=NARROW)
    return None


def _revise(world: World, step: Revise) -> None:
    memories = sorted(world.state.memories)[step.which :]
    if memories and step.delete:
        world.delete(step.who, memories[0])
    elif memories:
        world.edit(step.who, memories[0], "@Bob better")


def taken(world: World, step: Take) -> cmd.Receive:
    """The command of a receive: with the pending token, a wrong one, or none."""
    batch = world.state.batches.get(step.who)
    token = {"none": None, "right": batch.token if batch else None, "wrong": "nonsense"}[step.ack]
    only = None
    if step.only is not None and step.only in world.state.subscriptions.get(step.who, {}):
        only = (ChannelName(step.only),)
    return cmd.Receive(as_=AgentName(step.who), count=step.count, ack=token, include_own=step.own, channels=only)


def wandered(path: list[Step]) -> World:
    """The bus after all of a walk's steps."""
    world = begun()
    for step in path:
        walk(world, step)
    return world
