"""The arguments of each tool: one struct is both the schema a client sees and the check of every call. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from agentbus.errors import VALIDATION, BusError, render_cut, render_value
from agentbus.kinds import ChannelKind

A = TypeVar("A", bound="Arguments")
Seq = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"as_": "as", "from_": "from"}):
    """What the arguments of all tools have in common: nothing unknown, nothing converted."""


class SessionArguments(Arguments, frozen=True, kw_only=True):
    """Every tool but register: ``as`` is what register returned."""

    as_: str


class RegisterArguments(Arguments, frozen=True, kw_only=True):
    """Of register."""

    name: str
    parent: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    resume: bool = True


class CreateChannelArguments(SessionArguments, frozen=True, kw_only=True):
    """Of create_channel."""

    name: str
    kind: ChannelKind = "ordinary"


class SubscribeArguments(SessionArguments, frozen=True, kw_only=True):
    """Of subscribe."""

    channel: str
    from_: Literal["now", "oldest"] = "now"
    persistent: bool = False


class UnsubscribeArguments(SessionArguments, frozen=True, kw_only=True):
    """Of unsubscribe."""

    channel: str
    persistent: bool = False


class PostArguments(SessionArguments, frozen=True, kw_only=True):
    """Of post."""

    channel: str
    content: str
    label: str | UnsetType = UNSET
    reply_to: Seq | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET


class ReceiveArguments(SessionArguments, frozen=True, kw_only=True):
    """Of receive."""

    ack: str | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    wait_seconds: Annotated[int, Meta(ge=0)] = 0
    channels: list[str] | UnsetType = UNSET
    include_own: bool = False


class HistoryArguments(SessionArguments, frozen=True, kw_only=True):
    """Of history; ``before`` and ``after`` are exclusive seqs."""

    channel: str
    before: Seq | UnsetType = UNSET
    after: Seq | UnsetType = UNSET
    count: Count = 50


class SearchArguments(SessionArguments, frozen=True, kw_only=True):
    """Of search."""

    query: str
    channel: str | UnsetType = UNSET
    kind: ChannelKind | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    since: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    thread: Seq | UnsetType = UNSET
    count: Count = 20
    cursor: str | UnsetType = UNSET


class GetMemoryArguments(SessionArguments, frozen=True, kw_only=True):
    """Of get_memory."""

    id: Seq


class EditMemoryArguments(SessionArguments, frozen=True, kw_only=True):
    """Of edit_memory."""

    id: Seq
    content: str
    label: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET


class DeleteMemoryArguments(SessionArguments, frozen=True, kw_only=True):
    """Of delete_memory."""

    id: Seq
    idempotency_key: str | UnsetType = UNSET


def parse(kind: type[A], raw: dict[str, Any]) -> A:
    """The arguments of one call.

    Raises:
        BusError: validation; names the argument, what was given and what is allowed.
    """
    known = kind.__struct_encode_fields__
    unknown = [name for name in raw if name not in known]
    if unknown:
        raise BusError(
            VALIDATION,
            f"argument {render_value(unknown[0])} is not known here: the known ones are {', '.join(known)}",
        )
    _require_text(raw)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _refuse(kind, raw, str(error)) from error


def _require_text(raw: dict[str, Any]) -> None:
    """Refuse half a surrogate pair, as JavaScript clients cut an emoji, wherever it stands; msgspec lets it pass."""
    for name, value in raw.items():
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError:
            raise BusError(
                VALIDATION,
                f'argument "{name}" is not text: it holds half of a surrogate pair; send whole characters',
            ) from None


_EXPECTED = re.compile(r"Expected `(\w+)`(?:, got `\w+`)?( >= \d+)? - at `\$\.\w+(.*)`")
_WORDS = {"int": "a whole number", "str": "text", "bool": "true or false", "array": "a list", "object": "an object"}


def _refuse(kind: type[Arguments], raw: dict[str, Any], text: str) -> BusError:
    """Msgspec's sentence, as ``Expected `int`, got `str` - at `$.count```, in words that a caller can act on."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    if missing:
        next_step = 'call register first and pass the "as" it returned' if missing[1] == "as" else "pass it"
        return BusError(VALIDATION, f'argument "{missing[1]}" is missing: {next_step}')
    name = re.split(r"[.\[`]", text.partition("`$.")[2])[0]
    value = raw[name]
    shown = render_value(value) if isinstance(value, str) else render_cut(msgspec.json.encode(value).decode())
    return BusError(VALIDATION, f'argument "{name}" is {shown}: {_allowed(kind, name, text)}')


def _allowed(kind: type[Arguments], name: str, text: str) -> str:
    words = schema(kind)["properties"][name].get("enum")
    if words:
        return f"it must be {' or '.join(map(render_value, words))}"
    expected = _EXPECTED.fullmatch(text)
    assert expected is not None, text  # noqa: S101  # tools take no other types
    within = "each value in it" if expected[3] else "it"
    return f"{within} must be {_WORDS[expected[1]]}{expected[2] or ''}"


def schema(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments: one object, nothing referred to."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: dict[str, Any] = parts.pop(kind.__name__)
    assert not parts, parts  # noqa: S101  # arguments are flat
    root.pop("title")
    root.pop("description", None)
    return root
