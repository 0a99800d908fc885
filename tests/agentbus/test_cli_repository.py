"""The command line where it meets a repository: identity, init, subscribe, unsubscribe, and how errors are shown."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from agentbus import identity as identity_module
from agentbus.cli import main
from agentbus.errors import CONFLICT, BusError
from agentbus.protocol import render_protocol, render_setup
from agentbus.repository import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

_AGENTBUS = (sys.executable, "-m", "agentbus")
_TAKES_EFFECT = "The change takes effect at the next register.\n"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a repository called ``project``, as far as we look at one."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def _write(root: Path, text: str) -> Path:
    (root / ".local").mkdir(exist_ok=True)
    (root / FILE).write_text(text, encoding="utf-8")
    return root / FILE


def _git(cwd: Path, *arguments: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=cwd, env=environ, check=True, capture_output=True)


# subscribe and unsubscribe


def test_subscribe_makes_the_file_and_prints_the_list_and_when_it_counts(repo: Path) -> None:
    listed = "Agentbus: persistent channels for project: general, memory, reviews\n"
    assert _run("subscribe", "reviews") == (0, listed + _TAKES_EFFECT, "")
    assert json.loads((repo / FILE).read_text()) == {
        "identity": "project",
        "channels": ["general", "memory", "reviews"],
    }
    assert _run("subscribe", "reviews") == (0, listed + _TAKES_EFFECT, "")


def test_unsubscribe_prints_the_list_that_is_left_or_none(repo: Path) -> None:
    _write(repo, '{"identity": "bus", "channels": ["general", "a"]}')
    assert _run("unsubscribe", "general")[1] == "Agentbus: persistent channels for bus: a\n" + _TAKES_EFFECT
    assert _run("unsubscribe", "general")[1] == "Agentbus: persistent channels for bus: a\n" + _TAKES_EFFECT
    assert _run("unsubscribe", "a")[1] == "Agentbus: persistent channels for bus: (none)\n" + _TAKES_EFFECT


def test_unsubscribe_without_a_file_is_an_error(repo: Path) -> None:
    status, out, err = _run("unsubscribe", "general")
    assert (status, out) == (1, "")
    assert err.startswith("agentbus: there is no .local/agentbus.json here")
    assert not (repo / ".local").exists()


@pytest.mark.parametrize("command", ["subscribe", "unsubscribe"])
def test_editing_anywhere_but_in_the_root_is_refused(repo: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    _write(repo, "{}")
    (repo / "sub").mkdir()
    monkeypatch.chdir(repo / "sub")
    assert _run(command, "general") == (1, "", "agentbus: run this from the repository root\n")


@pytest.mark.parametrize("command", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize("name", ["a/b", " ", "x\x1b[31m", "\u202etxt"])
def test_a_rejected_name_is_an_error_on_one_line_and_the_file_stays(repo: Path, command: str, name: str) -> None:
    path = _write(repo, '{"identity": "bus"}')
    status, out, err = _run(command, name)
    assert (status, out) == (1, "")
    assert err.startswith("agentbus: channel ")
    assert len(err.splitlines()) == 1
    assert err[:-1].isprintable()
    assert path.read_text() == '{"identity": "bus"}'


def test_a_broken_file_is_an_error_with_line_and_column(repo: Path) -> None:
    path = _write(repo, '{"identity": "bus", 7}')
    status, _, err = _run("subscribe", "a")
    assert status == 1
    assert err.startswith(f"agentbus: {path}, line 1, column 21: ")


def test_what_is_wrong_with_other_entries_is_a_warning_with_nothing_that_moves_the_cursor(repo: Path) -> None:
    _write(repo, '{"identity": "bus", "channels": ["a\\u001b[31m\\u2028/"]}')
    status, out, err = _run("subscribe", "b")
    assert (status, out) == (0, "Agentbus: persistent channels for bus: b\n" + _TAKES_EFFECT)
    assert err.startswith("agentbus: .local/agentbus.json: channel ")
    assert len(err.splitlines()) == 1
    assert err[:-1].isprintable()


def test_a_name_outside_of_the_locales_alphabet_is_printed_all_the_same(repo: Path) -> None:
    environ = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*_AGENTBUS, "subscribe", "é漢"], cwd=repo, env=environ, capture_output=True, check=True)
    assert b"general, memory, \xe9\\u6f22\n" in done.stdout
    assert json.loads((repo / FILE).read_text(encoding="utf-8"))["channels"] == ["general", "memory", "é漢"]


def test_the_editors_load_neither_msgspec_nor_the_sdk(repo: Path) -> None:
    code = (
        "import sys; from agentbus.cli import main\n"
        "try: main(['subscribe', 'a'])\n"
        "except SystemExit: print([m for m in ('msgspec', 'mcp', 'portalocker') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# init


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a repository made by git, called ``fresh``; no ignore file of the user counts."""
    root = tmp_path / "fresh"
    root.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    _git(root, "init", "-q")
    monkeypatch.chdir(root)
    return root


def test_init_says_what_it_did_then_the_steps_that_are_left_and_the_protocol(fresh: Path) -> None:
    status, out, err = _run("init")
    assert (status, err) == (0, "")
    assert out == (
        f'Agentbus: wrote {fresh / FILE} (identity "fresh").\n'
        f"Agentbus: added .local/ to {fresh / '.gitignore'}.\n\n"
        f"{render_setup('fresh', {})}"
    )
    assert out.endswith(render_protocol("fresh"))
    assert (fresh / ".gitignore").read_text() == ".local/\n"


def test_init_again_changes_nothing(fresh: Path) -> None:
    _run("init")
    before = {path: path.read_bytes() for path in (fresh / FILE, fresh / ".gitignore")}
    status, out, _ = _run("init")
    assert status == 0
    assert out.startswith(
        f'Agentbus: nothing to change in {fresh / FILE} (identity "fresh").\nAgentbus: git ignores .local/ already.\n'
    )
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"*.pyc\n", b"*.pyc\n.local/\n"),
        (b"*.pyc", b"*.pyc\n.local/\n"),
        (b"*.pyc\r\n", b"*.pyc\r\n.local/\r\n"),
        (b"", b".local/\n"),
        (b"# .local/\n", b"# .local/\n.local/\n"),
    ],
)
def test_the_ignore_file_keeps_what_it_holds(fresh: Path, before: bytes, after: bytes) -> None:
    (fresh / ".gitignore").write_bytes(before)
    _run("init")
    assert (fresh / ".gitignore").read_bytes() == after


@pytest.mark.parametrize("text", [".local\n", "/.local/\n", ".*\n", "*\n", ".local/*\n"])
def test_nothing_is_added_where_a_line_ignores_it_already(fresh: Path, text: str) -> None:
    (fresh / ".gitignore").write_text(text)
    assert "git ignores .local/ already" in _run("init")[1]
    assert (fresh / ".gitignore").read_text() == text


def test_an_exclude_file_counts_and_a_committed_file_does_not_fool_us(fresh: Path) -> None:
    (fresh / ".git/info").mkdir(exist_ok=True)
    (fresh / ".git/info/exclude").write_text(".local/\n")
    _run("init")
    _git(fresh, "add", "-f", FILE)
    assert "git ignores .local/ already" in _run("init")[1]
    assert not (fresh / ".gitignore").exists()


def test_without_git_the_text_alone_decides(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (fresh / ".gitignore").write_text("a\n")
    assert "added .local/" in _run("init")[1]
    assert "git ignores .local/ already" in _run("init")[1]
    assert (fresh / ".gitignore").read_text() == "a\n.local/\n"


def test_an_ignore_file_that_cannot_be_edited_is_named_with_what_to_do(fresh: Path) -> None:
    (fresh / ".gitignore").mkdir()
    status, _, err = _run("init")
    assert (status, err) == (
        1,
        f"agentbus: {fresh / '.gitignore'}: Is a directory; add the line .local/ yourself\n",
    )


def test_init_works_from_below_the_root_and_takes_an_identity(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "sub").mkdir()
    monkeypatch.chdir(fresh / "sub")
    assert _run("init", "--identity", "bus")[1].startswith(f'Agentbus: wrote {fresh / FILE} (identity "bus").\n')
    assert json.loads((fresh / FILE).read_text()) == {"identity": "bus"}


def test_init_is_refused_outside_of_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = _run("init")
    assert (status, out) == (1, "")
    assert err.startswith("agentbus: this is not a git repository")
    assert list(tmp_path.iterdir()) == []


def test_a_basename_that_is_no_name_is_refused_naming_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "trailing "
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    status, _, err = _run("init")
    assert status == 1
    assert "--identity NAME" in err
    assert [path.name for path in root.iterdir()] == [".git"]
    assert _run("init", "--identity", "mine")[0] == 0


# identity


def test_identity_prints_the_protocol_and_nothing_else(repo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert identity_module.run([]) == 0
    assert capfd.readouterr() == (render_protocol("project"), "")
    _write(repo, '{"identity": "bus"}')
    assert identity_module.run(["--format", "text"]) == 0
    assert capfd.readouterr() == (render_protocol("bus"), "")


@pytest.mark.parametrize("arguments", [["--format", "json"], ["--format=json"]])
@pytest.mark.usefixtures("repo")
def test_identity_for_a_hook_prints_one_object(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert identity_module.run(arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.endswith("}\n")
    assert json.loads(out) == {
        "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": render_protocol("project")}
    }


def test_identity_warns_on_stderr_on_one_line_each_and_succeeds(repo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entries = ", ".join(f'"{i}/\\u001b"' for i in range(30))
    _write(repo, f'{{"identity": "bus", "channels": [{entries}]}}')
    assert identity_module.run([]) == 0
    out, err = capfd.readouterr()
    assert out == render_protocol("bus")
    assert err.isprintable() or all(line.isprintable() for line in err.splitlines())
    assert err.splitlines()[0] == (
        'agentbus: .local/agentbus.json: channel "0/\\x1b" is not allowed: it must not hold "/"'
    )
    assert err.splitlines()[20:] == ["agentbus: and 10 more warnings"]


def test_identity_of_a_broken_file_warns_and_uses_the_basename(repo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _write(repo, "{")
    assert identity_module.run([]) == 0
    out, err = capfd.readouterr()
    assert out == render_protocol("project")
    assert err.startswith(f"agentbus: {repo / FILE}, line 1, column 2: ")


def test_identity_in_a_directory_that_is_gone_is_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert identity_module.run([]) == 0
    out, err = capfd.readouterr()
    assert out == render_protocol("agent")
    assert "the working directory is gone" in err
    assert _run("subscribe", "a")[0] == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--format"], ["--format", "xml"], ["extra"]])
def test_what_identity_does_not_know_is_left_to_click(arguments: list[str]) -> None:
    assert identity_module.run(arguments) is None


def test_clicks_identity_is_the_same(repo: Path) -> None:
    code = "from agentbus.cli import main; main(['identity', '--format', 'json'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] == render_protocol("project")
    assert _run("identity", "--format", "xml")[0] == 2


@pytest.fixture
def hook(repo: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`agentbus identity` as a harness starts it; its stdin stays open until the test closes it."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*_AGENTBUS, "identity"], cwd=repo, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        process.kill()


def test_identity_does_not_wait_for_a_stdin_that_stays_open(hook: subprocess.Popen[bytes]) -> None:
    assert hook.wait(30) == 0


def test_identity_does_not_wait_for_a_stdin_that_never_ends(hook: subprocess.Popen[bytes]) -> None:
    assert hook.stdin
    with pytest.raises(BrokenPipeError):
        _write_forever(hook.stdin.fileno())
    assert hook.wait(30) == 0


def _write_forever(descriptor: int) -> None:
    while True:
        os.write(descriptor, b"x" * 4096)


def test_identity_drains_what_a_hook_is_sent(repo: Path) -> None:
    sent = b"x" * (1 << 18)  # more than a pipe holds: its writer would meet a closed pipe
    reading, writing = os.pipe()
    with subprocess.Popen([*_AGENTBUS, "identity"], cwd=repo, stdin=reading, stdout=subprocess.PIPE) as process:
        os.close(reading)
        with open(writing, "wb") as pipe:
            assert pipe.write(sent) == len(sent)
        assert process.wait(30) == 0


def test_identity_survives_standard_streams_that_are_gone(repo: Path) -> None:
    for redirection in (">&-", "2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full"):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {redirection}', "sh", *_AGENTBUS, "identity"],
            cwd=repo,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, redirection


def test_identity_answers_while_an_editor_holds_the_lock(repo: Path) -> None:
    _write(repo, '{"identity": "bus"}')
    descriptor = os.open(repo / ".local", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        done = subprocess.run(
            [*_AGENTBUS, "identity"], cwd=repo, capture_output=True, text=True, timeout=30, check=True
        )
    finally:
        os.close(descriptor)
    assert done.stdout == render_protocol("bus")


def test_identity_writes_utf_8_whatever_the_locale(repo: Path) -> None:
    _write(repo, '{"identity": "é漢"}')
    environ = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run([*_AGENTBUS, "identity"], cwd=repo, env=environ, capture_output=True, check=True)
    assert done.stdout == render_protocol("é漢").encode()


_HEAVY = {
    "click",
    "typing",
    "pathlib",
    "dataclasses",
    "logging",
    "tempfile",
    "shutil",
    "subprocess",
    "msgspec",
    "fcntl",
}


def test_identity_imports_only_what_starts_fast(repo: Path) -> None:
    _write(repo, '{"identity": "bus", "channels": ["a", 7]}')
    code = "import sys; from agentbus import identity; identity.run([]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=repo, env=_bare(), capture_output=True, text=True, check=True
    )
    assert set(done.stderr.splitlines()[-1].split()).isdisjoint(_HEAVY)


def _bare() -> dict[str, str]:
    """An environment in which Python starts without site packages, and so without coverage's imports."""
    root = Path(identity_module.__file__).parents[1]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}
    return environ | {"PYTHONPATH": str(root)}


# The group


def test_the_commands_stand_in_the_order_of_their_use() -> None:
    names = main.list_commands(click.Context(main))
    assert names[:5] == ["mcp", "identity", "init", "subscribe", "unsubscribe"]


def test_the_version_is_printed() -> None:
    assert _run("--version") == (0, "agentbus 0.1.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing command. Try 'agentbus --help'."),
        (("subscribe",), "Missing argument 'CHANNEL'. Try 'agentbus subscribe --help'."),
        (("subscribe", "a", "b"), "Got unexpected extra argument (b). Try 'agentbus subscribe --help'."),
        (("init", "--name", "x"), "No such option '--name'. Try 'agentbus init --help'."),
        (("nothing\n",), "No such command 'nothing\\n'. Try 'agentbus --help'."),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_next_step(arguments: tuple[str, ...], says: str) -> None:
    status, out, err = _run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("agentbus: ")
    assert len(err.splitlines()) == 1
    assert err.endswith(f"{says.rpartition(' Try ')[2]}\n")


@pytest.mark.parametrize("command", ["identity", "init", "subscribe", "unsubscribe"])
def test_each_command_explains_itself(command: str) -> None:
    status, out, _ = _run(command, "--help")
    assert status == 0
    assert f"Usage: agentbus {command}" in out


def test_a_refusal_is_exit_1_and_a_bug_is_not_hidden() -> None:
    outcomes: list[BaseException] = [BusError(CONFLICT, "two\nlines"), click.Abort(), ZeroDivisionError()]
    seen = []
    for outcome in outcomes:
        group = type(main)("agentbus", callback=_raiser(outcome), invoke_without_command=True)
        result = CliRunner().invoke(group, [])
        seen.append((result.exit_code, result.stderr, type(result.exception)))
    assert seen == [
        (1, "agentbus: two\\nlines\n", SystemExit),
        (1, "agentbus: interrupted\n", SystemExit),
        (1, "", ZeroDivisionError),
    ]


def test_a_command_may_end_with_a_status_of_its_own() -> None:
    group = type(main)("agentbus", callback=lambda: click.get_current_context().exit(1), invoke_without_command=True)
    assert CliRunner().invoke(group, []).exit_code == 1


def _raiser(outcome: BaseException) -> object:
    def callback() -> None:
        raise outcome

    return callback
