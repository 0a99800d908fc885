"""One long session of lines, from the usual to the absurd, and what a door says to each of them.

The same lines go to each door, one after the other: a probe that is answered is waited for.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentbus import tools
from agentbus.limits import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agentbus.raw_server import RawServer

Answers = dict[str, list[Any]]

NAMELESS = "[]"
"""The barrier behind a line without an id: each door says of it, in turn, that it is empty."""


class Probe(NamedTuple):
    """One line, or several at once.

    Attributes:
        id: under which it is answered; None where the answer, if there is one, has none.
        awaited: false where no door answers, or not each.
    """

    name: str
    line: bytes
    id: object = None
    awaited: bool = True


def ask(name: str, method: object, params: object = None, *, id_: object = None, awaited: bool = True) -> Probe:
    """A request; its name is its id, unless told otherwise."""
    id_ = name if id_ is None else id_
    message = {"jsonrpc": "2.0", "id": id_, "method": method} | ({} if params is None else {"params": params})
    return Probe(name, json.dumps(message).encode(), id_, awaited)


def call(name: str, tool: str, arguments: dict[str, Any]) -> Probe:
    return ask(name, "tools/call", {"name": tool, "arguments": arguments})


def raw(name: str, line: bytes | str) -> Probe:
    """A line that has no id, or none that can be answered."""
    return Probe(name, line.encode() if isinstance(line, str) else line)


def note(name: str, method: str, params: object = None) -> Probe:
    return raw(name, json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


def initialize(name: str, revision: object = "2025-11-25", **more: object) -> Probe:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}}
    return ask(name, "initialize", params | more)


NO_OBJECTS: tuple[Any, ...] = (None, [], "", 0)
TOKENS: tuple[Any, ...] = (None, 1.5, True, [], "t", 7)
CANCELLED = "notifications/cancelled"
ENVELOPE = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
BEFORE = (
    ask("ping before the handshake", "ping"),
    ask("tools/list before the handshake", "tools/list"),
    ask("prompts/list before the handshake", "prompts/list"),
    ask("prompts/get before the handshake", "prompts/get", {"name": "init"}),
    call("a call before the handshake", "list_channels", {"as": "nobody"}),
    ask("an unknown method before the handshake", "resources/list"),
    ask("a probe for the newest revision that names none", "server/discover"),
    ask("initialize without params", "initialize"),
    ask("initialize without a client", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
    initialize("initialize with a revision that is no text", 7),
    initialize("initialize with a client that is no object", clientInfo="probe"),
    initialize("initialize with half a character", clientInfo={"name": "\ud83d", "version": "1"}),
    initialize("initialize with an unknown revision", "1999-01-01"),
    note("initialized", "notifications/initialized"),
    call("register", "register", {"name": "ann"}),
)


def of_revision(revision: str) -> Iterator[Probe]:
    """What a door says where that revision is agreed on."""
    yield initialize(f"initialize {revision}", revision)
    yield ask(f"tools/list {revision}", "tools/list")
    yield ask(f"prompts/get {revision}", "prompts/get", {"name": "init"})
    yield call(f"a result {revision}", "list_channels", {"as": "ann"})
    yield call(f"a refusal {revision}", "list_channels", {"as": "nobody"})
    entries = [ask("", "ping", id_=f"batch {revision}"), ask("", "initialize", {}, id_=f"batch {revision} 2")]
    lines = [entry.line.decode() for entry in entries]
    batch = f"[{','.join(lines)},7,{json.dumps({'jsonrpc': '2.0', 'method': 'x'})}]"
    yield Probe(f"a batch {revision}", batch.encode(), f"batch {revision}" if revision == "2025-03-26" else None)


MESSAGES = (
    ask("an unknown method", "resources/list"),
    ask("a method of no name", ""),
    ask("a method with half a character", "\ud83d"),
    ask("a method that is no text", 7),
    ask("a method of a newer revision", "server/discover"),
    ask("ping", "ping"),
    *(ask(f"id {id_!r}", "ping", id_=id_) for id_ in (0, -1, 2**70, "", "é\u2028😀", "1")),
    Probe("an id twice", b"\n".join([ask("", "ping", id_="twice").line] * 2), "twice"),
    *(ask(f"params {params!r}", "ping", params) for params in ([], [1], "x", 7)),
    ask("ping with half a character", "ping", {"a": ["\ud83d"]}),
    ask("ping with more than it takes", "ping", {"a": 1, "_meta": {"b": 2}}),
    *(ask(f"ping with a meta of {meta!r}", "ping", {"_meta": meta}) for meta in NO_OBJECTS),
    ask("an envelope of the newest revision in a session of an older one", "tools/list", ENVELOPE),
    ask("tools/list with a cursor", "tools/list", {"cursor": "x"}),
    ask("tools/list with a cursor that is no text", "tools/list", {"cursor": 7}),
    ask("prompts/list", "prompts/list"),
    *(ask(f"a prompt called {name!r}", "prompts/get", {"name": name}) for name in ("init", "other", None, 7)),
    ask("a prompt of no name", "prompts/get", {}),
    ask("a prompt with arguments", "prompts/get", {"name": "init", "arguments": {"a": "b"}}),
    Probe("jsonrpc 1.0", b'{"jsonrpc":"1.0","id":"j1","method":"ping"}', "j1"),
    Probe("no jsonrpc", b'{"id":"j2","method":"ping"}', "j2"),
    Probe("a key twice", b'{"jsonrpc":"2.0","id":"k1","id":"k2","method":"ping"}', "k2"),
    Probe("bytes that are no UTF-8", b'{"jsonrpc":"2.0","id":"b","method":"ping","params":{"a":"\xff"}}', "b"),
    Probe("a line that ends as Windows ends it", ask("", "ping", id_="crlf").line + b"\r", "crlf"),
    Probe(
        "a nesting of 300",
        b'{"jsonrpc":"2.0","id":300,"method":"ping","params":{"a":%b%b}}' % (b"[" * 300, b"]" * 300),
        300,
    ),
    Probe("both a request and an answer", b'{"jsonrpc":"2.0","id":"both","method":"ping","result":{}}', "both"),
)
LINES = (
    raw("a word", "word"),
    raw("a number", "7"),
    raw("null", "null"),
    raw("an empty object", "{}"),
    raw("half a line", '{"jsonrpc":"2.0",'),
    raw("a byte order mark", b"\xef\xbb\xbf" + ask("", "ping").line),
    raw("UTF-16", ask("", "ping").line.decode().encode("utf-16-le")),
    raw("a NUL", b"\0"),
    raw("a nesting of 100000", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000),
    raw("a huge line", b"x" * (REQUEST_BYTES_MAX + 1)),
    raw("blank lines", b"\n \n\t\r\n"),
    *(
        raw(f"an id of {id_}", f'{{"jsonrpc":"2.0","id":{id_},"method":"ping"}}')
        for id_ in ("null", "true", "1.5", "[]", '"\\ud83d"')
    ),
    raw("an answer to nothing", '{"jsonrpc":"2.0","id":1,"result":{}}'),
    raw("an error to nothing", '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}'),
    note("an unknown notification", "no/such", {"x": 1}),
    note("a notification with half a character", "no/such", {"x": "\ud83d"}),
    raw("a notification with params that are no object", '{"jsonrpc":"2.0","method":"x","params":[1]}'),
    note("a cancellation of nothing", CANCELLED, {"requestId": "no such"}),
    note("a cancellation without an id", CANCELLED, {}),
    note("a cancellation of a list", CANCELLED, {"requestId": [1]}),
)
CALLS = (
    ask("an unknown tool", "tools/call", {"name": "pst", "arguments": {}}),
    ask("a tool of no name", "tools/call", {"arguments": {}}),
    ask("a call without params", "tools/call"),
    *(ask(f"a tool called {name!r}", "tools/call", {"name": name}) for name in (None, 7, ["post"], "\ud83d")),
    *(
        ask(f"arguments of {value!r}", "tools/call", {"name": "list_channels", "arguments": value})
        for value in NO_OBJECTS
    ),
    ask("no arguments", "tools/call", {"name": "list_channels"}),
    ask(
        "a call with more than it takes",
        "tools/call",
        {"name": "list_channels", "arguments": {"as": "ann"}, "task": {}, "x": 1},
    ),
    *(
        ask(
            f"a progress token of {token!r}",
            "tools/call",
            {"name": "list_channels", "arguments": {"as": "ann"}, "_meta": {"progressToken": token}},
        )
        for token in TOKENS
    ),
    Probe(
        "an argument of NaN",
        ask("", "tools/call", {"name": "post", "arguments": {"a": float("nan")}}, id_="nan").line,
        "nan",
        awaited=False,
    ),
    call("bob", "register", {"name": "bob", "context": "elsewhere"}),
    call(
        "a post",
        "post",
        {"as": "bob", "channel": "general", "content": 'to @ann: "é😀\u2028\x85\\ \n', "metadata": {"k": "v"}},
    ),
    call("a memory", "post", {"as": "bob", "channel": "memory", "content": "a fact about POL-358", "label": "fact"}),
    call("a batch handed out", "receive", {"as": "ann"}),
    call("a batch handed out again", "receive", {"as": "ann"}),
    call("a search", "search", {"as": "ann", "query": "POL-358"}),
    call("a search in vain", "search", {"as": "ann", "query": "nothing of the kind"}),
)
WAITS = (
    call("cyd", "register", {"name": "cyd"}),
    Probe(
        "a wait that is cancelled",
        b"\n".join(
            [
                call("wait", "receive", {"as": "cyd", "wait_seconds": 20}).line,
                note("", CANCELLED, {"requestId": "wait"}).line,
            ]
        ),
        "wait",
        awaited=False,
    ),
    call("after it", "receive", {"as": "cyd"}),
    Probe(
        "a wait that is cancelled by an id that only looks the same",
        b"\n".join(
            [
                ask("", "tools/call", {"name": "receive", "arguments": {"as": "cyd", "wait_seconds": 1}}, id_=77).line,
                note("", CANCELLED, {"requestId": "77"}).line,
            ]
        ),
        77,
        awaited=False,
    ),
    call("a wait that runs out, after that", "receive", {"as": "cyd", "wait_seconds": 2}),
)

GIVEN: dict[str, Any] = {"as": "ann", "channel": "general", "name": "probe", "content": "x", "query": "fact", "id": 1}
"""What stands for an argument that a tool requires."""

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 7.5, 2**70, "", " ", "7", "no such", "x" * 3000, "a/b", "\ud83d", "\u202e", "e\u0301"),
    *([], [1], ["general", "\ud83d"], {}, {"a": 1}, {"\ud83d": "a"}, [[[]]]),
)


def of_tool(tool: tools.Tool) -> Iterator[Probe]:
    """Every argument missing, unknown, and with every odd value."""
    given = {name: GIVEN[name] for name in tool.schema.get("required", ())}
    for name in given:
        rest = {other: given[other] for other in given if other != name}
        yield call(f"{tool.name} without {name}", tool.name, rest)
    yield call(f"{tool.name} with an argument too many", tool.name, given | {"chanel": "general", "as": "ann"})
    yield call(f"{tool.name} with half a name", tool.name, given | {"\ud83d": 1})
    for name in tool.schema["properties"]:
        for number, value in enumerate(ODD):
            yield call(f"{tool.name} with {name} {number}", tool.name, given | {name: value})


def session() -> list[Probe]:
    """All probes, in their order."""
    revisions = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    probes = [*BEFORE, *(probe for revision in revisions for probe in of_revision(revision)), *MESSAGES, *LINES, *CALLS]
    probes += [probe for tool in tools.TOOLS for probe in of_tool(tool)]
    probes += WAITS
    assert len({probe.name for probe in probes}) == len(probes)
    return probes


def converse(server: RawServer, probes: list[Probe]) -> Answers:
    """What a server answers to each probe, by its name; an empty list for silence."""
    heard: Answers = {}
    nameless: list[Any] = []

    def listen(key: str) -> None:
        while not heard.get(key):
            keep(server.next())

    def keep(message: Any) -> None:  # noqa: ANN401 - JSON
        entries = message if isinstance(message, list) else [message]
        ids = [entry["id"] for entry in entries if entry["id"] is not None]
        if ids:
            ordered = sorted(entries, key=lambda entry: str(entry["id"]))
            heard.setdefault(json.dumps(ids[0]), []).append(ordered if isinstance(message, list) else message)
        elif message["error"]["message"] == "this batch is empty":
            heard[NAMELESS] = [message]
        else:
            nameless.append(message)

    answers: Answers = {}
    for probe in probes:
        server.send(probe.line + b"\n")
        if probe.awaited and probe.id is not None:
            listen(json.dumps(probe.id))
        else:
            server.send(NAMELESS.encode() + b"\n")
            listen(NAMELESS)
            del heard[NAMELESS]
        answers[probe.name] = nameless[:]
        nameless.clear()
    server.close_stdin()
    for message in server.rest():
        keep(message)
    assert nameless == []
    return {probe.name: answers[probe.name] + heard.get(json.dumps(probe.id), []) for probe in probes}


_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "JOURNAL"),
    (re.compile(r"\b([0-9a-f]{12}|[0-9a-f]{24}|[0-9a-f]{64})\b"), "TOKEN"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"), "TIME"),
    (re.compile(r'(\\*"age\\*": ?\\*")[^"\\]*'), r"\1AGE"),
    (re.compile(r"AGENTBUS_DATA_DIR=\S+"), "AGENTBUS_DATA_DIR=DATA"),
)


def normalised(value: object) -> Any:  # noqa: ANN401 - JSON
    """The same without tokens, times, ages and places, which no two sessions share."""
    text = json.dumps(value)
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return json.loads(text)


def said(answers: list[Any]) -> str:
    """What a door said, in a few words."""
    return " and ".join(map(_said, answers)) or "nothing"


def _said(answer: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(answer, list):
        return f"a batch of {len(answer)}"
    if "error" in answer:
        return f"{answer['error']['code']} {answer['error']['message']}"
    if answer["result"].get("isError"):
        return f"the refusal {json.loads(answer['result']['content'][0]['text'])['code']}"
    return "a result"
