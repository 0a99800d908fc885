"""The tool table served through the official MCP SDK: its messages, its server, its revisions of the protocol.

It knows no descriptors and no signals (stdio.py). What the SDK's types cannot read, the SDK would leave unanswered:
such a line is answered by the plain door (door.py). Importing this takes a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, create_memory_object_stream, from_thread, sleep_forever, to_thread
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import (
    CLIENT_INFO_META_KEY,
    CallToolResult,
    GetPromptResult,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    ListPromptsResult,
    ListToolsResult,
    PromptsCapability,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
    jsonrpc_message_adapter,
)

from agentbus import __version__, jsonrpc
from agentbus.control import Call
from agentbus.door import Door
from agentbus.limits import CALLS_IN_FLIGHT_MAX
from agentbus.methods import Methods, RefusedError
from agentbus.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import NoReturn, Self, TypeAlias, TypeVar

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.types import CallToolRequestParams, ContentBlock, GetPromptRequestParams

    from agentbus.methods import Object, Outcome, Progress
    from agentbus.service import Service

    Context: TypeAlias = ServerRequestContext[Any, Any]

    Result = TypeVar("Result")

_CANCELLED = "notifications/cancelled"


class SdkDoor:
    """One client's connection, as door.py's is, with the SDK's server behind it: an event loop in a thread of its own.

    ``take`` is for one thread and never waits. Lines go out by ``write``, from threads of this door.
    """

    def __init__(self, service: Service, write: Callable[[bytes], None]) -> None:
        self._service = service
        self._methods = Methods(service)
        self._plain = Door(self._methods, write)
        self._asked = _Asked()
        self._server = _Server(self._methods, service.instructions(), self._asked, self._cancel)
        self._outbox = _Outbox(write, self._asked.end)
        self._inbox, self._coming = create_memory_object_stream[SessionMessage | Exception](math.inf)
        self._running = threading.Event()
        _pass_on_complaints(service)
        threading.Thread(target=self._run, name="sdk", daemon=True).start()
        self._running.wait()

    def take(self, line: bytes | None) -> None:
        """Have one line answered; None stands for one that is too long."""
        message = None if line is None else _read(line)
        if message is None:
            self._plain.take(line)
            return
        if isinstance(message, JSONRPCRequest):
            self._asked.begin()
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._plain.take(line)  # the call may be one of those
        self._send(message)

    def cancel_calls(self) -> None:
        """Nobody waits for any answer any more."""
        self._plain.cancel_calls()
        self._have(self._server.cancel_calls)

    def drain(self, deadline: float) -> bool:
        """Wait until every request is done with, at most until ``deadline`` (monotonic); whether it is."""
        return self._asked.wait(deadline) and self._plain.drain(deadline)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001  # the outermost shell: of the loop, and so of this door
            self._service.report("sdk", error)
        os.kill(os.getpid(), signal.SIGTERM)  # a server that hears nothing any more must not look alive

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running.set()
        await self._server.serve(self._coming, self._outbox)

    def _send(self, message: JSONRPCMessage) -> None:
        metadata = ServerMessageMetadata(on_request_unanswered=self._outbox.leave)
        self._have(lambda: self._inbox.send_nowait(SessionMessage(message, metadata)))

    def _have(self, done: Callable[[], None]) -> None:
        """Have something done in the loop."""
        with suppress(RuntimeError):  # it has ended, and so will this process
            self._loop.call_soon_threadsafe(done)

    def _cancel(self, id_: jsonrpc.Id | None) -> None:
        """As if the client had."""
        self._send(JSONRPCNotification(jsonrpc="2.0", method=_CANCELLED, params={"requestId": id_}))


def _read(line: bytes) -> JSONRPCMessage | None:
    """A line as the SDK's server reads it; None where it reads nothing."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


class _Asked:
    """Counts what was asked and is not done with, and the threads at work for it: some go on after a cancel."""

    def __init__(self) -> None:
        self._open = 0
        self._changed = threading.Condition()

    def begin(self) -> None:
        with self._changed:
            self._open += 1

    def end(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def wait(self, deadline: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, max(0.0, deadline - time.monotonic()))


class _Outbox:
    """The SDK's way to the client. A client that does not read keeps the thread that writes, and never the loop."""

    def __init__(self, write: Callable[[bytes], None], on_answered: Callable[[], None]) -> None:
        self._write = write
        self._on_answered = on_answered
        self._writer = Workers("sdk writer", 1)  # one: what is said first goes out first

    async def send(self, item: SessionMessage) -> None:
        is_answer = not isinstance(item.message, JSONRPCNotification)
        # Our encoder: the SDK's writes what some clients take for the end of a line.
        line = jsonrpc.encode(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

        def run() -> None:
            self._write(line)
            if is_answer:
                self._on_answered()

        self._writer.submit(run)

    async def leave(self) -> None:
        """A request was cancelled, and is not answered."""
        self._on_answered()

    async def aclose(self) -> None:
        """Nothing to close: stdout is the process's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Server:
    """The SDK's server around our methods. Everything in it but the calls themselves runs in the loop's thread."""

    def __init__(
        self, methods: Methods, instructions: str, asked: _Asked, cancel: Callable[[jsonrpc.Id | None], None]
    ) -> None:
        self._methods = methods
        self._asked = asked
        self._cancel = cancel
        self._calls: set[Call] = set()
        self._sdk: Server[Any] = Server(
            "agentbus",
            title="agentbus",
            version=__version__,
            instructions=instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        self._sdk.middleware.append(self._meet)

    async def serve(self, coming: Any, outbox: _Outbox) -> None:  # noqa: ANN401  # the SDK's stream, by any name
        """Answer what comes, for ever."""
        self._threads = CapacityLimiter(CALLS_IN_FLIGHT_MAX)
        options = self._sdk.create_initialization_options()
        options.capabilities = ServerCapabilities(tools=ToolsCapability(), prompts=PromptsCapability())
        await self._sdk.run(coming, outbox, options)

    def cancel_calls(self) -> None:
        """Cancel every call in flight."""
        for call in self._calls:
            call.cancel()

    async def _meet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Note who the client is: it says so in the handshake, or, since 2026-07-28, with each request."""
        opens = ctx.method == "initialize"
        info = (ctx.params or {}).get("clientInfo") if opens else (ctx.meta or {}).get(CLIENT_INFO_META_KEY)
        if info is not None:
            self._methods.meet(info)
        result = await call_next(ctx)
        if opens and isinstance(result, dict):
            self._methods.revision = result["protocolVersion"]  # for the plain door, which knows which have batches
        if opens or ctx.method == "server/discover":
            threading.Thread(target=self._methods.warm, name="warm", daemon=True).start()
        return result

    async def _list_tools(self, _: Context, __: object) -> ListToolsResult:
        return ListToolsResult.model_validate(await self._ask("tools/list", {}), by_name=False)

    async def _list_prompts(self, _: Context, __: object) -> ListPromptsResult:
        return ListPromptsResult.model_validate(await self._ask("prompts/list", {}), by_name=False)

    async def _get_prompt(self, _: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return GetPromptResult.model_validate(await self._ask("prompts/get", {"name": params.name}), by_name=False)

    async def _ask(self, method: str, params: Object) -> Object:
        return await self._run(method, lambda: self._methods.ask(method, params))

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        call, given = Call(), {"name": params.name, "arguments": params.arguments}
        progress = _progress_sender(context)
        self._calls.add(call)
        try:
            result = await self._run("tools/call", lambda: _render(self._methods.call_tool(given, call, progress)))
        except asyncio.CancelledError:
            call.cancel()  # the thread goes on until it sees this, or has committed
            raise
        finally:
            self._calls.discard(call)
        if result is None:  # the process ends: not the client has cancelled it, but we
            await self._leave(context)
        return result

    async def _leave(self, context: Context) -> NoReturn:
        self._cancel(context.request_id)
        while True:
            await sleep_forever()

    async def _run(self, method: str, work: Callable[[], Result]) -> Result:
        def run() -> Result:
            self._asked.begin()
            try:
                return work()
            finally:
                self._asked.end()

        try:
            return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)
        except RefusedError as refused:
            raise MCPError(refused.code, refused.text) from None
        except Exception as error:  # noqa: BLE001  # the outermost shell: a client must not wait for ever
            failed = self._methods.fail(method, error)
            raise MCPError(failed.code, failed.text) from None


def _progress_sender(context: Context) -> Progress | None:
    if "progress_token" not in (context.meta or {}):
        return None
    return lambda waited_s: from_thread.run(context.session.report_progress, waited_s)


def _render(outcome: Outcome | None) -> CallToolResult | None:
    if outcome is None:
        return None
    result, failed = outcome
    content: list[ContentBlock] = [TextContent(type="text", text=jsonrpc.render_json(result))]
    if failed:  # without structuredContent, as in methods.py
        return CallToolResult(content=content, is_error=True)
    return CallToolResult(content=content, structured_content=result)


class _Complaints(logging.Handler):
    """Has the SDK's complaints go where ours go: Python would print them, with what clients and peers have said."""

    def __init__(self, service: Service) -> None:
        super().__init__(logging.WARNING)
        self._service = service

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            self._service.report("sdk", error)
        else:
            self._service.complain(f"sdk: {record.getMessage()}")


def _pass_on_complaints(service: Service) -> None:
    for name in ("mcp", "asyncio"):
        logger = logging.getLogger(name)
        logger.addHandler(_Complaints(service))
        logger.propagate = False
