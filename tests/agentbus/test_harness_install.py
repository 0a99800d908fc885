"""``agentbus init --global`` on whole homes: what it makes, what it leaves alone, and that it goes without a trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus.harness import install, jsonc
from agentbus.harness.every import HARNESSES
from agentbus.harness.setup import Setup
from tests.agentbus.shell import WAIT_S
from tests.agentbus.test_jsonc import DOCUMENTS, texts

if TYPE_CHECKING:
    from collections.abc import Iterable

JSONC = (".config/opencode/opencode.json", ".cursor/mcp.json", ".cursor/hooks.json")
VSCODE = "Library/Application Support/Code/User/mcp.json" if sys.platform == "darwin" else ".config/Code/User/mcp.json"
PLAIN = (".gemini/settings.json", ".claude.json", ".claude/settings.json", ".codex/hooks.json")
TOML = ".codex/config.toml"
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a flush costs nothing
EVERY = (*JSONC, VSCODE, *PLAIN, TOML)


def setup_at(home: Path, **environ: str) -> Setup:
    """No client's own command is on this PATH."""
    return Setup(str(home), {"HOME": str(home), "PATH": "/nowhere"} | environ, "/opt/agentbus/bin/agentbus")


def run(setup: Setup, *, uninstall: bool = False, dry: bool = False, names: Iterable[str] = HARNESSES) -> list[str]:
    work = install.uninstall if uninstall else install.install
    return [step.done for name in names for step in work(HARNESSES[name](setup), setup.environ, dry=dry)]


def files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def write(home: Path, name: str, text: str | bytes) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@st.composite
def tomls(draw: st.DrawFn) -> str:
    """A settings file as Codex's users keep it."""
    blocks = [
        'model = "m" # as long as it lasts',
        "[tui]\nx = [\n  1, # one\n]",
        "[mcp_servers]",
        "[mcp_servers.other]\ncommand = 'x'\n\n[mcp_servers.other.env]\nA = \"b\"",
        '[projects."/a b"]\ntrust_level = "trusted"',
        '[[hooks.Stop]]\ntext = """\n[mcp_servers.agentbus]\n"""',
    ]
    inline = ["mcp_servers = {other = {command = 'x'}}", "mcp_servers.other.command = 'x'"]
    chosen = [block for block in blocks if draw(st.booleans())]
    if draw(st.booleans()):
        chosen = [draw(st.sampled_from(inline)), *(each for each in chosen if "mcp_servers" not in each)]
    gap = draw(st.sampled_from(["\n", "\n\n", "\n\n# between\n"]))
    text = gap.join(chosen) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@st.composite
def homes(draw: st.DrawFn) -> dict[str, bytes]:
    """What stands in the clients' settings: some are missing, some are as no client would read them."""
    plain = st.builds(lambda value, indent: json.dumps(value, indent=indent), DOCUMENTS, st.sampled_from([None, 2]))
    texts_of = {name: texts() for name in (*JSONC, VSCODE)} | dict.fromkeys(PLAIN, plain) | {TOML: tomls()}
    chosen = {name: draw(text) for name, text in texts_of.items() if draw(st.booleans())}
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return {name: (mark + text if name != TOML else text).encode() for name, text in chosen.items()}


@settings(max_examples=40, deadline=None)
@given(homes(), st.booleans(), st.booleans())
def test_init_and_init_again_and_uninstall_leave_every_byte_as_it_was(
    home: dict[str, bytes], moved: bool, other: bool  # noqa: FBT001  # drawn
) -> None:  # fmt: skip
    with tempfile.TemporaryDirectory(dir=QUICK) as name:
        root = Path(name)
        for file, data in home.items():
            write(root, file, data)
        before = files(root)
        setup = setup_at(root, **({"AGENTBUS_DATA_DIR": "/elsewhere/a b"} if moved else {}))
        run(setup, dry=True)
        assert files(root) == before
        run(setup)
        once = files(root)
        run(setup)
        assert files(root) == once
        run(setup_at(root) if other else setup, uninstall=True)
        assert files(root) == before


@settings(max_examples=25, deadline=None)
@given(homes())
def test_after_somebody_edited_them_the_files_lose_only_what_is_ours(home: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory(dir=QUICK) as name:
        root = Path(name)
        for file, data in home.items():
            write(root, file, data)
        setup = setup_at(root)
        run(setup)
        edited: dict[str, Any] = {}
        for file in EVERY:
            text = (root / file).read_bytes().decode("utf-8-sig")
            if file == TOML:
                edited[file] = tomllib.loads(home.get(file, b"").decode()) | {"later": {"x": 1}}
                write(root, file, text + "\n[later]\nx = 1\n")
            else:
                edited[file] = jsonc.parse(home.get(file, b"").decode("utf-8-sig")) | {"later": 1}
                write(root, file, jsonc.put(text, ("later",), 1))
        run(setup, uninstall=True)
        for file, value in edited.items():
            text = (root / file).read_bytes().decode("utf-8-sig")
            left = tomllib.loads(text) if file == TOML else jsonc.parse(text)
            assert _without_nothing(left) == _without_nothing(value)
            assert not (root / f"{file}.agentbus-backup").exists()


def _without_nothing(value: dict[str, Any]) -> dict[str, Any]:
    """Objects that are empty, or hold only such, count as missing; so does the version number for others' hooks."""
    kept = {key: _without_nothing(each) if isinstance(each, dict) else each for key, each in value.items()}
    return {key: each for key, each in kept.items() if each not in ({}, []) and key != "version"}


def test_nothing_is_left_of_a_home_that_had_nothing(tmp_path: Path) -> None:
    setup = setup_at(tmp_path)
    assert set(run(setup)) == {"added"}
    assert set(run(setup)) == {"present"}
    made = set(files(tmp_path))
    assert made >= set(EVERY) | {".claude/skills/agentbus/SKILL.md", ".config/opencode/plugins/agentbus.js"}
    assert set(run(setup, uninstall=True, dry=True)) == {"removed"}
    assert set(files(tmp_path)) == made
    assert set(run(setup, uninstall=True)) == {"removed"}
    assert files(tmp_path) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config"]
    assert set(run(setup, uninstall=True)) == {"absent"}


def test_a_directory_that_others_use_stays(tmp_path: Path) -> None:
    write(tmp_path, ".claude/skills/mine/SKILL.md", "mine")
    setup = setup_at(tmp_path)
    run(setup, names=["claude"])
    run(setup, names=["claude"], uninstall=True)
    assert set(files(tmp_path)) == {".claude/skills/mine/SKILL.md"}


def test_a_file_that_does_not_parse_is_named_and_left_and_the_others_are_done(tmp_path: Path) -> None:
    broken = write(tmp_path, ".codex/hooks.json", '{"hooks": {\n<<<<<<< mine\n')
    setup = setup_at(tmp_path)
    steps = list(install.install(HARNESSES["codex"](setup), setup.environ))
    assert [step.done for step in steps] == ["added", "failed"]
    assert steps[1].place == str(broken)
    assert "left as it is: line 2, column 1" in steps[1].cause
    assert broken.read_text() == '{"hooks": {\n<<<<<<< mine\n'
    assert not broken.with_name("hooks.json.agentbus-backup").exists()


@pytest.mark.parametrize("data", [b'{"a": "\xff"}', b"\xff\xfe{\x00}\x00"])
def test_a_file_in_another_encoding_is_left(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, ".gemini/settings.json", data)
    setup = setup_at(tmp_path)
    step = next(install.install(HARNESSES["gemini"](setup), setup.environ))
    assert step.done == "failed"
    assert "is not UTF-8" in step.cause
    assert path.read_bytes() == data


def test_a_link_into_somebody_s_dotfiles_stays_a_link(tmp_path: Path) -> None:
    target = write(tmp_path, "dotfiles/claude.json", '{\n    "theme": "dark"\n}\n')
    target.chmod(0o640)
    (tmp_path / ".claude").mkdir()
    link = tmp_path / ".claude/settings.json"
    link.symlink_to(target)
    setup = setup_at(tmp_path)
    run(setup, names=["claude"])
    assert link.is_symlink()
    assert set(json.loads(target.read_text())) == {"theme", "hooks"}
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in target.parent.iterdir()) == ["claude.json"]
    run(setup, names=["claude"], uninstall=True)
    assert link.is_symlink()
    assert target.read_text() == '{\n    "theme": "dark"\n}\n'


def test_a_link_that_leads_nowhere_a_directory_and_a_read_only_file_are_named_and_left(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".cursor/hooks.json").mkdir()
    locked = write(tmp_path, ".gemini/settings.json", "{}")
    locked.chmod(0o444)
    setup = setup_at(tmp_path)
    steps = [step for name in ("cursor", "gemini") for step in install.install(HARNESSES[name](setup), setup.environ)]
    assert [(step.done, step.cause) for step in steps] == [
        ("failed", "left as it is: No such file or directory"),
        ("failed", "left as it is: Is a directory"),
        ("failed", "left as it is: it is read-only"),
    ]
    assert locked.read_text() == "{}"


def test_the_copy_from_before_is_made_once_and_has_the_file_s_mode(tmp_path: Path) -> None:
    path = write(tmp_path, ".gemini/settings.json", '{"a": 1}')
    path.chmod(0o600)
    run(setup_at(tmp_path), names=["gemini"])
    backup = tmp_path / ".gemini/settings.json.agentbus-backup"
    assert (backup.read_text(), backup.stat().st_mode & 0o777) == ('{"a": 1}', 0o600)
    run(setup_at(tmp_path, AGENTBUS_DATA_DIR="/elsewhere"), names=["gemini"])
    assert backup.read_text() == '{"a": 1}'
    run(setup_at(tmp_path), names=["gemini"], uninstall=True)
    assert files(tmp_path) == {".gemini/settings.json": b'{"a": 1}'}


def test_a_file_of_ours_that_its_user_moved_behind_a_link_is_emptied_and_not_removed(tmp_path: Path) -> None:
    setup = setup_at(tmp_path)
    run(setup, names=["gemini"])
    (tmp_path / "dotfiles").mkdir()
    shutil.move(tmp_path / ".gemini/settings.json", tmp_path / "dotfiles/gemini.json")
    (tmp_path / ".gemini/settings.json").symlink_to(tmp_path / "dotfiles/gemini.json")
    run(setup, names=["gemini"], uninstall=True)
    assert json.loads((tmp_path / ".gemini/settings.json").read_text()) == {}


STAND_IN = """#!/bin/sh
echo "$@" >> "$HOME/asked"
test ! -e "$HOME/broken" || { echo "what?" >&2; exit 1; }
"""


def test_the_client_s_own_command_is_used_where_there_is_one(tmp_path: Path) -> None:
    program = write(tmp_path, "bin/claude", STAND_IN)
    program.chmod(0o755)
    setup = setup_at(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin", AGENTBUS_DATA_DIR="/d")
    harness = HARNESSES["claude"](setup)
    assert next(install.install(harness, setup.environ)).done == "added"
    assert (tmp_path / "asked").read_text().splitlines() == [
        "mcp remove -s user agentbus",
        "mcp add -s user agentbus -e AGENTBUS_DATA_DIR=/d -- /opt/agentbus/bin/agentbus mcp",
    ]
    server = {"type": "stdio", "command": "/opt/agentbus/bin/agentbus", "args": ["mcp"]}
    state = {"mcpServers": {"agentbus": server | {"env": {"AGENTBUS_DATA_DIR": "/d"}}}}
    write(tmp_path, ".claude.json", json.dumps(state))
    assert next(install.install(harness, setup.environ)).done == "present"
    write(tmp_path, "broken", "")
    failed = next(install.uninstall(harness, setup.environ))
    assert (failed.done, failed.cause) == ("failed", "what?")
    write(tmp_path, ".claude.json", "{}")
    assert next(install.uninstall(harness, setup.environ)).done == "absent"
    failed = next(install.install(harness, setup.environ))
    assert (failed.done, failed.cause) == ("failed", "what?")
    assert next(install.install(harness, setup.environ, dry=True)).done == "added"


def test_a_client_s_command_that_is_none_is_named_with_what_became_of_it(tmp_path: Path) -> None:
    program = write(tmp_path, "bin/claude", "no program at all")
    program.chmod(0o755)
    write(tmp_path, ".claude.json", "{")
    setup = setup_at(tmp_path, PATH=f"{tmp_path}/bin")
    harness = HARNESSES["claude"](setup)
    for work in (install.install, install.uninstall):
        step = next(work(harness, setup.environ))
        assert step.done == "failed"
        assert "Exec format error" in step.cause


def _init(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    surroundings = {"HOME": str(home), "PATH": "/usr/bin:/bin", "COVERAGE_PROCESS_START": ""} | environ
    kept = {key: value for key, value in os.environ.items() if key.startswith("COV")}
    return subprocess.run(
        [sys.executable, "-m", "agentbus", "init", "--global", *arguments],
        env=kept | surroundings, cwd=home, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip


def test_the_command_says_what_it_did_and_what_is_left_to_do(tmp_path: Path) -> None:
    assert "found none of Claude Code, Codex," in _init(tmp_path).stdout
    (tmp_path / ".codex").mkdir()
    dry = _init(tmp_path, "--dry-run")
    assert "would add: server agentbus, ~/.codex/config.toml" in dry.stdout
    assert "trust" not in dry.stdout
    done = _init(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Codex:\n  added: server agentbus, ~/.codex/config.toml\n")
    assert "trust the new hooks in /hooks" in done.stdout
    again = _init(tmp_path)
    assert again.stdout.count("is there: ") == 2
    assert "trust" not in again.stdout
    (tmp_path / ".codex/hooks.json").write_text("{")
    failed = _init(tmp_path)
    assert failed.returncode == 1
    assert "FAILED: hook SessionStart, hook Stop, wake-up, ~/.codex/hooks.json (left as it is: line 1" in failed.stdout


def test_where_the_bus_is_goes_into_every_entry(tmp_path: Path) -> None:
    named = ["claude", "codex", "gemini", "opencode", "cursor", "vscode"]
    options = [word for name in named for word in ("--harness", name)]
    assert _init(tmp_path, *options, "--config", "own.json", AGENTBUS_DATA_DIR="bus").returncode == 0
    for file, data in files(tmp_path).items():
        if not file.endswith("SKILL.md"):
            assert f"{tmp_path}/own.json" in data.decode(), file
            assert f"{tmp_path}/bus" in data.decode(), file


def test_a_command_in_a_cache_is_set_up_with_a_warning(tmp_path: Path) -> None:
    assert Setup("/", {}, "/home/x/.cache/uv/archive-v0/abc/bin/agentbus").will_go
    assert not setup_at(tmp_path).will_go


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--identity", "x"], "--identity and --agents-md go with a repository"),
        (["--harness", "emacs"], "'emacs' is not one of"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = _init(tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
