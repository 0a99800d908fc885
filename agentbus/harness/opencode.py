"""opencode: server in opencode.json, and a plugin of ours for the rest, both in ~/.config/opencode."""

from __future__ import annotations

import contextlib
import json
import os

from agentbus.harness import entries, jsonc
from agentbus.harness.setup import FILE_BYTES_MAX, Harness, Made, Setup
from agentbus.repository import read_regular

_PATH = ("mcp", entries.SERVER)
_PLUGIN = """\
// Written by `agentbus init --global`, and replaced by the next one. It tells a session of the bus at its start, goes
// on with its turn where new messages wait, and wakes it for those that are addressed to it.
import { spawn } from "node:child_process"

const ENVIRONMENT = __ENVIRONMENT__
const COMMAND = __COMMAND__

function hook(event, directory) {
  const child = spawn(COMMAND, ["hook", event, "--for", "opencode"], {
    cwd: directory,
    env: { ...process.env, ...ENVIRONMENT },
    stdio: ["pipe", "pipe", "ignore"],
  })
  const told = new Promise((resolve) => {
    let text = ""
    child.stdout.on("data", (piece) => (text += piece))
    child.on("error", () => resolve(""))
    child.on("close", () => resolve(text.trim()))
  })
  child.stdin.on("error", () => {})
  child.stdin.end(JSON.stringify({ cwd: directory }))
  return { child, told }
}

export const AgentbusPlugin = async ({ client, directory }) => {
  const protocol = hook("session-start", directory).told
  let waiter
  const prompt = (session, text) =>
    client.session.promptAsync({ path: { id: session }, body: { parts: [{ type: "text", text }] } })
  return {
    "experimental.chat.system.transform": async (_, output) => {
      const text = await protocol
      if (text) output.system.push(text)
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle") return
      const session = event.properties.sessionID
      const known = await client.session.get({ path: { id: session } })
      if (known.data?.parentID) return // a subagent's: what waits is told to whom it works for
      waiter?.kill()
      const reason = await hook("stop", directory).told
      if (reason) return void (await prompt(session, reason))
      const waiting = hook("wake", directory)
      waiter = waiting.child
      waiting.told.then((text) => text && prompt(session, text))
    },
  }
}
"""


def harness(setup: Setup) -> Harness:
    """As it is set up here."""
    home = f"{setup.named('XDG_CONFIG_HOME') or setup.place('.config')}/opencode"
    value = {
        "type": "local",
        "command": [setup.command, *setup.arguments],
        **({"environment": setup.moved} if setup.moved else {}),
    }
    plugin = _PLUGIN.replace("__ENVIRONMENT__", json.dumps(setup.moved)).replace(
        "__COMMAND__", json.dumps(setup.command)
    )
    return Harness(
        name="opencode",
        title="opencode",
        program="opencode",
        directories=(home,),
        entries=(entries.member(_settings_in(home), _PATH, value, "server agentbus"),),
        made=(Made(f"{home}/plugins/agentbus.js", "plugin agentbus", plugin, _PLUGIN.partition(",")[0]),),
        todo=("Restart opencode.",),
    )


def _settings_in(home: str) -> str:
    """The file that has our server; else the one that opencode's own commands would edit. It reads all three."""
    named = [f"{home}/{name}" for name in ("opencode.jsonc", "opencode.json", "config.json")]
    there = [file for file in named if os.path.lexists(file)]
    return next(filter(_has_ours, there), there[0] if there else named[1])


def _has_ours(file: str) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError):  # whoever edits it says what is wrong with it
        return jsonc.get(jsonc.parse(read_regular(file, FILE_BYTES_MAX).decode("utf-8-sig")), _PATH) is not None
    return False
