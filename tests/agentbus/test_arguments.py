"""What each tool takes: the schema a client is shown, and the check of every call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from agentbus import arguments as args
from agentbus.errors import BusError

EVERY = [
    kind
    for kind in vars(args).values()
    if isinstance(kind, type) and issubclass(kind, args.Arguments) and kind is not args.Arguments
]
SESSION = {"as": "Sam"}
POST = SESSION | {"channel": "general", "content": "x"}


def refused(kind: type[args.Arguments], raw: dict[str, Any]) -> str:
    with pytest.raises(BusError) as refusal:
        args.parse(kind, raw)
    assert refusal.value.code == "validation"
    message = refusal.value.message
    message.encode()
    assert message.isprintable()
    assert "$" not in message
    assert "`" not in message
    return message


TAKEN: list[tuple[type[args.Arguments], dict[str, Any], dict[str, Any]]] = [
    (args.RegisterArguments, {"name": "Sam"}, {"parent": UNSET, "context": UNSET, "resume": True}),
    (args.CreateChannelArguments, SESSION | {"name": "c"}, {"kind": "ordinary"}),
    (args.SessionArguments, SESSION, {"as_": "Sam"}),
    (args.SubscribeArguments, SESSION | {"channel": "c"}, {"from_": "now", "persistent": False}),
    (args.SubscribeArguments, SESSION | {"channel": "c", "from": "oldest"}, {"from_": "oldest"}),
    (args.UnsubscribeArguments, SESSION | {"channel": "c", "persistent": True}, {"persistent": True}),
    (args.PostArguments, POST, {"label": UNSET, "reply_to": UNSET, "metadata": UNSET, "idempotency_key": UNSET}),
    (args.PostArguments, POST | {"metadata": {"a": "b"}, "reply_to": 7}, {"metadata": {"a": "b"}, "reply_to": 7}),
    (args.ReceiveArguments, SESSION, {"ack": UNSET, "count": UNSET, "wait_seconds": 0, "include_own": False}),
    (args.ReceiveArguments, SESSION | {"count": 0, "channels": []}, {"count": 0, "channels": []}),
    (args.HistoryArguments, SESSION | {"channel": "c"}, {"before": UNSET, "after": UNSET, "count": 50}),
    (args.SearchArguments, SESSION | {"query": "q"}, {"kind": UNSET, "count": 20, "cursor": UNSET}),
    (args.GetMemoryArguments, SESSION | {"id": 5}, {"id": 5}),
]


@pytest.mark.parametrize(("kind", "raw", "fields"), TAKEN)
def test_what_is_left_out_has_its_default(
    kind: type[args.Arguments], raw: dict[str, Any], fields: dict[str, Any]
) -> None:
    parsed = args.parse(kind, raw)
    assert {name: getattr(parsed, name) for name in fields} == fields


REFUSED: list[tuple[type[args.Arguments], dict[str, Any], str]] = [
    (args.SessionArguments, {}, 'argument "as" is missing: call register first and pass the "as" it returned'),
    (args.PostArguments, {"as": "Sam", "channel": "c"}, 'argument "content" is missing: pass it'),
    (args.RegisterArguments, {}, 'argument "name" is missing: pass it'),
    (
        args.PostArguments,
        POST | {"chanel": "c"},
        'argument "chanel" is not known here: the known ones are as, channel, content, label, reply_to, metadata, ',
    ),
    (args.SessionArguments, SESSION | {"\ud83d": 1}, 'argument "\\ud83d" is not known here: the known ones are as'),
    (args.ReceiveArguments, SESSION | {"count": "7"}, 'argument "count" is "7": it must be a whole number'),
    (args.ReceiveArguments, SESSION | {"count": True}, 'argument "count" is true: it must be a whole number'),
    (args.ReceiveArguments, SESSION | {"count": 7.5}, 'argument "count" is 7.5: it must be a whole number'),
    (args.ReceiveArguments, SESSION | {"count": None}, 'argument "count" is null: it must be a whole number'),
    (args.ReceiveArguments, SESSION | {"count": -1}, 'argument "count" is -1: it must be a whole number >= 0'),
    (args.HistoryArguments, POST | {"count": 0}, 'argument "content" is not known here'),
    (
        args.HistoryArguments,
        SESSION | {"channel": "c", "count": 0},
        'argument "count" is 0: it must be a whole number >= 1',
    ),
    (args.ReceiveArguments, SESSION | {"channels": "c"}, 'argument "channels" is "c": it must be a list'),
    (
        args.ReceiveArguments,
        SESSION | {"channels": ["c", 1]},
        'argument "channels" is ["c",1]: each value in it must be text',
    ),
    (args.ReceiveArguments, SESSION | {"include_own": 1}, 'argument "include_own" is 1: it must be true or false'),
    (args.PostArguments, POST | {"metadata": []}, 'argument "metadata" is []: it must be an object'),
    (
        args.PostArguments,
        POST | {"metadata": {"a": {"b": None}}},
        'argument "metadata" is {"a":{"b":null}}: each value in it must be text',
    ),
    (
        args.PostArguments,
        POST | {"content": {"a\n": "\u202e"}},
        'argument "content" is {"a\\n":"\\u202e"}: it must be text',
    ),
    (args.PostArguments, POST | {"content": ["x" * 300]}, f'argument "content" is ["{"x" * 198}…: it must be text'),
    (
        args.CreateChannelArguments,
        SESSION | {"name": "c", "kind": "secret"},
        'argument "kind" is "secret": it must be "memory" or "ordinary"',
    ),
    (
        args.CreateChannelArguments,
        SESSION | {"name": "c", "kind": 1},
        'argument "kind" is 1: it must be "memory" or "ordinary"',
    ),
    (
        args.SubscribeArguments,
        SESSION | {"channel": "c", "from": "start"},
        'argument "from" is "start": it must be "now" or "oldest"',
    ),
    (args.SearchArguments, SESSION | {"query": 7}, 'argument "query" is 7: it must be text'),
]


@pytest.mark.parametrize(("kind", "raw", "message"), REFUSED)
def test_a_refusal_names_the_argument_what_was_given_and_what_is_allowed(
    kind: type[args.Arguments], raw: dict[str, Any], message: str
) -> None:
    assert refused(kind, raw).startswith(message)


@pytest.mark.parametrize(
    "field",
    [
        {"content": "half \ud83d"},
        {"metadata": {"\udc00": "x"}},
        {"metadata": {"x": "\udc00"}},
        {"metadata": [["\udc00"]]},
        {"reply_to": "\ud83d"},
    ],
)
def test_half_a_surrogate_pair_is_refused_by_name_wherever_it_stands(field: dict[str, Any]) -> None:
    (name,) = field
    assert refused(args.PostArguments, POST | field) == (
        f'argument "{name}" is not text: it holds half of a surrogate pair; send whole characters'
    )


@pytest.mark.parametrize("kind", EVERY)
def test_a_schema_is_one_closed_object_with_nothing_to_look_up(kind: type[args.Arguments]) -> None:
    shown = args.schema(kind)
    assert (shown["type"], shown["additionalProperties"]) == ("object", False)
    assert list(shown["properties"]) == list(kind.__struct_encode_fields__)
    assert shown["required"][0] == ("name" if kind is args.RegisterArguments else "as")
    text = json.dumps(shown)
    for word in ("$ref", "title", "description", "Length", "anyOf"):
        assert word not in text
    assert set(shown) == {"type", "properties", "required", "additionalProperties"}


@pytest.mark.parametrize("kind", EVERY)
def test_what_a_schema_says_of_each_argument_is_what_the_check_holds_to(kind: type[args.Arguments]) -> None:
    allowed = {"string": "x", "integer": 1, "boolean": True, "array": ["x"], "object": {"a": "b"}}
    shown = args.schema(kind)
    whole = {
        name: entry["enum"][0] if "enum" in entry else allowed[entry["type"]]
        for name, entry in shown["properties"].items()
    }
    args.parse(kind, whole)
    args.parse(kind, {name: whole[name] for name in shown["required"]})
    for name, entry in shown["properties"].items():
        refused(kind, whole | {name: [[]] if entry.get("type") != "array" else "x"})
        if "minimum" in entry:
            refused(kind, whole | {name: entry["minimum"] - 1})
            args.parse(kind, whole | {name: entry["minimum"]})


def test_the_schemas_leave_room_for_the_texts_of_thirteen_tools_in_8_kib() -> None:
    used = [args.schema(kind) for kind in EVERY]
    later = [args.schema(args.PostArguments)] * 2  # edit_memory and delete_memory take no more than post
    twice = [args.schema(args.SessionArguments)]  # discover and list_channels take the same
    texts_max = 13 * 300  # name, title, description, hints
    assert len(json.dumps(used + later + twice, separators=(",", ":"))) + texts_max < 8 << 10
