"""``agentbus demo``: two agents and an auditor, on a throw-away journal. Plays the harnesses; all else is real.

Two `agentbus mcp` servers are driven over stdio by the MCP SDK's client, as a harness does it. What the demo says is
checked against what happened; if it does not hold, the demo ends with exit status 1.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbus.owners import Owners
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client

_ANSWER_WAIT_S = 10.0
_QUESTION = "@api which field holds the total?"
_ANSWER = "@web total_cents, an integer"
_FACT = "orders: total_cents counts cents, total is gone"


class _ClaimError(Exception):
    """Something the demo says did not happen."""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the directory with the journal, and say where it is.")
def demo(*, keep: bool) -> None:
    """Watch two agents and an auditor at work.

    The agents talk, one dies and comes back, and the auditor reads it all from the journal. Takes a few seconds, in
    a directory of its own that is removed at the end; your own bus is not touched.
    """
    import anyio  # noqa: PLC0415 - with the SDK a second of start-up, which --help of all commands must not pay
    from mcp import MCPError  # noqa: PLC0415 - as above

    directory = None
    try:
        directory = Path(tempfile.mkdtemp(prefix="agentbus-demo-"))
        story = _Story(directory)
        anyio.run(story.tell)
        story.audit()
    except (ExceptionGroup, MCPError, OSError, _ClaimError) as error:
        cause = _innermost(error)
        if isinstance(cause, BrokenPipeError):
            raise cause from None  # nobody reads our own output any more
        raise click.ClickException(f"the demo failed: {cause}") from error
    finally:
        if directory and keep:
            click.echo(f"\nKept: {directory}")
        elif directory:
            shutil.rmtree(directory)


def _innermost(error: BaseException) -> BaseException:
    """What went wrong: the SDK's task groups wrap it, once each."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Agent:
    """An agent as its harness plays it: calls tools, shows what it asked and the part of the answer that matters."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    async def call(self, tool: str, show: str = "", **arguments: object) -> dict[str, Any]:
        """Call a tool as this agent; ``show`` names the keys of the answer to print."""
        sent = arguments if tool == "register" else {"as": self.name, **arguments}
        shown = ", ".join(f"{key}={json.dumps(value)}" for key, value in arguments.items())
        _say(f"  {self.name}> {tool}({shown})")
        result = await self.client.call_tool(tool, sent)
        answer: dict[str, Any] = result.structured_content or {}
        _require(not result.is_error, f"{tool} answers, and not {result.content}")
        for key in show.split():
            _require(key in answer, f"{tool} answers with {key}")
            for value in answer[key] if key in ("messages", "hits") else [answer[key]]:
                _say(f"    {key}: {_render(value)}")
        return answer


class _Story:
    """What happens, in order. The directory holds two repositories, the data directory and what servers complain of."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / "data"
        settings = directory / "settings.json"
        settings.write_text("{}")
        self._environ = os.environ | {"AGENTBUS_DATA_DIR": str(self._data), "AGENTBUS_CONFIG": str(settings)}
        self._token = ""

    async def tell(self) -> None:
        """Everything but the audit."""
        _say("Two agents work in two repositories, web and api. Each one's harness runs its own `agentbus mcp`;")
        _say("there is no daemon: the servers share one journal on disk. Here a script plays the harnesses.")
        async with self._server("web", ["general", "memory"]) as web:
            async with self._server("api", ["general", "memory", "deploys"]) as api:
                pid = await self._join(web, api)
                self._create_channel()
                await self._lose(web, api, pid)
            async with self._server("api", ["general", "memory", "deploys"]) as api:
                question = await self._come_back(api)
                await self._answer(web, api, question)
                await self._remember(web, api)

    async def _join(self, web: _Agent, api: _Agent) -> int:
        """Both register; the pid of api's server."""
        _head(
            "1. They join. .local/agentbus.json says which channels each repository keeps; api lists one nobody made."
        )
        await web.call("register", "as subscribed", name="web")
        before = self._servers()
        answer = await api.call("register", "as subscribed subscribe_failed", name="api")
        _require(answer["subscribed"] == ["general", "memory"], "the persistent list is subscribed")
        _require(list(answer["subscribe_failed"]) == ["deploys"], "the missing channel is named")
        _say("  The missing channel is named, and everything else works.")
        started = self._servers() - before
        _require(len(started) == 1, "api has one server of its own")
        return started.pop()

    def _create_channel(self) -> None:
        _head("2. A person makes that channel; api will be subscribed to it when it registers next.")
        self._run("channel", "create", "deploys")

    async def _lose(self, web: _Agent, api: _Agent, pid: int) -> None:
        _head("3. web asks; api is handed the question, and dies before it has dealt with it.")
        answer = await web.call("post", "seq subscribers live addressed", channel="general", content=_QUESTION)
        _require((answer["live"], answer["addressed"]) == (1, ["api"]), "one live subscriber is addressed")
        answer = await api.call("receive", "messages token")
        _require([message["content"] for message in answer["messages"]] == [_QUESTION], "api is handed the question")
        self._token = answer["token"]
        os.kill(pid, signal.SIGKILL)
        _say(f"  $ kill -9 {pid}")

    async def _come_back(self, api: _Agent) -> int:
        """Api again, in a new server; the question's seq."""
        _head("4. api starts again. Nothing was acknowledged, so nothing is lost: same name, same message, same token.")
        answer = await api.call("register", "as resumed subscribed pending", name="api")
        _require((answer["as"], answer["resumed"]) == ("api", True), "api has its own name back")
        _require("deploys" in answer["subscribed"], "the channel that was made is subscribed now")
        answer = await api.call("receive", "messages token redelivered")
        _require((answer["token"], answer["redelivered"]) == (self._token, True), "the batch comes again")
        await api.call("receive", ack=self._token, count=0)
        return int(answer["messages"][0]["seq"])

    async def _answer(self, web: _Agent, api: _Agent, question: int) -> None:
        _head("5. A subagent of api answers under a name of its own; web gets the answer and acknowledges it.")
        subagent = _Agent(api.client, "api/schema")
        await api.call("register", "as", name="schema", parent="api")
        await subagent.call("post", "seq addressed", channel="general", content=_ANSWER, reply_to=question)
        answer = await web.call("receive", "messages token", wait_seconds=5)
        told = [(message["from"], message["content"]) for message in answer["messages"]]
        _require(told == [("api/schema", _ANSWER)], "web gets the subagent's answer")
        await web.call("receive", ack=answer["token"], count=0)

    async def _remember(self, web: _Agent, api: _Agent) -> None:
        _head("6. What should outlast the chat goes to a memory channel, where any agent finds it, any time later.")
        memory = await api.call("post", "memory_id", channel="memory", content=_FACT)
        answer = await web.call("search", "hits", query="orders cents", kind="memory")
        _require([hit["memory_id"] for hit in answer["hits"]] == [memory["memory_id"]], "the memory is found")

    def audit(self) -> None:
        """The replay of all that, and its proof."""
        _head("7. The auditor. All of it is in the journal: who was shown what, when, and who acknowledged it.")
        told = [line for line in self._run("replay") if self._token in line]
        _require(len(told) == 2, "the batch was handed out by one event and acknowledged by one")
        _head("   Each line carries the hash of the one before it. The anchor, kept elsewhere, shows any later change.")
        _require(self._run("replay", "--verify")[-1].startswith("ok: "), "the journal verifies")

    def _run(self, *arguments: str) -> list[str]:
        """Run a command on the demo's bus, show what it prints, and return it."""
        _say(f"  $ agentbus {' '.join(arguments)}")
        command = [sys.executable, "-m", "agentbus", *arguments]
        done = subprocess.run(
            command, env=self._environ, cwd=self._directory / "web", capture_output=True, encoding="utf-8", check=False
        )
        _require(done.returncode == 0, f"it ends with exit status 0, not {done.returncode}: {done.stderr}")
        for line in done.stdout.splitlines():
            _say(f"  {line}")
        return done.stdout.splitlines()

    @asynccontextmanager
    async def _server(self, name: str, channels: list[str]) -> AsyncIterator[_Agent]:
        """A server of its own for the agent ``name``, in its repository."""
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - see demo

        repository = self._directory / name
        (repository / ".git").mkdir(parents=True, exist_ok=True)
        (repository / ".local").mkdir(exist_ok=True)
        file = {"identity": name, "channels": channels}
        (repository / ".local" / "agentbus.json").write_text(json.dumps(file))
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "agentbus", "mcp"], env=self._environ, cwd=repository
        )
        with (self._directory / "stderr").open("a") as complaints:
            transport = stdio_client(command, errlog=complaints)
            async with Client(transport, mode="legacy", read_timeout_seconds=_ANSWER_WAIT_S) as client:
                yield _Agent(client, name)

    def _servers(self) -> set[int]:
        """Process ids of the servers that are alive, as the bus knows it."""
        return {int(str(owner["pid"])) for owner in Owners(self._data / "owners").living()}


def _require(holds: bool, claim: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise _ClaimError(f'it is not so that "{claim}"')


def _render(value: object) -> str:
    if isinstance(value, dict) and "seq" in value and "from" in value:
        return f"{value['seq']} from {value['from']}: {json.dumps(value.get('content', value.get('snippet')))}"
    return json.dumps(value)


def _head(text: str) -> None:
    _say(f"\n{text}")


def _say(text: str) -> None:
    click.echo("\n".join(map(render_visible, text.split("\n"))))
