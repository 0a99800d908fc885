"""`agentbus doctor`: what it says as a whole, of the command, the settings and the repository; it changes nothing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agentbus import __version__
from tests.agentbus.patients import CLIENTS, Patient, tree
from tests.agentbus.shell import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="asks git")


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(tmp_path, monkeypatch)


def git(patient: Patient, *arguments: str) -> None:
    ours = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *ours, *arguments], cwd=patient.repository, check=True, capture_output=True, timeout=WAIT_S)


def script(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


# --- as a whole


@needs_git
def test_where_all_is_well_it_says_so_in_two_lines_and_exits_0(patient: Patient) -> None:
    patient.set_up(*(name for name in CLIENTS if name != "codex"))
    git(patient, "init")
    patient.run("init")
    patient.born()
    patient.run("ack-all", "sam", "--yes")
    before = tree(patient.root)
    status, out, err = patient.run("doctor")
    assert (status, err) == (0, "")
    verdict, _, well = out.splitlines()
    assert verdict == "Agentbus: all is well."
    assert well.endswith(
        " things as it should be: agentbus, settings, Claude Code, Gemini CLI, opencode, Cursor, VS Code,"
        " data directory, journal, sessions, repository."
    )
    assert tree(patient.root) == before


def test_on_a_new_machine_there_are_notes_and_nothing_is_made(patient: Patient) -> None:
    found = patient.examined()
    assert (found["ok"], found["faults"]) == (True, 0)
    assert [(each["check"], each["what"]) for each in found["findings"] if each["level"] == "note"] == [
        ("clients", "found none of Claude Code, Codex, Gemini CLI, opencode, Cursor, VS Code"),
        ("directory", f"there is none yet: {patient.data}"),
    ]
    assert not patient.data.exists()


def test_a_finding_is_told_with_why_and_what_to_do_faults_first(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (patient.bin / "agentbus").unlink()
    monkeypatch.setenv("AGENTBUS_DATADIR", "/elsewhere")
    status, out, err = patient.run("doctor")
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[:5] == [
        "Agentbus: 1 fault, 3 notes.",
        "",
        "fault  agentbus        there is no agentbus on the PATH",
        (
            "                       Agents are told to run it, and so is every message here;"
            " clients that name it without a path fail."
        ),
        f"                       -> Add its directory to the PATH: export PATH={os.path.dirname(sys.executable)}:$PATH",
    ]
    assert lines[6].startswith("note   settings        AGENTBUS_DATADIR is set, and is no variable of agentbus:")
    assert f"note   data directory  there is none yet: ~/{patient.data.relative_to(patient.home)}" in lines


def test_all_of_it_is_shown_on_demand(patient: Patient) -> None:
    patient.born()
    _, out, _ = patient.run("doctor", "--all")
    assert "ok     journal         5 lines, all sound, up to seq 5" in out.splitlines()
    assert f"ok     agentbus        {__version__} on the PATH: {patient.bin}/agentbus" in out.splitlines()


def test_programs_get_one_object(patient: Patient) -> None:
    found = patient.examined()
    assert list(found) == ["ok", "version", "data_directory", "directory", "faults", "notes", "findings"]
    assert (found["version"], found["data_directory"]) == (__version__, str(patient.data))
    assert found["directory"] == str(patient.repository)
    assert found["notes"] == sum(each["level"] == "note" for each in found["findings"])
    for each in found["findings"]:
        assert set(each) <= {"level", "about", "what", "why", "do", "check"}
        assert {"level", "about", "what", "check"} <= set(each)


def test_on_a_terminal_lines_are_folded_and_coloured(patient: Patient) -> None:
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "70"}
    environ.pop("NO_COLOR", None)
    subprocess.run(
        [sys.executable, "-m", "agentbus", "doctor"], stdout=theirs, env=environ, check=True, timeout=WAIT_S,
        cwd=patient.repository,
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "\x1b[33mnote \x1b[0m  clients" in shown
    assert max(len(line.replace("\x1b[33m", "").replace("\x1b[0m", "")) for line in shown.splitlines()[:-1]) <= 70


def test_other_people_s_text_moves_no_cursor(patient: Patient) -> None:
    (patient.repository / ".git").mkdir()
    (patient.repository / ".local").mkdir()
    (patient.repository / ".local" / "agentbus.json").write_text('{"channels": ["\\u001b[2J"]}')
    assert "\x1b" not in patient.run("doctor")[1]
    assert "\x1b" not in patient.run("doctor", "--json")[1]


# --- the command


def test_another_version_on_the_path_is_a_fault_and_another_place_of_this_one_a_note(patient: Patient) -> None:
    script(patient.bin / "agentbus", 'echo "agentbus 0.0.1"')
    what = f"agentbus on the PATH is {patient.bin}/agentbus"
    assert patient.bad("command") == [("fault", f"{what}, version 0.0.1; this one is {__version__}")]
    script(patient.bin / "agentbus", f'echo "agentbus {__version__}"')
    assert patient.bad("command") == [("note", f"{what}, another installation of this version")]
    for silent in ("exit 1", "echo nothing", "echo 1.2.3; exit 1"):
        script(patient.bin / "agentbus", silent)
        assert patient.bad("command")[0][1].startswith(f"{what}, which does not tell its version; ")
    script(patient.bin / "agentbus", "")
    (patient.bin / "agentbus").write_text("#!/no/such/shell\n")
    assert patient.bad("command")[0][1].startswith(f"{what}, which does not tell its version; ")


def test_where_the_command_itself_is_not_to_be_seen_it_says_how_to_install_it(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (patient.bin / "agentbus").unlink()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    (found,) = (each for each in patient.found("command"))
    assert found["do"].startswith("Install it where your shell looks")


# --- settings


def test_every_fault_of_a_settings_file_is_told_and_what_rests_on_it_is_not_looked_at(patient: Patient) -> None:
    file = patient.home / ".config" / "agentbus" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"segment_mib": 0, "log_levle": "info"}')
    found = patient.examined()
    assert found["data_directory"] is None
    first, second = (each for each in found["findings"] if each["check"] == "settings")
    assert first["what"].startswith(f"{file}, line 1, column 17: segment_mib must be a whole number from 1 to 1024")
    assert 'unknown key "log_levle"' in second["what"]
    assert first["do"] == f"Mend it; agentbus config --check {file} says whether it is right."
    assert not {"directory", "lock", "journal", "channels"} & {each["check"] for each in found["findings"]}
    out = patient.run("doctor")[1].splitlines()
    assert out[-1] == "Not looked at before the settings are right: the data directory, the journal, the sessions."
    file.write_text('{"segment_mib": 1}')
    assert patient.found("settings")[0]["what"] == f"{file} is right"
    broken = patient.root / "broken.json"
    broken.write_text("{")
    assert patient.bad("settings", "--config", str(broken))[0][1].startswith(f"{broken}, line 1")


def test_a_variable_that_may_not_be_is_told(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTBUS_DATA_DIR", "bus")
    assert patient.bad("settings")[0] == (
        "fault",
        'AGENTBUS_DATA_DIR must be an absolute path, or one that begins with "~/", not "bus"',
    )
    monkeypatch.setenv("AGENTBUS_DATA_DIR", str(patient.data))
    monkeypatch.setenv("AGENTBUS_CONFIG", "")
    assert patient.bad("settings") == [("fault", "AGENTBUS_CONFIG is empty: leave it out, or name a file")]
    monkeypatch.setenv("AGENTBUS_CONFIG", "/no/such/file")
    assert patient.bad("settings") == [("fault", "/no/such/file: cannot read it: No such file or directory")]


def test_a_settings_file_that_another_directory_does_not_have_is_noted(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (patient.repository / "own.json").write_text("{}")
    monkeypatch.setenv("AGENTBUS_CONFIG", "own.json")
    assert patient.bad("settings") == [("note", "AGENTBUS_CONFIG is a relative path: own.json")]
    monkeypatch.setenv("AGENTBUS_CONFIG", str(patient.repository / "own.json"))
    assert patient.bad("settings") == []
    assert patient.found("variables")[0]["what"].endswith(f"AGENTBUS_CONFIG={patient.repository}/own.json")


def test_variables_that_do_nothing_are_noted(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTBUS_DATADIR", "/x")
    monkeypatch.setenv("AGENTBUS_ZZZZ", "/x")
    assert patient.bad("variables") == [
        ("note", "AGENTBUS_DATADIR is set, and is no variable of agentbus: did you mean AGENTBUS_DATA_DIR?"),
        ("note", "AGENTBUS_ZZZZ is set, and is no variable of agentbus"),
    ]


# --- the repository


def repository_file(patient: Patient, text: str) -> Path:
    (patient.repository / ".git").mkdir(exist_ok=True)
    file = patient.repository / ".local" / "agentbus.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_a_repository_file_that_cannot_be_read_is_a_fault(patient: Patient) -> None:
    file = repository_file(patient, "<<<<<<< ours")
    ((level, what),) = patient.bad("repository")
    assert (level, what.startswith(f"{file}, line 1, column 1")) == ("fault", True)
    file.write_text('{"identity": 7}')
    ((level, what),) = patient.bad("repository")
    assert (level, '"identity"' in what) == ("fault", True)


def test_an_entry_that_is_no_name_and_a_channel_that_is_not_there_are_faults(patient: Patient) -> None:
    patient.born()
    file = repository_file(patient, '{"identity": "shop", "channels": ["general", "memry", 7, "reviews"]}')
    ((level, what),) = patient.bad("repository")
    assert (level, what.startswith(".local/agentbus.json: ")) == ("fault", True)
    first, second = patient.found("channels")
    assert first["what"] == 'the persistent list names the channel "memry", which does not exist'
    assert first["do"] == f'agentbus channel create memry, or mend the name in {file} if it should be "memory"'
    assert second["do"] == "agentbus channel create reviews"
    file.write_text('{"identity": "shop", "channels": []}')
    assert patient.found("channels")[0]["what"] == "persistent channels: (none)"


def test_a_directory_whose_name_is_no_identity_is_noted(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = patient.root / "a\nb"
    odd.mkdir()
    monkeypatch.chdir(odd)
    ((level, what),) = patient.bad("repository")
    assert (level, what.startswith("the directory gives no identity")) == ("note", True)


def test_a_working_directory_that_is_gone_is_noted(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = patient.root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    before = tree(patient.root)
    status, out, _ = patient.run("doctor", "--json")
    assert (status, tree(patient.root)) == (0, before)
    found = json.loads(out)
    assert found["directory"] is None
    assert "the working directory is gone" in [each["what"] for each in found["findings"]]


@needs_git
def test_a_file_that_git_would_commit_is_noted(patient: Patient) -> None:
    git(patient, "init")
    file = repository_file(patient, '{"identity": "shop"}')
    assert patient.bad("ignored") == [("note", f"git does not ignore {file}")]
    patient.run("init")
    assert patient.found("ignored")[0]["what"] == "git ignores .local/"
    git(patient, "add", "--force", ".local/agentbus.json")
    assert patient.bad("ignored") == [("note", f"git does not ignore {file}")]


def test_without_git_nothing_is_said_of_what_it_ignores(patient: Patient) -> None:
    (patient.bin / "git").unlink(missing_ok=True)
    repository_file(patient, '{"identity": "shop"}')
    assert patient.found("ignored") == []


@needs_git
def test_a_linked_worktree_says_which_file_holds(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    git(patient, "init")
    git(patient, "commit", "--allow-empty", "-m", "begin")
    git(patient, "worktree", "add", "../tree")
    monkeypatch.chdir(patient.root / "tree")
    linked = f"this is a linked worktree of {patient.repository}, with "
    assert patient.found("repository")[1]["what"] == linked + "no file"
    repository_file(patient, '{"identity": "shop"}')
    identity, worktree = (each["what"] for each in patient.found("repository"))
    assert identity == f'the identity here is "shop", by {patient.repository}/.local/agentbus.json'
    assert worktree == linked + "the main checkout's file"
    patient.run("subscribe", "reviews")
    assert patient.found("repository")[1]["what"] == linked + "its own file"
    (patient.root / "tree" / ".git").write_text("gitdir: /nowhere\n")
    ((level, what),) = patient.bad("repository")
    assert (level, what.startswith(f"{patient.root}/tree/.git is broken")) == ("fault", True)


def test_a_file_that_holds_in_a_part_of_the_repository_only_is_noted(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (patient.repository / ".git").mkdir()
    part = patient.repository / "part"
    (part / ".local").mkdir(parents=True)
    (part / ".local" / "agentbus.json").write_text('{"identity": "part"}')
    monkeypatch.chdir(part)
    assert patient.bad("repository") == [("note", f"a file below the root holds here: {part}/.local/agentbus.json")]


def test_a_repository_that_has_its_clients_start_another_agentbus_is_told(patient: Patient) -> None:
    (patient.repository / ".git").mkdir()
    (patient.repository / ".cursor").mkdir()
    (patient.repository / ".cursor" / "mcp.json").write_text("<<<")
    file = patient.repository / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"agentbus": {"command": "/gone/agentbus", "args": ["mcp"]}}}))
    assert patient.bad("project-clients") == [
        ("fault", f"{file}: server entry runs /gone/agentbus, which is not there")
    ]
    file.write_text(json.dumps({"mcpServers": {"agentbus": {"command": "agentbus", "args": ["mcp"]}}}))
    assert patient.bad("project-clients") == []


def test_what_claude_code_notes_for_this_repository_alone_is_looked_at_too(patient: Patient) -> None:
    (patient.repository / ".git").mkdir()
    file = patient.home / ".claude.json"
    noted = {"mcpServers": {"agentbus": {"command": "/gone/agentbus", "args": ["mcp"]}}}
    file.write_text(json.dumps({"projects": {str(patient.repository): noted}}))
    what = f"{file} for this repository: server entry runs /gone/agentbus, which is not there"
    assert patient.bad("project-clients") == [("fault", what)]
    for other in ("{", '{"projects": 3}', "{}", json.dumps({"projects": {"/elsewhere": noted}})):
        file.write_text(other)
        assert patient.bad("project-clients") == []
