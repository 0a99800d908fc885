"""What MCP's methods answer, as objects for any door and as lines for ours. It knows no threads and no descriptors."""

from __future__ import annotations

from agentbus import __version__, jsonrpc
from agentbus.control import Cancelled, Control
from agentbus.errors import INTERNAL, BusError, render_value
from agentbus.limits import ERROR_VALUE_CHARS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from agentbus.control import Call
    from agentbus.service import Service, Table
    from agentbus.tools import Tool

    Object: TypeAlias = dict[str, Any]
    Notify: TypeAlias = Callable[[bytes], None]
    Progress: TypeAlias = Callable[[float], None]
    Outcome: TypeAlias = tuple[Object, bool]  # what a tool answers, and whether that is the envelope of a failure

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_INIT_PROMPT = {
    "name": "init",
    "title": "Set up agentbus",
    "description": "Agentbus: how to set up this repository, and the protocol of a session.",
}


class RefusedError(Exception):
    """A request that MCP, not the bus, turns down; ``code`` is JSON-RPC's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Methods:
    """The answers of one server to one client.

    Attributes:
        revision: of MCP, as agreed in ``initialize``; None before.
    """

    def __init__(self, service: Service) -> None:
        self.revision: str | None = None
        self._service = service
        self._client: str | None = None
        self._handlers: dict[str, Callable[[Object], Object]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": self._list_tools,
            "prompts/list": lambda _: {"prompts": [_INIT_PROMPT]},
            "prompts/get": self._get_prompt,
        }

    def warm(self) -> None:
        """Import the table and fold the journal, so that the first call finds both ready. Never raises."""
        try:
            self._service.warm(self._client)
        except Exception as error:  # noqa: BLE001  # the outermost shell; each call says the same
            self._service.report("warm", error)

    def answer(self, request: jsonrpc.Request, call: Call, notify: Notify) -> bytes | None:
        """The line that answers ``request``; None if it was cancelled before anything was done. Never raises.

        Args:
            request: of any method.
            call: where the cancellation of this request comes in.
            notify: takes the lines that say how a long call goes on.
        """
        try:
            _check_text(request)
            if request.method == "tools/call":
                outcome = self.call_tool(request.params, call, _progress_sender(request, notify))
                result = None if outcome is None else _render_outcome(outcome)
            else:
                result = jsonrpc.encode(self.ask(request.method, request.params))
        except RefusedError as refused:
            return jsonrpc.render_error(request.id, refused.code, refused.text)
        except Exception as error:  # noqa: BLE001  # the outermost shell: a client must not wait for ever
            failed = self.fail(request.method, error)
            return jsonrpc.render_error(request.id, failed.code, failed.text)
        return None if result is None else jsonrpc.render_result(request.id, result)

    def meet(self, client_info: object) -> None:
        """Know the client by what it says of itself; before the first call, which opens the host in its name."""
        self._client = _render_client(client_info)

    def ask(self, method: str, params: Object) -> Object:
        """The result of a method other than tools/call.

        Raises:
            RefusedError: there is no such method, or it is asked for something that is not there.
        """
        handler = self._handlers.get(method)
        if handler is None:
            raise RefusedError(jsonrpc.METHOD_NOT_FOUND, f"unknown method {render_value(method)}")
        return handler(params)

    def call_tool(self, params: Object, call: Call, progress: Progress | None) -> Outcome | None:
        """One call of one tool; None if it was cancelled before anything was done.

        Args:
            params: of tools/call: a name and arguments, of which nothing is known yet.
            call: where the cancellation comes in.
            progress: hears how long the call has waited; None if the client did not ask for that.

        Raises:
            RefusedError: there is no such tool.
        """
        from journal import JournalError  # noqa: PLC0415  # heavy: initialize is answered without it

        table = self._service.table()
        name, arguments = _parse_call(params, table)
        try:
            host = self._service.host(self._client)
            if (thread := _thread_of(params)) is not None:
                host.bus.owners.serve(thread)
            control = Control(host.bus, progress)
            call.attach(control)
            return table.call(name, arguments, host, control), False
        except Cancelled:
            return None
        except (BusError, JournalError) as error:
            return table.render_error(error), True
        except Exception as error:  # noqa: BLE001  # the outermost shell: a model can act on an envelope only
            self._service.report(f"tools/call {name}", error)
            text = f"{name} failed inside agentbus; before you repeat it, look whether it took effect"
            return {"code": INTERNAL, "message": text, "retryable": False}, True

    def fail(self, method: str, error: Exception) -> RefusedError:
        """Log a bug that left a request unanswered; what to say to the client instead."""
        self._service.report(method, error)
        return RefusedError(jsonrpc.INTERNAL_ERROR, "agentbus failed; see its log")

    def _initialize(self, params: Object) -> Object:
        asked = params.get("protocolVersion")
        self.revision = asked if asked in REVISIONS else REVISIONS[-1]
        self.meet(params.get("clientInfo"))
        return {
            "protocolVersion": self.revision,
            "capabilities": {"tools": {}, "prompts": {}},
            "serverInfo": {"name": "agentbus", "title": "agentbus", "version": __version__},
            "instructions": self._service.instructions(),
        }

    def _list_tools(self, _: Object) -> Object:
        return {"tools": [_render_tool(tool) for tool in self._service.table().TOOLS]}

    def _get_prompt(self, params: Object) -> Object:
        if params.get("name") != _INIT_PROMPT["name"]:
            text = f"unknown prompt {render_value(params.get('name'))}; there is one: {_INIT_PROMPT['name']}"
            raise RefusedError(jsonrpc.INVALID_PARAMS, text)
        message = {"role": "user", "content": {"type": "text", "text": self._service.setup_text()}}
        return {"description": _INIT_PROMPT["description"], "messages": [message]}


def _check_text(request: jsonrpc.Request) -> None:
    # The arguments of a tool are the table's to check: its refusal is one that a model can read.
    if request.not_text and (request.method, request.not_text[0]) != ("tools/call", "arguments"):
        where = render_value(".".join(request.not_text))
        text = f"params {where} is not text: it holds half of a surrogate pair, or bytes that are not UTF-8"
        raise RefusedError(jsonrpc.INVALID_PARAMS, text)


def _render_client(info: object) -> str | None:
    """The client as the journal shall name it, such as ``codex 0.171.0``."""
    if not isinstance(info, dict):
        return None
    words = [word for word in (info.get("name"), info.get("version")) if isinstance(word, str)]
    text = "".join(char for char in " ".join(words) if char.isprintable())
    return text[:ERROR_VALUE_CHARS_MAX].strip() or None


def _render_tool(tool: Tool) -> Object:
    row = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.schema,
    }
    if tool.hints:
        row["annotations"] = tool.hints
    if tool.meta:
        row["_meta"] = tool.meta
    return row


def _parse_call(params: Object, table: Table) -> tuple[str, Object]:
    name, arguments = params.get("name"), params.get("arguments")
    names = [tool.name for tool in table.TOOLS]
    if not isinstance(name, str) or name not in names:
        text = f"unknown tool {render_value(name)}; there are {', '.join(names)}"
        raise RefusedError(jsonrpc.INVALID_PARAMS, text)
    if not isinstance(arguments, dict | None):
        raise RefusedError(jsonrpc.INVALID_PARAMS, "arguments must be an object")
    return name, arguments or {}


def _thread_of(params: Object) -> str | None:
    """Which of the client's sessions calls, where it says so, as Codex does; its hooks are told the same id."""
    meta = params.get("_meta")
    thread = meta.get("threadId") if isinstance(meta, dict) else None
    return thread if isinstance(thread, str) and len(thread) <= ERROR_VALUE_CHARS_MAX else None


def _progress_sender(request: jsonrpc.Request, notify: Notify) -> Progress | None:
    meta = request.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if not jsonrpc.is_id(token):
        return None

    def send(waited_s: float) -> None:
        params = {"progressToken": token, "progress": waited_s}
        notify(jsonrpc.render_notification("notifications/progress", params))

    return send


def _render_outcome(outcome: Outcome) -> bytes:
    result, failed = outcome
    return _render_tool_error(result) if failed else render_tool_result(result)


def render_tool_result(result: Object) -> bytes:
    """Both forms of a result from one encoding: clients show the model one or the other."""
    data = jsonrpc.render_json(result)
    text = jsonrpc.encode(data)  # what the client decodes is as long as results.py counted it
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}' % (text, jsonrpc.escape_breaks(data))


def _render_tool_error(envelope: Object) -> bytes:
    # No structuredContent: clients show it in place of the text.
    content = {"type": "text", "text": jsonrpc.encode(envelope).decode()}
    return jsonrpc.encode({"content": [content], "isError": True})
