"""A stand-in for the model behind a client, on this machine: it says what a test scripted, and keeps what it was shown.

It speaks the four APIs that the clients here use: Anthropic's messages, OpenAI's responses and chat completions, and
Google's generateContent. It knows no client but by the way each names our tools.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Answer: TypeAlias = dict[str, Any] | list[dict[str, Any] | str]
    Render: TypeAlias = Callable[["Say | Call | Other", dict[str, Any]], Answer]

TOKEN = "$TOKEN"  # noqa: S105  # no password: the last batch's token that the model was shown
WAIT_S = 60.0
AGENT = "$AGENT"
"""The subagent that the model was told of last."""
_SHOWN = {TOKEN: r'token\\*"\s*:\s*\\*"([0-9a-f]{8,})', AGENT: r'agent_id\\*"\s*:\s*\\*"([0-9a-f-]{8,})'}


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something, and its turn ends."""

    text: str


class Call:
    """The model calls a tool of ours; ``as_`` stands for ``as``."""

    def __init__(self, tool: str, /, **arguments: object) -> None:
        self.tool = tool
        self.arguments = {name.rstrip("_"): value for name, value in arguments.items()}


@dataclass(frozen=True, slots=True)
class Other:
    """The model calls a tool of the client's own; of one in a namespace as ``space.name``."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class After:
    """Something happens while the model thinks; then it takes a step."""

    work: Callable[[], object]
    step: Say | Call | Other


@dataclass(frozen=True, slots=True)
class Shown:
    """One request: when, to which API, and all that the model was shown."""

    at: float
    path: str
    body: dict[str, Any]
    text: str = field(repr=False)

    @property
    def tools(self) -> list[str]:
        """The names of the tools it was offered, as the client writes them; those of a namespace as ``space.name``."""
        return [name for tool in self.body.get("tools") or [] for name in _names(tool)]


def _names(tool: dict[str, Any]) -> list[str]:
    if tool.get("type") == "namespace":
        return [f"{tool['name']}.{each['name']}" for each in tool["tools"]]
    if "functionDeclarations" in tool:
        return [each["name"] for each in tool["functionDeclarations"]]
    return [str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))]


class Model:
    """Answers each request of an agent with the next step; with "done" when there is none left.

    Requests without tools, for titles and summaries, take no step. Every session of every client that uses it draws
    from the same script, but those of whom `others` tells.
    """

    def __init__(self, *steps: Say | Call | Other | After) -> None:
        self._steps = list(steps)
        self._others: tuple[Callable[[Shown], bool], list[Say | Call | Other | After]] = (lambda _: False, [])
        self._shown: list[Shown] = []
        self._changed = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def then(self, *steps: Say | Call | Other | After) -> None:
        """Do these as well, at the requests to come."""
        with self._changed:
            self._steps += steps

    def others(self, is_other: Callable[[Shown], bool], *steps: Say | Call | Other | After) -> None:
        """Do these at the requests of which that is true, such as a subagent's."""
        self._others = (is_other, list(steps))

    @property
    def shown(self) -> list[Shown]:
        """Every request of an agent so far, in order; those without tools left out."""
        with self._changed:
            return [each for each in self._shown if each.body.get("tools")]

    def until(self, is_it: Callable[[Shown], bool], wait_s: float = WAIT_S) -> Shown:
        """The first request of an agent of which that is true; waits for it."""
        found: list[Shown] = []

        def look() -> bool:
            found.extend(each for each in self._shown if each.body.get("tools") and is_it(each))
            return bool(found)

        with self._changed:
            if not self._changed.wait_for(look, wait_s):
                raise AssertionError(f"not shown in {wait_s} s, in {len(self._shown)} requests")
        return found[0]

    def take(self, path: str, body: dict[str, Any]) -> Say | Call | Other:
        """Note a request; what to answer."""
        text = json.dumps(body, ensure_ascii=False)
        with self._changed:
            shown = Shown(time.monotonic(), path, body, text)
            self._shown.append(shown)
            self._changed.notify_all()
            if not body.get("tools"):
                return Say("{}")
            is_other, others = self._others
            steps = others if is_other(shown) else self._steps
            step = steps.pop(0) if steps else Say("done")
        if isinstance(step, After):
            step.work()
            step = step.step
        match step:
            case Call():
                return Call(step.tool, **_filled(step.arguments, text))
            case Other():
                return Other(step.tool, _filled(step.arguments, text))
        return step


def _filled(arguments: dict[str, Any], text: str) -> dict[str, Any]:
    """Arguments with what the model was shown last in the place of what stands for it."""
    given = json.dumps(arguments)
    for mark, pattern in _SHOWN.items():
        given = given.replace(mark, (re.findall(pattern, text) or ["none"])[-1])
    filled: dict[str, Any] = json.loads(given)
    return filled


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: Model) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:  # nobody reads it
        pass

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        self._send({"data": [], "models": []})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        render = next((render for end, render in _RENDER if path.endswith(end)), None)
        if render is None:
            self._send({"totalTokens": 10, "input_tokens": 10})
            return
        assert isinstance(self.server, _Server)
        answer = render(self.server.model.take(path, body), body)
        if isinstance(answer, dict):
            self._send(answer)
        else:
            self._stream(answer)

    def _send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: list[dict[str, Any] | str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.close_connection = True


def _split(step: Say | Call | Other, prefix: str) -> tuple[str, dict[str, Any]] | None:
    """The tool's name as the client writes it, and its arguments; None if the model only says something."""
    match step:
        case Say():
            return None
        case Call():
            return f"{prefix}{step.tool}", step.arguments
        case Other():
            return step.tool, step.arguments


def _messages(step: Say | Call | Other, body: dict[str, Any]) -> Answer:
    called = _split(step, "mcp__agentbus__")
    if called is None:
        assert isinstance(step, Say)
        block: dict[str, Any] = {"type": "text", "text": step.text}
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}
    else:
        name, arguments = called
        block = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": name, "input": arguments}
        empty, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    ends = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}
    message = {"id": f"msg_{time.monotonic_ns()}", "type": "message", "role": "assistant", "model": "stand-in"}
    usage = {"usage": {"input_tokens": 10, "output_tokens": 1}}
    if not body.get("stream"):
        return {**message, "content": [block], **ends, **usage}
    begun: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None, **usage}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ends, **usage},
        {"type": "message_stop"},
    ]


def _responses(step: Say | Call | Other, _: dict[str, Any]) -> Answer:
    called, id_ = _split(step, ""), time.monotonic_ns()
    if called is None:
        assert isinstance(step, Say)
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        item = {"type": "message", "id": f"m_{id_}", "role": "assistant", "status": "completed", "content": content}
    else:
        name, arguments = called
        item = {"type": "function_call", "id": f"fc_{id_}", "call_id": f"call_{id_}", "name": name}
        item |= {"arguments": json.dumps(arguments), "status": "completed"}
        space = "mcp__agentbus" if isinstance(step, Call) else name.rpartition(".")[0]
        item |= {"name": name.rpartition(".")[2]} | ({"namespace": space} if space else {})
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
    return [
        {"type": "response.created", "response": {"id": f"resp_{id_}"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{id_}", "output": [item], "usage": usage}},
    ]


def _completions(step: Say | Call | Other, _: dict[str, Any]) -> Answer:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    called = _split(step, "agentbus_")
    if called is None:
        assert isinstance(step, Say)
        return [chunk({"role": "assistant", "content": step.text}), chunk({}, "stop"), "[DONE]"]
    name, arguments = called
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}
    return [chunk({"role": "assistant", "tool_calls": [call]}), chunk({}, "tool_calls"), "[DONE]"]


def _generate(step: Say | Call | Other, _: dict[str, Any]) -> dict[str, Any]:
    called = _split(step, "mcp_agentbus_")
    if called is None:
        assert isinstance(step, Say)
        part: dict[str, Any] = {"text": step.text}
    else:
        part = {"functionCall": {"name": called[0], "args": called[1]}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


def _stream_generate(step: Say | Call | Other, body: dict[str, Any]) -> Answer:
    return [_generate(step, body)]


_RENDER: tuple[tuple[str, Render], ...] = (
    ("/v1/messages", _messages),
    ("/responses", _responses),
    ("/chat/completions", _completions),
    (":streamGenerateContent", _stream_generate),
    (":generateContent", _generate),
)
