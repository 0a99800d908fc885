"""Events as JSON in a line: what goes in comes out, and nothing unknown is skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from agentbus import events as ev
from agentbus import wire
from journal import UnsupportedError

GOLDEN = Path(__file__).parent.parent / "golden"
KINDS: tuple[type[ev.AnyEvent], ...] = get_args(ev.AnyEvent)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(0, 2**53 - 1)
gaps = st.builds(ev.Gap, texts, numbers, numbers, numbers | st.just(UNSET), texts)
expired = st.builds(ev.Expired, texts, numbers)
BY_TYPE: dict[object, st.SearchStrategy[object]] = {
    str: texts,
    int: numbers,
    bool: st.booleans(),
    dict[str, str]: st.dictionaries(texts, texts, max_size=3),
    dict[str, int]: st.dictionaries(texts, numbers, max_size=3),
    list[ev.Gap]: st.lists(gaps, max_size=3),
    list[ev.Expired]: st.lists(expired, max_size=3),
}


def of_type(annotation: object) -> st.SearchStrategy[object]:
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    if annotation is msgspec.UnsetType:
        return st.just(UNSET)
    if annotation is type(None):
        return st.none()
    inner = get_args(annotation)
    if all(isinstance(word, str) for word in inner):
        return st.sampled_from(inner)
    return st.one_of([of_type(part) for part in inner])


def of_kind(kind: type[ev.AnyEvent]) -> st.SearchStrategy[ev.AnyEvent]:
    fields = {field.name: of_type(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_an_event_comes_back_as_it_went_in(kind: type[ev.AnyEvent], data: st.DataObject) -> None:
    event = data.draw(of_kind(kind))
    text = wire.encode([event])
    assert wire.decode(text) == [event]
    assert b"\n" not in text
    assert text.startswith(f'[{{"type":"{kind.__struct_config__.tag}"'.encode())
    assert wire.encoded_bytes(event) == len(text) - 2
    assert b"null" not in text or isinstance(event, ev.Lost) or "null" in str(event)


@given(st.lists(st.one_of([of_kind(kind) for kind in KINDS]), min_size=1, max_size=5))
def test_a_line_keeps_the_order_of_its_events(events: list[ev.AnyEvent]) -> None:
    assert wire.decode(wire.encode(events)) == events


def golden_lines() -> list[bytes]:
    return [line for path in sorted(GOLDEN.glob("*/*.jsonl")) for line in path.read_bytes().split(b"\n") if line]


@pytest.mark.parametrize("line", golden_lines(), ids=lambda line: line[:8].decode())
def test_the_events_of_the_golden_journals_are_written_again_byte_for_byte(line: bytes) -> None:
    text = line[line.index(b',"events":') + len(b',"events":') : -75]
    assert wire.encode(wire.decode(text)) == text


def test_every_type_of_the_format_is_known_by_its_literal_name() -> None:
    assert {kind.__struct_config__.tag for kind in KINDS} == {
        *("segment_opened", "channel_created", "registered", "ended", "subscribed", "unsubscribed", "posted"),
        *("memory_edited", "memory_deleted", "delivered", "acked", "acked_all", "active", "evicted", "reset"),
        *("lost", "repaired"),
    }


def test_unset_fields_are_left_out() -> None:
    event = ev.Posted(as_="a", channel="general", content="x", context="c")
    assert json.loads(wire.encode([event])) == [
        {"type": "posted", "as": "a", "channel": "general", "content": "x", "context": "c"}
    ]


def test_a_text_that_ends_in_half_a_surrogate_pair_is_not_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        wire.encode([ev.Active(as_="a\ud83d")])


UNKNOWN = [
    (b'[{"type":"praised","as":"x"}]', 'event type is "praised"'),
    (b'[{"type":"active","as":"x","mood":"good"}]', 'event field is "mood"'),
    (b'[{"type":"active","as":"x"},{"type":"a\'b` - at `$"}]', 'event type is "a\'b` - at `$"'),
    (b'[{"type":"channel_created","channel":"x","kind":"secret"}]', 'word in an event is "secret"'),
    (b'[{"type":"ended","as":"x","owner":"o","reason":"bored"}]', 'word in an event is "bored"'),
    (
        b'[{"type":"delivered","as":"x","token":"t","ends":{},"include_own":false,"gaps":[{"channel":"c","why":1}]}]',
        'event field is "why"',
    ),
]


@pytest.mark.parametrize(("text", "says"), UNKNOWN)
def test_what_this_version_does_not_know_stops_the_reader(text: bytes, says: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        wire.decode(text)
    assert str(error.value) == (
        f"unsupported: {says}, this software knows those of format 1; run the newer software that wrote it"
    )


MALFORMED = [
    b"",
    b"{}",
    b"[]",
    b"[7]",
    b"[{}]",
    b'[{"type":7}]',
    b'[{"type":"active"}]',
    b'[{"type":"active","as":7}]',
    b'[{"type":"active","as":null}]',
    b'[{"type":"active","as":"\xff"}]',
    b'[{"type":"active","as":"\\ud83d"}]',
    b'[{"type":"acked_all","as":"a","before":1.0,"by":"x"}]',
    b'[{"type":"active","as":"x"}',
]


@pytest.mark.parametrize("text", MALFORMED)
def test_what_no_version_wrote_is_malformed_and_says_why(text: bytes) -> None:
    with pytest.raises(wire.MalformedError) as error:
        wire.decode(text)
    assert error.value.cause == str(error.value) != ""


def posted(**changes: object) -> ev.Posted:
    event = ev.Posted(as_="a", channel="general", content="x", context="c", metadata={"p": "1", "q": "2"}, key="k")
    return msgspec.structs.replace(event, **changes)


def test_a_digest_is_equal_exactly_for_what_asks_the_same() -> None:
    first = ev.payload_digest(posted())
    assert len(first) == 16
    assert ev.payload_digest(posted(context="elsewhere", metadata={"q": "2", "p": "1"})) == first
    others: list[ev.Keyed] = [
        posted(content="y"),
        posted(channel="memory"),
        posted(label="l"),
        posted(label=""),
        posted(reply_to=3),
        posted(metadata={"p": "1"}),
        posted(metadata={}),
        posted(metadata=UNSET),
        ev.MemoryEdited(as_="a", id=3, content="x", context="c", replaces=1, key="k"),
        ev.MemoryDeleted(as_="a", id=3, replaces=1, key="k"),
    ]
    assert len({first, *(ev.payload_digest(other) for other in others)}) == len(others) + 1


def test_the_revision_that_the_bus_found_is_not_what_was_asked() -> None:
    edit = ev.MemoryEdited(as_="a", id=3, content="x", context="c", replaces=1, key="k")
    later = msgspec.structs.replace(edit, replaces=2)
    assert ev.payload_digest(edit) == ev.payload_digest(later)
    assert ev.payload_digest(edit) != ev.payload_digest(msgspec.structs.replace(edit, id=4))


@given(of_kind(ev.Posted), of_kind(ev.Posted))
def test_two_posts_have_one_digest_only_if_they_differ_in_context_alone(one: ev.Posted, other: ev.Posted) -> None:
    same = msgspec.structs.replace(one, context="") == msgspec.structs.replace(other, context="")
    assert (ev.payload_digest(one) == ev.payload_digest(other)) is same
    assert ev.payload_digest(msgspec.structs.replace(one, context="!")) == ev.payload_digest(one)
