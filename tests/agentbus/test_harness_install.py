"""``agentbus init --global`` on whole homes: what it makes, what it leaves alone, and that it goes without a trace."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus import replace
from agentbus.harness import install, jsonc
from agentbus.harness.every import HARNESSES
from agentbus.harness.setup import Setup
from tests.agentbus.shell import WAIT_S
from tests.agentbus.test_jsonc import DOCUMENTS, scrawled, texts
from tests.agentbus.test_tables import said
from tests.agentbus.test_tables import texts as tomls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

JSONC = (".config/opencode/opencode.json", ".cursor/mcp.json", ".cursor/hooks.json")
VSCODE = "Library/Application Support/Code/User/mcp.json" if sys.platform == "darwin" else ".config/Code/User/mcp.json"
PLAIN = (".gemini/settings.json", ".claude.json", ".claude/settings.json", ".codex/hooks.json")
TOML = ".codex/config.toml"
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a flush costs nothing
EVERY = (*JSONC, VSCODE, *PLAIN, TOML)
MADE = (".claude/skills/agentbus/SKILL.md", ".config/opencode/plugins/agentbus.js")


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


OURS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"mcpServers": {"agentbus": {"command": "agentbus", "args": ["mcp"], "timeout": 9}}},
        {"mcpServers": {"agentbus": {"command": "/old/agentbus", "env": {"AGENTBUS_DATA_DIR": "/old"}}, "b": {}}},
        {"servers": {}, "mcp": {"agentbus": {"type": "remote", "url": "https://example.org"}}},
        {"hooks": {"Stop": [{"matcher": "x", "hooks": [{"command": "agentbus hook stop --for claude"}, {}]}]}},
        {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "agentbus identity"}]}], "Stop": None}},
        {"hooks": {"stop": [{"command": "agentbus hook stop --for cursor"}, {"command": "make"}]}, "version": 1},
        {"hooks": {"Stop": [], "SessionStart": {}}},
    ]
)
"""What somebody put in by hand, or an older agentbus, or another of the same name."""


@st.composite
def plain(draw: st.DrawFn) -> str:
    """JSON as most clients write it; or nothing, or what none of them would read."""
    value: dict[str, Any] = draw(DOCUMENTS) | draw(OURS)
    text = json.dumps(value, indent=draw(st.sampled_from([None, 2])))
    return draw(st.sampled_from([text, text, text + "\n", "", "\n", "// mine\n", text[:-1], f"[{text}]"]))


@st.composite
def homes(draw: st.DrawFn) -> dict[str, bytes]:
    """What stands in the clients' settings: some are missing, some are as no client would read them."""
    commented = texts() | st.builds(lambda one, two: one | two, DOCUMENTS, OURS).flatmap(scrawled) | plain()
    texts_of = dict.fromkeys((*JSONC, VSCODE), commented) | {name: plain() for name in PLAIN} | {TOML: tomls()}
    texts_of |= dict.fromkeys(MADE, st.sampled_from(["", "mine\n"]))
    chosen = {name: draw(text) for name, text in texts_of.items() if draw(st.booleans())}
    mark = draw(st.sampled_from(["", "\ufeff"]))
    windows = draw(st.booleans())
    return {
        name: (mark + (text.replace("\n", "\r\n") if windows and "\r" not in text else text)).encode()
        for name, text in chosen.items()
    }


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


@settings(max_examples=40, deadline=None)
@given(homes(), st.booleans())
def test_after_somebody_edited_them_the_files_lose_only_what_is_ours(
    home: dict[str, bytes], moved: bool  # noqa: FBT001  # drawn
) -> None:  # fmt: skip
    with tempfile.TemporaryDirectory(dir=QUICK) as name:
        root = Path(name)
        for file, data in home.items():
            write(root, file, data)
        setup = setup_at(root)
        run(setup)
        edited: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        for file in EVERY:
            text = (root / file).read_bytes().decode("utf-8-sig")
            with contextlib.suppress(ValueError):  # as it was: no client reads it
                if file == TOML:
                    edited[file] = said(home.get(file, b"").decode("utf-8-sig")), {"later": {"x": 1}}
                    write(root, file, text + "\n[later]\nx = 1\n")
                else:
                    edited[file] = jsonc.parse(home.get(file, b"").decode("utf-8-sig")), {"later": 1}
                    write(root, file, jsonc.put(text, ("later",), 1))
        run(setup_at(root, AGENTBUS_DATA_DIR="/elsewhere") if moved else setup)
        run(setup, uninstall=True)
        for file, (before, more) in edited.items():
            text = (root / file).read_bytes().decode("utf-8-sig")
            left = said(text) if file == TOML else jsonc.parse(text)
            assert _foreign(left) == _foreign(before | more), file


def _foreign(value: dict[str, Any]) -> dict[str, Any]:
    """What is not ours. What holds nothing counts as missing; so does the version number beside hooks."""

    def strip(each: object) -> Any:  # noqa: ANN401  # JSON
        if isinstance(each, dict) and re.match(r"(env .*)?\S*agentbus (hook|identity)", str(each.get("command"))):
            return None
        if isinstance(each, dict):
            return {name: kept for name, part in each.items() if (kept := strip(part)) not in ({}, [], None)}
        return [kept for part in each if (kept := strip(part)) not in ({}, None)] if isinstance(each, list) else each

    kept: dict[str, Any] = strip(value)
    for servers in ("mcpServers", "servers", "mcp", "mcp_servers"):
        ours = kept.get(servers)
        if isinstance(ours, dict) and not {"url"} & set(ours.get("agentbus", {})):
            kept[servers] = {name: each for name, each in ours.items() if name != "agentbus"}
    return {name: each for name, each in kept.items() if each not in ({}, []) and name != "version"}


def test_nothing_is_left_of_a_home_that_had_nothing(tmp_path: Path) -> None:
    setup = setup_at(tmp_path)
    assert set(run(setup)) == {"added"}
    assert set(run(setup)) == {"present"}
    assert set(run(setup, dry=True)) == {"present"}
    made = set(files(tmp_path))
    assert made >= set(EVERY) | set(MADE)
    assert set(run(setup, uninstall=True, dry=True)) == {"removed"}
    assert set(files(tmp_path)) == made
    assert set(run(setup, uninstall=True)) == {"removed"}
    assert files(tmp_path) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config"]
    assert set(run(setup, uninstall=True)) == {"absent"}


@pytest.mark.parametrize("name", MADE)
def test_another_s_file_of_the_name_of_ours_comes_back(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "mine\n").chmod(0o640)
    setup = setup_at(tmp_path)
    assert set(run(setup, uninstall=True)) == {"absent"}
    run(setup)
    assert "agentbus" in (tmp_path / name).read_text()
    write(tmp_path, name, (tmp_path / name).read_text() + "edited since")
    run(setup)
    run(setup, uninstall=True)
    assert files(tmp_path) == {name: b"mine\n"}
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o640


def test_each_client_is_looked_for_where_its_own_variable_says(tmp_path: Path) -> None:
    variables = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
    setup = setup_at(tmp_path, **{name: f"{tmp_path}/{name}/" for name in variables})
    assert set(run(setup)) == {"added"}
    made = set(files(tmp_path))
    assert made >= {
        "CLAUDE_CONFIG_DIR/.claude.json",
        "CLAUDE_CONFIG_DIR/settings.json",
        "CODEX_HOME/config.toml",
        "GEMINI_CLI_HOME/.gemini/settings.json",
        "XDG_CONFIG_HOME/opencode/opencode.json",
    }
    if sys.platform != "darwin":
        assert "XDG_CONFIG_HOME/Code/User/mcp.json" in made
    run(setup, uninstall=True)
    assert files(tmp_path) == {}


def test_our_server_is_found_again_when_a_client_has_begun_another_file(tmp_path: Path) -> None:
    setup = setup_at(tmp_path)
    run(setup, names=["opencode"])
    write(tmp_path, ".config/opencode/opencode.jsonc", "{} // mine\n")
    assert set(run(setup, names=["opencode"])) == {"present"}
    run(setup, names=["opencode"], uninstall=True)
    assert files(tmp_path) == {".config/opencode/opencode.jsonc": b"{} // mine\n"}


def test_a_file_that_only_we_made_goes_though_another_agentbus_came_between(tmp_path: Path) -> None:
    run(setup_at(tmp_path))
    write(
        tmp_path, ".claude/settings.json", '{"theme": "dark", ' + (tmp_path / ".claude/settings.json").read_text()[1:]
    )
    run(setup_at(tmp_path, AGENTBUS_DATA_DIR="/elsewhere"))
    assert set(run(setup_at(tmp_path), uninstall=True)) == {"removed"}
    assert {name: json.loads(data) for name, data in files(tmp_path).items()} == {
        ".claude/settings.json": {"theme": "dark"}
    }


def test_many_at_once_leave_one_set_of_entries_and_a_copy_without_them(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    write(tmp_path, ".gemini/settings.json", '{"a": 1}')
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: _init(tmp_path), range(6)))
    assert [each.returncode for each in done] == [0] * 6
    assert (tmp_path / ".gemini/settings.json.agentbus-backup").read_text() == '{"a": 1}'
    assert _init(tmp_path).stdout.count("is there: ") == 3
    assert _init(tmp_path, "--uninstall").returncode == 0
    assert files(tmp_path) == {".gemini/settings.json": b'{"a": 1}'}


def test_a_file_that_vanishes_meanwhile_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(setup_at(tmp_path), names=["cursor"])

    @contextlib.contextmanager
    def exclusive(path: str) -> Iterator[Callable[[bytes], None]]:
        os.unlink(path)
        with replace.exclusive(path) as write:
            yield write

    monkeypatch.setattr("agentbus.harness.install.replace", SimpleNamespace(exclusive=exclusive))
    assert run(setup_at(tmp_path), names=["cursor"], uninstall=True) == ["removed", "removed"]
    assert files(tmp_path) == {}


def test_a_directory_that_is_none_is_named_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / ".codex").symlink_to(tmp_path / "nowhere")
    for dry in (True, False):
        steps = list(install.install(HARNESSES["codex"](setup_at(tmp_path)), {}, dry=dry))
        assert {step.cause for step in steps} == {f"left as it is: {tmp_path}/.codex is no directory"}
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_to_is_named_by_a_dry_run_too(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir(mode=0o500)
    steps = list(install.install(HARNESSES["codex"](setup_at(tmp_path)), {}, dry=True))
    assert {step.cause for step in steps} == {f"left as it is: nothing may be made in {tmp_path}/.codex"}


def test_who_took_out_even_their_own_entry_does_not_get_it_back(tmp_path: Path) -> None:
    path = write(tmp_path, ".gemini/settings.json", '{"a": 1, "mcpServers": {"agentbus": {"command": "agentbus"}}}')
    run(setup_at(tmp_path), names=["gemini"])
    path.write_text('{"a": 1}')
    run(setup_at(tmp_path), names=["gemini"], uninstall=True)
    assert files(tmp_path) == {".gemini/settings.json": b'{"a": 1}'}


def test_who_took_us_out_by_hand_gets_back_what_they_had_then(tmp_path: Path) -> None:
    path = write(tmp_path, ".gemini/settings.json", '{"a": 1}')
    run(setup_at(tmp_path), names=["gemini"])
    path.write_text('{"a": 2, "mcpServers": {}}')
    run(setup_at(tmp_path), names=["gemini"])
    run(setup_at(tmp_path), names=["gemini"], uninstall=True)
    assert files(tmp_path) == {".gemini/settings.json": b'{"a": 2, "mcpServers": {}}'}


def test_a_copy_that_could_not_be_made_whole_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ".gemini/settings.json", '{"a": 1}')

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fail)
        assert set(run(setup_at(tmp_path), names=["gemini"])) == {"failed"}
    assert files(tmp_path) == {".gemini/settings.json": b'{"a": 1}'}


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
    server: dict[str, Any] = {"type": "stdio", "command": "/opt/agentbus/bin/agentbus", "args": ["mcp"]}
    server["env"] = {"AGENTBUS_DATA_DIR": "/d"}
    assert next(install.install(harness, setup.environ)).done == "added"
    assert (tmp_path / "asked").read_text().splitlines() == [
        "mcp remove -s user agentbus",
        f"mcp add-json -s user agentbus {json.dumps(server)}",
    ]
    state = {"mcpServers": {"agentbus": server}}
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


def test_what_a_user_added_to_a_server_stays_when_the_client_s_own_command_renews_it_or_fails_to(
    tmp_path: Path,
) -> None:
    write(tmp_path, "bin/claude", STAND_IN).chmod(0o755)
    setup = setup_at(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    old = {"type": "stdio", "command": "/old/agentbus", "args": ["mcp"], "env": {"MINE": "1"}, "timeout": 9}
    write(tmp_path, ".claude.json", json.dumps({"mcpServers": {"agentbus": old}}))
    write(tmp_path, "broken", "")
    assert next(install.install(HARNESSES["claude"](setup), setup.environ)).done == "failed"
    new = old | {"command": "/opt/agentbus/bin/agentbus"}
    assert (tmp_path / "asked").read_text().splitlines() == [
        "mcp remove -s user agentbus",
        *(f"mcp add-json -s user agentbus {json.dumps(server)}" for server in (new, old)),
    ]


REMOTE = {"type": "http", "url": "https://example.org/agentbus"}


def test_another_s_server_of_our_name_is_named_and_left(tmp_path: Path) -> None:
    write(tmp_path, "bin/claude", STAND_IN).chmod(0o755)
    write(tmp_path, ".claude.json", json.dumps({"mcpServers": {"agentbus": REMOTE}}))
    write(tmp_path, ".gemini/settings.json", json.dumps({"mcpServers": {"agentbus": {"httpUrl": REMOTE["url"]}}}))
    write(tmp_path, ".config/opencode/opencode.json", json.dumps({"mcp": {"agentbus": REMOTE}}))
    write(tmp_path, TOML, f'[mcp_servers.agentbus]\nurl = "{REMOTE["url"]}"\n')
    before = files(tmp_path)
    setup = setup_at(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    for name in ("claude", "gemini", "opencode", "codex"):
        step = next(install.install(HARNESSES[name](setup), setup.environ))
        assert step.done == "failed"
        assert f'another\'s server "agentbus" in it, at {REMOTE["url"]}: give that one another name' in step.cause
        assert next(install.uninstall(HARNESSES[name](setup), setup.environ)).done in {"absent", "removed"}
    run(setup, uninstall=True)
    assert files(tmp_path) == before


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


def test_what_is_left_of_a_client_that_is_gone_is_taken_out_too(tmp_path: Path) -> None:
    assert "and nothing of ours" in _init(tmp_path, "--uninstall").stdout
    assert _init(tmp_path, "--harness", "claude", "--harness", "claude").stdout.count("Claude Code:") == 1
    shutil.rmtree(tmp_path / ".claude")
    done = _init(tmp_path, "--uninstall")
    assert done.stdout.splitlines()[:2] == ["Claude Code:", "  removed: server agentbus, ~/.claude.json"]
    assert files(tmp_path) == {}


def test_where_the_bus_is_goes_into_every_entry(tmp_path: Path) -> None:
    named = ["claude", "codex", "gemini", "opencode", "cursor", "vscode"]
    options = [word for name in named for word in ("--harness", name)]
    write(tmp_path, "own.json", "{}")
    assert _init(tmp_path, *options, "--config", "own.json", AGENTBUS_DATA_DIR="~/b u$").returncode == 0
    for file, data in files(tmp_path).items():
        if not file.endswith(("SKILL.md", "own.json", ".agentbus-backup")):
            assert f"{tmp_path}/own.json" in data.decode(), file
            assert f"{tmp_path}/b u$" in data.decode(), file


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        ([], {"AGENTBUS_DATA_DIR": "bus"}, 'AGENTBUS_DATA_DIR must be an absolute path, or one that begins with "~/"'),
        ([], {"AGENTBUS_CONFIG": "/gone.json"}, "/gone.json: cannot read it: No such file or directory"),
        (["--config", ""], {}, "--config is empty"),
    ],
)
def test_a_bus_that_no_server_would_find_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], says: str
) -> None:
    (tmp_path / ".codex").mkdir()
    refused = _init(tmp_path, *arguments, **environ)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert says in refused.stderr
    assert files(tmp_path) == {}
    assert _init(tmp_path, "--uninstall", *arguments, **environ).returncode == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/home/x/.cache/uv/archive-v0/abc/bin/agentbus", "lies in a cache that may be emptied"),
        ("/home/x/.cache/pipx/0a1b/bin/agentbus", "lies in a cache that may be emptied"),
        ("/home/$USER/bin/agentbus", "take a part of it for a variable"),
        ("/home/{env:A}/bin/agentbus", "take a part of it for a variable"),
    ],
)
def test_a_command_that_clients_may_not_find_is_doubted(command: str, says: str) -> None:
    (doubt,) = Setup("/", {}, command).doubts
    assert doubt.startswith(command)
    assert says in doubt


def test_the_command_that_runs_is_the_one_clients_are_told_of_and_no_doubt_is_raised(tmp_path: Path) -> None:
    assert setup_at(tmp_path).doubts == []
    (tmp_path / ".cursor").mkdir()
    done = _init(tmp_path)
    assert done.stderr == ""
    server = json.loads((tmp_path / ".cursor/mcp.json").read_text())["mcpServers"]["agentbus"]
    assert server["command"] == str(Path(sys.executable).parent / "agentbus")


def test_a_path_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    refused = _init(tmp_path, AGENTBUS_DATA_DIR=os.fsdecode(b"/b\xff"))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert files(tmp_path) == {}


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
