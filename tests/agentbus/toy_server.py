"""A server around a table of toy tools: what a door does, without a journal. The tests run it as a process."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agentbus.control import Cancelled
from agentbus.errors import VALIDATION, BusError
from agentbus.service import Service
from agentbus.stdio import open_plain, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.log import Log
    from agentbus.service import Table
    from agentbus.stdio import AnyDoor


class ToyHost:
    """Its own bus, too. Says on stderr what is done with it."""

    def __init__(self, client: str | None, how: str) -> None:
        self.bus = self
        self.anchor = "1:toy"
        self.client = client
        self.interrupted = threading.Event()
        self.waits_ended = threading.Event()
        self._how = how
        say("open", client)

    def interrupt(self) -> None:
        self.interrupted.set()

    def end_waits(self) -> None:
        self.waits_ended.set()

    def warm(self) -> None:
        say("warm")
        if self._how == "warm breaks":
            raise RuntimeError("a private word")

    def close(self, deadline: float) -> None:
        say("close", deadline > time.monotonic())
        if self._how == "close breaks":
            raise RuntimeError("a private word")
        if self._how == "close hangs":
            threading.Event().wait()


def call(name: str, arguments: dict[str, Any], host: ToyHost, control: Control) -> dict[str, Any]:
    say("called", name)
    if name == "echo":
        return arguments
    if name == "wait":
        if control.progress:
            control.progress(0.5)
        while not host.interrupted.wait(0.01):
            if host.waits_ended.is_set():
                raise Cancelled
        control.check()
    if name == "work":  # as one past its commit: no cancellation stops it
        host.interrupted.wait(arguments["seconds"])
        return {"cancelled": control.cancelled}
    if name == "hang":
        threading.Event().wait()
    if name == "object":
        return {"no": object()}
    if name == "refuse":
        raise BusError(VALIDATION, arguments["message"])
    raise RuntimeError("a private word")


def render_error(error: BusError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "retryable": error.retryable}


def make_table() -> Table:
    names = ("echo", "wait", "work", "hang", "object", "refuse", "break")
    tools = [
        SimpleNamespace(name=name, title=name, description="A toy.", schema={"type": "object"}, hints={}, meta=None)
        for name in names
    ]
    tools[0].hints, tools[0].meta = {"readOnlyHint": True}, {"anthropic/alwaysLoad": True}
    return cast("Table", SimpleNamespace(TOOLS=tuple(tools), call=call, render_error=render_error))


def say(*words: object) -> None:
    os.write(2, (" ".join(map(str, words)) + "\n").encode())


def open_sdk(service: Service, write: Callable[[bytes], None]) -> AnyDoor:
    from agentbus.sdk import SdkDoor  # noqa: PLC0415 - as agentbus/cli/mcp.py does

    return SdkDoor(service, write)


def open_sdk_that_breaks(service: Service, write: Callable[[bytes], None]) -> AnyDoor:
    from agentbus import sdk  # noqa: PLC0415 - as above

    async def serve(*_: object) -> None:
        error = ValueError("a private word")
        logging.getLogger("mcp.server").error("a handler raised", exc_info=error)
        raise RuntimeError("a private word")

    sdk._Server.serve = serve  # type: ignore[method-assign,assignment]  # no client can make it raise
    return sdk.SdkDoor(service, write)


def main(how: str = "", engine: str = "stdio") -> None:
    """Serve, and misbehave as ``how`` says."""

    def load_table() -> Table:
        if how == "table breaks":
            raise ImportError("no such module")
        if how == "list modules":
            say("modules", *sorted(sys.modules))
        if how == "print":
            print("not for a client", flush=True)  # noqa: T201 - the point of the test
            os.write(1, b"nor this\n")
        return make_table()

    def open_host(client: str | None) -> tuple[Host, Log]:
        if how == "settings are wrong":
            raise BusError(VALIDATION, "settings: no such key")
        log = SimpleNamespace(
            error=lambda msg, **more: say("log", msg, more["where"], more["error"]), info=lambda *_, **__: None
        )
        return cast("Host", ToyHost(client, how)), cast("Log", log)

    doors = {"stdio": open_plain, "sdk": open_sdk, "sdk that breaks": open_sdk_that_breaks}
    serve(Service(load_table, open_host), os.getppid(), doors[engine])


if __name__ == "__main__":
    main(*sys.argv[1:])
