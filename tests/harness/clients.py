"""The real clients: how each is made to use the stand-in model, and how it is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.ground import Ground


@dataclass(frozen=True, slots=True)
class Client:
    """One of them.

    Attributes:
        name: its program, and its name in ``--harness``.
        register: what its model calls our tool ``register``.
        prepare: writes its settings, as a user has them before agentbus comes.
        list_servers: the command that connects to its servers and lists them; () if it has none.
        run: the command that takes a prompt and runs unattended.
        open: the command of an interactive session.
        ready: stands on its screen when that can be typed into.
        settings: the files of it that we edit; those its own command writes left out.
    """

    name: str
    register: str
    prepare: Callable[[Ground], None]
    list_servers: tuple[str, ...]
    run: tuple[str, ...]
    open: tuple[str, ...]
    ready: str
    settings: tuple[str, ...]


def _prepare_claude(ground: Ground) -> None:
    ground.environ |= {
        "ANTHROPIC_BASE_URL": ground.model.url,
        "ANTHROPIC_API_KEY": "sk-ant-stand-in",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    state = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": ["sk-ant-stand-in"], "rejected": []},
        "projects": {str(ground.repository): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    ground.write(".claude.json", state)
    ground.write(".claude/settings.json", '{"theme":"dark",\n\n  "permissions": {"allow": ["mcp__agentbus"]}}')


def _prepare_codex(ground: Ground) -> None:
    ground.environ["STAND_IN_KEY"] = "x"
    ground.write(
        ".codex/config.toml",
        f"""# mine
model_provider = "stand-in"
model = "gpt-5"  # as long as it lasts

[model_providers.stand-in]
name = "stand-in"
base_url = "{ground.model.url}/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"

[projects."{ground.repository}"]
trust_level = "trusted"
""",
    )


def _prepare_gemini(ground: Ground) -> None:
    ground.environ |= {
        "GOOGLE_GEMINI_BASE_URL": ground.model.url,
        "GEMINI_API_KEY": "x",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    ground.write(
        ".gemini/settings.json",
        """{
  // mine
  "security": {"auth": {"selectedType": "gemini-api-key"}}, /* by key */
  "ui": {"theme": "Default"}
}
""",
    )


def _prepare_opencode(ground: Ground) -> None:
    ground.environ["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
    ground.write(
        ".config/opencode/opencode.jsonc",
        f"""{{
  // mine
  "$schema": "https://opencode.ai/config.json",
  "provider": {{
    "stand-in": {{
      "npm": "@ai-sdk/openai-compatible",
      "options": {{"baseURL": "{ground.model.url}/v1", "apiKey": "x"}},
      "models": {{"m": {{"name": "m"}}}},
    }},
  }},
  "model": "stand-in/m",
  "small_model": "stand-in/m",
  "autoupdate": false, // by hand
  "share": "disabled",
}}
""",
    )


_TRUST = "--dangerously-bypass-hook-trust"  # in place of its user, who trusts them in /hooks

CLAUDE = Client(
    name="claude",
    register="mcp__agentbus__register",
    prepare=_prepare_claude,
    list_servers=("claude", "mcp", "list"),
    run=("claude", "-p", "go"),
    open=("claude",),
    ready="\u276f",
    settings=(".claude/settings.json",),
)
CODEX = Client(
    name="codex",
    register="mcp__agentbus.register",
    prepare=_prepare_codex,
    list_servers=(),
    run=("codex", "exec", "--skip-git-repo-check", _TRUST, "go"),
    open=("codex", _TRUST),
    ready="\u203a",
    settings=(".codex/config.toml",),
)
GEMINI = Client(
    name="gemini",
    register="mcp_agentbus_register",
    prepare=_prepare_gemini,
    list_servers=("gemini", "mcp", "list"),
    run=("gemini", "-p", "go", "-y", "-m", "gemini-2.5-pro"),
    open=("gemini", "-y", "-m", "gemini-2.5-pro"),
    ready="Type your message",
    settings=(".gemini/settings.json",),
)
OPENCODE = Client(
    name="opencode",
    register="agentbus_register",
    prepare=_prepare_opencode,
    list_servers=("opencode", "mcp", "list"),
    run=("opencode", "run", "go"),
    open=("opencode",),
    ready="Ask anything",
    settings=(".config/opencode/opencode.jsonc",),
)
EVERY = (CLAUDE, CODEX, OPENCODE, GEMINI)
