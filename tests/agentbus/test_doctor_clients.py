"""What the doctor says of each client: what is there, what it runs, where that leads, and whether it is trusted."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from agentbus import __version__
from agentbus.doctor import trust
from tests.agentbus.patients import CLIENTS, Patient

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(tmp_path, monkeypatch)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def command(patient: Patient) -> str:
    """What the set-up has clients run."""
    return patient.visit().setup.command


def only(patient: Patient, name: str) -> Path:
    """The one file of that name in the home."""
    (found,) = patient.home.rglob(name)
    return found


# --- there, missing, other


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "codex"])
def test_a_client_that_was_set_up_is_well(patient: Patient, client: str) -> None:
    patient.set_up(client)
    assert patient.bad(client) == []
    assert patient.bad("clients") == []
    assert patient.found(client)[0]["what"] == "version unknown, without a command on the PATH"


def test_a_client_that_is_not_connected_is_a_note_unless_none_is(patient: Patient) -> None:
    patient.set_up("cursor")
    patient.has("gemini")
    assert patient.bad("gemini") == [("note", "is installed, without a command on the PATH, and not connected")]
    assert patient.bad("clients") == []
    patient.run("init", "--global", "--uninstall")
    patient.has("cursor")
    assert patient.bad("clients") == [("fault", "none is connected: Gemini CLI, Cursor")]


@pytest.mark.parametrize(
    ("client", "file", "what", "why"),
    [
        ("gemini", ".gemini/settings.json", "server agentbus", "Its agents have no tools of agentbus."),
        ("claude", ".claude.json", "server agentbus", "Its agents have no tools of agentbus."),
    ],
)
def test_a_server_entry_that_is_missing_is_a_fault(
    patient: Patient, client: str, file: str, what: str, why: str
) -> None:
    patient.set_up(client)
    path = patient.home / file
    document = json.loads(path.read_text())
    del document["mcpServers"]
    path.write_text(json.dumps(document))
    assert patient.bad(client) == [("fault", f"{what} is missing in {path}")]
    (missing,) = (each for each in patient.found(client) if each["level"] == "fault")
    assert (missing["why"], missing["do"]) == (why, f"agentbus init --global --harness {client}")


def test_hooks_a_plugin_and_a_skill_that_are_missing_are_told_apart(patient: Patient) -> None:
    patient.set_up("claude", "opencode")
    settings = patient.home / ".claude" / "settings.json"
    settings.write_text("{}")
    (patient.home / ".claude" / "skills" / "agentbus" / "SKILL.md").unlink()
    start, stop, skill = (each for each in patient.found("claude") if each["level"] != "ok")
    assert (start["level"], start["what"]) == ("fault", f"hook SessionStart is missing in {settings}")
    assert start["why"] == "Its sessions are not told of the bus when they begin."
    assert stop["why"] == "Its turns end although messages wait, and an idle session is not woken."
    assert (skill["level"], skill["what"].startswith("skill agentbus is missing")) == ("note", True)
    plugin = only(patient, "agentbus.js")
    plugin.unlink()
    assert patient.bad("opencode") == [("fault", f"plugin agentbus is missing in {plugin}")]


def test_what_works_but_is_not_as_we_write_it_is_a_note(patient: Patient) -> None:
    patient.set_up("gemini", "opencode")
    settings = patient.home / ".gemini" / "settings.json"
    replace(settings, "agentbus hook session-start --for gemini", "agentbus identity --format json")
    what = f"hook SessionStart in {settings} is not as this agentbus writes it"
    assert patient.bad("gemini") == [("note", what)]
    plugin = only(patient, "agentbus.js")
    plugin.write_text(plugin.read_text() + "// mine\n")
    assert patient.bad("opencode") == [("note", f"plugin agentbus in {plugin} is not as this agentbus writes it")]


@pytest.mark.parametrize(("data", "says"), [(b"<<<<<<< ours\n", "cannot be used: "), (b"\xff{}", "is not UTF-8")])
def test_a_file_that_cannot_be_read_is_a_fault_and_left_as_it_is(patient: Patient, data: bytes, says: str) -> None:
    patient.set_up("gemini", "cursor", "claude")
    for client, file in (("gemini", ".gemini/settings.json"), ("cursor", ".cursor/mcp.json")):
        (patient.home / file).write_bytes(data)
        found = patient.bad(client)
        assert {level for level, _ in found} == {"fault"}
        assert all(str(patient.home / file) in what and says in what for _, what in found)
    (patient.home / ".claude" / "settings.json").write_bytes(data)
    assert {level for level, _ in patient.bad("claude")} == {"fault"}
    assert patient.bad("clients") == []


def test_a_file_that_cannot_be_looked_at_is_a_fault(patient: Patient) -> None:
    patient.set_up("gemini")
    (patient.home / ".gemini" / "settings.json").unlink()
    (patient.home / ".gemini" / "settings.json").mkdir()
    ((level, what),) = patient.bad("gemini")
    assert (level, what.startswith("could not be looked at: ")) == ("fault", True)


# --- versions


def npm(patient: Patient, name: str, package: str) -> None:
    home = patient.root / "node_modules" / name
    (home / "bundle").mkdir(parents=True)
    (home / "package.json").write_text(package)
    (home / "bundle" / "x.js").write_text("#!/no/such/node\n")
    (home / "bundle" / "x.js").chmod(0o755)
    (patient.bin / name).symlink_to(home / "bundle" / "x.js")


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ('{"version": "0.61.0", "bin": {"gemini": "bundle/x.js"}}', "0.61.0"),
        ('{"version": "7.0.0", "bin": {"other": "x"}}', "unknown"),
        ('{"version": "7.0.0"}', "unknown"),
        ('{"version": 7, "bin": {"gemini": "x"}}', "unknown"),
        ("[]", "unknown"),
        ("{", "unknown"),
    ],
)
def test_the_version_is_that_of_the_package_a_client_came_in(patient: Patient, package: str, version: str) -> None:
    patient.set_up("gemini")
    npm(patient, "gemini", package)
    assert patient.found("gemini")[0]["what"] == f"version {version} at {patient.bin}/gemini"


def test_a_client_that_came_in_no_package_is_asked_in_a_home_of_its_own(patient: Patient) -> None:
    patient.set_up("gemini")
    asked = patient.bin / "gemini"
    asked.write_text('#!/bin/sh\n: > "$HOME/litter"\necho "gemini 1.2.3-beta (fake)"\n')
    asked.chmod(0o755)
    assert patient.found("gemini")[0]["what"] == f"version 1.2.3-beta at {asked}"


def test_a_client_that_does_not_answer_is_left_and_nothing_of_it_goes_on(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.set_up("gemini")
    monkeypatch.setattr("agentbus.doctor.command._VERSION_WAIT_S", 0.5)
    asked, number = patient.bin / "gemini", patient.root / "number"
    asked.write_text(f"#!/bin/sh\n/bin/sleep 1000 &\necho $! > {number}\nwait\n")
    asked.chmod(0o755)
    _, out, _ = patient.run("doctor", "--all")
    assert f"version unknown at {asked}" in out
    assert not is_running(int(number.read_text()))


def is_running(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


# --- what is run, and where it leads


@pytest.mark.parametrize("off", [{"enabled": False}, {"disabled": True}])
def test_a_server_that_is_switched_off_is_a_fault(patient: Patient, off: dict[str, bool]) -> None:
    patient.set_up("cursor")
    file = patient.home / ".cursor" / "mcp.json"
    document = json.loads(file.read_text())
    document["mcpServers"]["agentbus"] |= off
    file.write_text(json.dumps(document))
    assert patient.bad("cursor") == [("fault", "server entry is switched off")]


def test_another_s_server_of_our_name_is_a_fault(patient: Patient) -> None:
    patient.set_up("cursor")
    file = patient.home / ".cursor" / "mcp.json"
    file.write_text('{"mcpServers": {"agentbus": {"url": "https://example.org"}}}')
    ((level, what),) = patient.bad("cursor")
    assert (level, what.startswith(f"{file}: there is another's server ")) == ("fault", True)


@pytest.mark.parametrize("client", ["gemini", "cursor", "opencode", "claude", "vscode"])
def test_what_it_says_to_do_about_a_client_mends_it(patient: Patient, client: str) -> None:
    patient.set_up(client)
    for path in [each for each in patient.home.rglob("*") if each.is_file() and each.suffix != ".agentbus-backup"]:
        before = path.read_bytes()
        for broken in (b"{}", before.replace(command(patient).encode(), b"/gone/agentbus")):
            path.write_bytes(broken)
            for do in {each["do"] for each in patient.found(client) if each["level"] == "fault"}:
                assert patient.run(*shlex.split(do)[1:])[0] == 0
            assert [each for each in patient.bad(client) if each[0] == "fault"] == []


def test_a_program_that_is_gone_is_a_fault(patient: Patient) -> None:
    patient.set_up("cursor", "opencode")
    for file in ("mcp.json", "hooks.json", "agentbus.js"):
        replace(only(patient, file), command(patient), "/gone/agentbus")
    assert patient.bad("cursor") == [("fault", "server entry runs /gone/agentbus, which is not there")]
    assert patient.bad("opencode") == [("fault", "plugin runs /gone/agentbus, which is not there")]


def test_another_agentbus_is_a_fault_if_it_is_another_version(patient: Patient) -> None:
    patient.set_up("cursor")
    other = patient.root / "agentbus"
    other.write_text("#!/bin/sh\necho agentbus 0.0.1\n")
    other.chmod(0o755)
    replace(patient.home / ".cursor/mcp.json", command(patient), str(other))
    what = f"server entry runs {other}"
    assert patient.bad("cursor") == [("fault", f"{what}, version 0.0.1; this one is {__version__}")]
    other.write_text(f"#!/bin/sh\necho agentbus {__version__}\n")
    assert patient.bad("cursor") == [("note", f"{what}, another installation of this version")]


def test_a_launcher_is_noted(patient: Patient) -> None:
    patient.set_up("cursor")
    (patient.bin / "uvx").symlink_to(sys.executable)
    mcp = {"mcpServers": {"agentbus": {"command": "uvx", "args": ["agentbus-journal", "mcp"]}}}
    (patient.home / ".cursor" / "mcp.json").write_text(json.dumps(mcp))
    assert patient.bad("cursor") == [("note", "server entry runs agentbus through uvx")]


def test_a_client_that_is_told_of_another_bus_is_a_fault(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("AGENTBUS_DATA_DIR", str(patient.root / "other"))
        patient.set_up("cursor")
    found = [each for each in patient.found("cursor") if each["level"] != "ok"]
    assert [(each["level"], each["what"]) for each in found] == [
        ("fault", f"server entry leads to {patient.root}/other")
    ]
    assert found[0]["why"].startswith(f"Two buses: this command sees {patient.data}, ")
    (patient.root / "other").symlink_to(patient.data)
    monkeypatch.setenv("AGENTBUS_DATA_DIR", str(patient.data))
    patient.data.mkdir(parents=True)
    assert {level for level, _ in patient.bad("cursor")} == {"note"}


def test_variables_that_a_client_is_not_told_of_are_a_fault_where_it_passes_nothing_on(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.set_up("codex", "cursor")
    monkeypatch.setenv("AGENTBUS_DATA_DIR", str(patient.root / "other"))
    assert ("fault", f"server entry leads to {patient.data}") in patient.bad("codex")
    what = f"server entry leads to {patient.data} unless its client is started with the variables that are set here"
    assert patient.bad("cursor") == [("note", what)]


def test_settings_that_the_command_is_given_are_to_be_told_to_clients_too(patient: Patient) -> None:
    patient.set_up("cursor")
    own = patient.root / "own.json"
    own.write_text(json.dumps({"data_directory": str(patient.root / "other")}))
    ((level, what),) = patient.bad("cursor", "--config", str(own))
    assert (level, what.startswith(f"server entry leads to {patient.data} unless")) == ("note", True)


def test_a_client_with_settings_that_cannot_be_used_is_a_fault(patient: Patient) -> None:
    patient.set_up("vscode")
    file = patient.home / ".config" / "Code" / "User" / "mcp.json"
    document = json.loads(file.read_text())
    document["servers"]["agentbus"]["env"] = {"AGENTBUS_CONFIG": "/gone.json"}
    file.write_text(json.dumps(document))
    assert patient.bad("vscode") == [
        (
            "fault",
            "server entry has settings that cannot be used: /gone.json: cannot read it: No such file or directory",
        )
    ]
    assert patient.bad("vscode", "--config", "/gone.json") == []


# --- hooks that are not run


def hooks_trusted(patient: Patient, **change: object) -> None:
    """What Codex notes when its user trusts our hooks."""
    hooks, lines = patient.home / ".codex" / "hooks.json", [""]
    for event, groups in json.loads(hooks.read_text())["hooks"].items():
        label = {"SessionStart": "session_start", "Stop": "stop"}[event]
        for index, handler in enumerate(groups[0]["hooks"]):
            noted = {"trusted_hash": trust._hash(label, {}, handler)} | change
            lines.append(f'[hooks.state."{hooks}:{label}:0:{index}"]')
            lines += [f"{key} = {json.dumps(value)}" for key, value in noted.items()]
    with (patient.home / ".codex" / "config.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")


def test_codex_hooks_that_nobody_has_trusted_are_a_fault(patient: Patient) -> None:
    patient.set_up("codex")
    assert patient.bad("codex") == [("fault", "its user has not trusted these hooks: SessionStart, Stop")]
    hooks_trusted(patient)
    assert patient.bad("codex") == []
    assert patient.found("codex")[-1]["what"] == "its user has trusted the hooks"


def test_codex_hooks_that_changed_since_are_a_note_and_those_switched_off_a_fault(patient: Patient) -> None:
    patient.set_up("codex")
    config = patient.home / ".codex" / "config.toml"
    before = config.read_text()
    hooks_trusted(patient, trusted_hash="sha256:0")
    what = "these hooks are not as Codex noted them as trusted: SessionStart, Stop"
    assert patient.bad("codex") == [("note", what)]
    config.write_text(before)
    hooks_trusted(patient, enabled=False)
    assert patient.bad("codex") == [("fault", "its user has not trusted these hooks: SessionStart, Stop")]
    config.write_text(before + "\n[features]\nhooks = false\n")
    assert patient.bad("codex") == [("fault", f"hooks are switched off in {config}: features.hooks is false")]
    config.write_text(before)
    (patient.home / ".codex" / "hooks.json").write_text("{}")
    assert all("is missing" in what for _, what in patient.bad("codex"))
    (patient.home / ".codex" / "hooks.json").write_text("{")
    assert all("cannot be used" in what for _, what in patient.bad("codex"))


def test_claude_may_have_all_hooks_switched_off(patient: Patient) -> None:
    patient.set_up("claude")
    settings = patient.home / ".claude" / "settings.json"
    document = json.loads(settings.read_text()) | {"disableAllHooks": True}
    settings.write_text(json.dumps(document))
    assert ("fault", f"hooks are switched off in {settings}: disableAllHooks is true") in patient.bad("claude")
