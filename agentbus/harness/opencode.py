"""opencode: server in opencode.json, and a plugin of ours for the rest, both in ~/.config/opencode."""

from __future__ import annotations

import json
import os

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Made, Setup

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
    home = (
        setup.place(".config", "opencode")
        if not setup.environ.get("XDG_CONFIG_HOME")
        else os.path.join(setup.environ["XDG_CONFIG_HOME"], "opencode")
    )
    named = [f"{home}/{name}" for name in ("opencode.jsonc", "opencode.json", "config.json")]
    settings = next((file for file in named if os.path.lexists(file)), f"{home}/opencode.json")
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
        entries=(entries.member(settings, ("mcp", entries.SERVER), value, "server agentbus"),),
        made=(Made(f"{home}/plugins/agentbus.js", "plugin agentbus", plugin),),
        todo=("Restart opencode.",),
    )
