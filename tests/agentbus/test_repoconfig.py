"""The repository file: where it is found, what it says, and what its editors keep, refuse and survive."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbus import replace, repoconfig
from agentbus.errors import BusError
from agentbus.repoconfig import RepoFileError
from agentbus.repository import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT = ("general", "memory")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository called ``project``, as far as we look at one."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return root


def _write(root: Path, text: str | bytes) -> Path:
    file = root / FILE
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def _json(root: Path) -> object:
    return json.loads((root / FILE).read_text(encoding="utf-8"))


def _tree(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def _git(cwd: Path, *arguments: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *options, *arguments], cwd=cwd, env=environ, check=True, capture_output=True)


@pytest.fixture
def main_checkout(tmp_path: Path) -> Path:
    """A real repository called ``main``, with one commit."""
    root = tmp_path / "main"
    root.mkdir()
    _git(root, "init", "-q")
    _git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


@pytest.fixture
def worktree(main_checkout: Path) -> Path:
    """A real linked worktree of ``main``, beside it, called ``feature``."""
    _git(main_checkout, "worktree", "add", "-q", "../feature")
    return main_checkout.parent / "feature"


# Reading


def test_without_a_file_the_defaults_hold_and_the_root_gives_the_identity(repo: Path) -> None:
    (repo / "src/deep").mkdir(parents=True)
    file = repoconfig.read(str(repo / "src/deep"))
    assert (file.path, file.identity, file.channels) == (None, "project", _DEFAULT)
    assert (file.failed, file.warnings) == ({}, ())


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        ('{"identity": "bus", "channels": ["general", "memory", "reviews"]}', ("general", "memory", "reviews")),
        ('{"identity": "bus"}', _DEFAULT),
        ('{"identity": "bus", "channels": []}', ()),
        ('{"identity": "bus", "channels": ["b", "a", "b"]}', ("b", "a")),
        ('{"identity": "bus", "channels": ["e\\u0301"]}', ("é",)),
        (b'\xef\xbb\xbf{\r\n  "identity": "bus",\r\n  "channels": ["a"]\r\n}\r\n', ("a",)),
    ],
)
def test_the_list_is_the_files_or_the_default_where_the_key_is_absent(
    repo: Path, text: str | bytes, channels: tuple[str, ...]
) -> None:
    path = _write(repo, text)
    file = repoconfig.read(str(repo))
    assert (file.path, file.identity, file.channels) == (str(path), "bus", channels)
    assert (file.failed, file.warnings) == ({}, ())


def test_an_entry_that_breaks_the_name_rule_is_reported_and_otherwise_ignored(repo: Path) -> None:
    _write(repo, '{"channels": ["general", "a/b", 7, null, {"x": 1.0}, " ", "\\ud83d", "' + "x" * 300 + '"]}')
    file = repoconfig.read(str(repo))
    assert file.channels == ("general",)
    assert list(file.failed) == ["a/b", "7", "null", '{"x":1.0}', " ", "\\ud83d", "x" * 200 + "…"]
    assert file.failed["a/b"] == 'channel "a/b" is not allowed: it must not hold "/"'
    assert file.failed["7"] == "channel 7 is not allowed: it must be text"
    assert list(file.warnings) == [f"{FILE}: {message}" for message in file.failed.values()]


def test_the_nearest_file_wins_and_the_walk_ends_at_the_nearest_git(repo: Path) -> None:
    _write(repo.parent, '{"identity": "outside"}')
    assert repoconfig.read(str(repo)).identity == "project"
    (repo / "sub").mkdir()
    _write(repo, '{"identity": "root"}')
    assert repoconfig.read(str(repo / "sub")).identity == "root"
    _write(repo / "sub", '{"channels": ["near"]}')
    near = repoconfig.read(str(repo / "sub"))
    assert (near.identity, near.channels) == ("project", ("near",))


def test_outside_of_repositories_a_file_above_counts_and_the_directory_gives_the_identity(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert repoconfig.identity(str(tmp_path / "here")) == ("here", ())
    _write(tmp_path, '{"identity": "above"}')
    assert repoconfig.identity(str(tmp_path / "here")) == ("above", ())


def test_where_the_directory_gives_no_name_the_identity_is_agent_with_a_warning(tmp_path: Path) -> None:
    for name in ("x" * 129, "trailing ", os.fsdecode(b"\xff")):
        directory = tmp_path / name
        directory.mkdir()
        identity, (warning,) = repoconfig.identity(str(directory))
        assert identity == "agent"
        assert "gives no identity" in warning
        assert warning.encode()
    assert repoconfig.identity("/")[0] == "agent"


_TRAILING_COMMA = (  # Python's own words, and they have become better
    "line 1, column 19: Illegal trailing comma"
    if sys.version_info >= (3, 13)
    else "line 1, column 20: Expecting property name"
)
_BROKEN = [
    ("", "line 1, column 1: Expecting value"),
    ("null", "line 1, column 1: the file must hold one JSON object"),
    ("[]", "line 1, column 1: the file must hold one JSON object"),
    ('// mine\n{"identity": "bus"}', "line 1, column 1: Expecting value"),
    ('{"identity": "bus", // mine\n}', "line 1, column 21: Expecting property name"),
    ('{"identity": "bus",}', _TRAILING_COMMA),
    ('{"identity": "bus"', "line 1, column 19: Expecting ',' delimiter"),
    ('{\n<<<<<<< HEAD\n"identity": "a"\n=======\n', "line 2, column 1: Expecting property name"),
    ('{"identity": "bus"} {}', "line 1, column 21: Extra data"),
    ('{"identity": "bus",\n "identity": "b"}', 'line 2, column 2: duplicate key "identity"'),
    ('{"x": {"a": 1, "a": 1}}', 'line 1, column 16: duplicate key "a"'),
    ('{"x": NaN}', "line 1, column 7: NaN is not JSON"),
    ('{"channels": "general"}', 'line 1, column 14: "channels" must be a list of names, not "general"'),
    ('{\n  "channels": null}', 'line 2, column 15: "channels" must be a list of names, not null'),
    ('{"channels": {"general": true}}', "line 1, column 14"),
    ('{"identity": 7}', 'line 1, column 14: "identity": name 7 is not allowed: it must be text'),
    ('{"identity": null}', "line 1, column 14"),
    ('{"channels": ["a"], "identity": "a/b"}', 'line 1, column 33: "identity": name "a/b" is not allowed'),
    (b'{"identity":\n "\xff"}', "line 2, column 3: this is not UTF-8"),
    (b"\xff\xfe{\x00}\x00", "line 1, column 1: this is not UTF-8"),
    (b"\xef\xbb\xbf\xef\xbb\xbf{}", "line 1, column 1"),
    ("[" * 100_000, "line 1, column 1: nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), _BROKEN)
def test_a_broken_file_means_the_defaults_for_readers_who_say_where_it_is_broken(
    repo: Path, text: str | bytes, says: str
) -> None:
    path = _write(repo, text)
    file = repoconfig.read(str(repo))
    assert (file.identity, file.channels) == ("project", _DEFAULT)
    assert list(file.failed) == [FILE]
    assert file.failed[FILE].startswith(f"{path}, {says}")
    assert file.warnings == (file.failed[FILE],)


@pytest.mark.parametrize(("text", "says"), _BROKEN)
def test_a_broken_file_is_refused_by_every_editor_and_keeps_every_byte(
    repo: Path, text: str | bytes, says: str
) -> None:
    path = _write(repo, text)
    before, tree = path.read_bytes(), _tree(repo)
    root = str(repo)
    for edit in (
        lambda: repoconfig.add_channel(root, "new"),
        lambda: repoconfig.remove_channel(root, "general"),
        lambda: repoconfig.add_channel_here(root, "new"),
        lambda: repoconfig.remove_channel_here(root, "general"),
        lambda: repoconfig.init(root, "new"),
    ):
        with pytest.raises(RepoFileError) as caught:
            edit()
        assert caught.value.message.startswith(f"{path}, {says}")
    assert path.read_bytes() == before
    assert _tree(repo) == tree


def test_what_is_no_regular_file_is_reported_refused_and_never_waited_for(repo: Path) -> None:
    path = repo / FILE
    (repo / ".local").mkdir()
    for make, says in (
        (path.mkdir, "cannot read it: Is a directory"),
        (lambda: os.mkfifo(path), "cannot read it: not a regular file"),
        (lambda: path.symlink_to("nowhere"), "symbolic link to nowhere: No such file"),
        (lambda: path.symlink_to("agentbus.json"), "symbolic link to agentbus.json: Too many levels"),
        (lambda: path.write_bytes(b" " * ((1 << 20) + 1)), "longer than 1048576 bytes"),
    ):
        make()
        assert says in repoconfig.read(str(repo)).failed[FILE]
        with pytest.raises(RepoFileError, match=says):
            repoconfig.add_channel_here(str(repo), "new")
        assert _tree(repo / ".local") == {"agentbus.json"}
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_file_we_may_not_even_look_for_is_reported(repo: Path) -> None:
    (repo / ".local").symlink_to(".local")
    file = repoconfig.read(str(repo))
    assert "Too many levels of symbolic links" in file.failed[FILE]


# Editing


def test_adding_without_a_channels_key_keeps_the_defaults(repo: Path) -> None:
    path = _write(repo, '{ "identity": "bus" }')
    file = repoconfig.add_channel_here(str(repo), "reviews")
    assert file.channels == ("general", "memory", "reviews")
    assert path.read_text() == (
        '{\n  "identity": "bus",\n  "channels": [\n    "general",\n    "memory",\n    "reviews"\n  ]\n}\n'
    )


def test_removing_without_a_channels_key_writes_the_defaults_without_it(repo: Path) -> None:
    _write(repo, '{"identity": "bus"}')
    assert repoconfig.remove_channel_here(str(repo), "general").channels == ("memory",)
    assert _json(repo) == {"identity": "bus", "channels": ["memory"]}
    assert repoconfig.remove_channel_here(str(repo), "memory").channels == ()
    assert _json(repo) == {"identity": "bus", "channels": []}
    assert (repo / FILE).read_text().endswith('"channels": []\n}\n')


@pytest.mark.parametrize(
    "text", ['{"identity":"bus"}', '{"channels":["general","memory","general"]}', '{"channels":["memory","general"] }']
)
def test_an_edit_that_changes_nothing_leaves_every_byte(repo: Path, text: str) -> None:
    path = _write(repo, text)
    inode = path.stat().st_ino
    repoconfig.add_channel_here(str(repo), "general")
    repoconfig.remove_channel_here(str(repo), "absent")
    assert (path.read_text(), path.stat().st_ino) == (text, inode)


def test_an_edit_removes_duplicates_keeps_the_order_and_leaves_what_breaks_the_rule(repo: Path) -> None:
    _write(repo, '{"channels": ["b", "a/b", "a", "b", 1.0, "a", "a/b", "e\\u0301", "é", {"k": [1e400]}]}')
    repoconfig.add_channel_here(str(repo), "c")
    text = (repo / FILE).read_text()
    assert [line.strip().rstrip(",") for line in text.splitlines()[2:9]] == [
        '"b"', '"a/b"', '"a"', "1.0", '"a/b"', '"e\\u0301"', "{",
    ]  # fmt: skip
    assert "1e400" in text
    repoconfig.remove_channel_here(str(repo), "é")
    assert repoconfig.read(str(repo)).channels == ("b", "a", "c")


def test_a_name_that_breaks_the_rule_is_refused_and_nothing_is_made(repo: Path) -> None:
    for name in ("a/b", "", " x", "x" * 129, "a\nb", "\ud83d"):
        for edit in (repoconfig.add_channel_here, repoconfig.remove_channel_here, repoconfig.add_channel):
            with pytest.raises(BusError, match=r"^channel"):
                edit(str(repo), name)
    assert _tree(repo) == {".git"}


def test_a_missing_file_is_made_by_adding_and_refused_by_removing(repo: Path) -> None:
    for remove in (repoconfig.remove_channel_here, repoconfig.remove_channel):
        with pytest.raises(RepoFileError, match=r"no \.local/agentbus\.json"):
            remove(str(repo), "general")
    assert _tree(repo) == {".git"}
    repoconfig.add_channel_here(str(repo), "reviews")
    assert _json(repo) == {"identity": "project", "channels": ["general", "memory", "reviews"]}
    assert _tree(repo) == {".git", ".local", FILE}


def test_a_default_channel_may_be_the_first_that_is_added(repo: Path) -> None:
    repoconfig.add_channel_here(str(repo), "memory")
    assert _json(repo) == {"identity": "project", "channels": ["general", "memory"]}


def test_no_file_is_made_where_the_directory_gives_no_identity(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 129)
    (root / ".git").mkdir(parents=True)
    for edit in (repoconfig.add_channel_here, repoconfig.add_channel, repoconfig.init):
        with pytest.raises(RepoFileError, match=r"init --identity NAME"):
            edit(str(root), None if edit is repoconfig.init else "reviews")  # type: ignore[arg-type]  # three shapes
    assert _tree(root) == {".git"}


def test_the_command_lines_edit_needs_the_repository_root(repo: Path) -> None:
    (repo / "sub").mkdir()
    _write(repo, "{}")
    for edit in (repoconfig.add_channel_here, repoconfig.remove_channel_here):
        with pytest.raises(RepoFileError) as caught:
            edit(str(repo / "sub"), "general")
        assert caught.value.message == "run this from the repository root"


def test_the_servers_edit_is_of_the_file_register_reads(repo: Path) -> None:
    (repo / "sub/deep").mkdir(parents=True)
    assert repoconfig.add_channel(str(repo / "sub/deep"), "a").path == str(repo / FILE)
    _write(repo / "sub", '{"channels": []}')
    assert repoconfig.add_channel(str(repo / "sub/deep"), "b").channels == ("b",)
    assert _json(repo / "sub") == {"channels": ["b"]}
    assert repoconfig.remove_channel(str(repo / "sub/deep"), "b").channels == ()
    assert _json(repo) == {"identity": "project", "channels": ["general", "memory", "a"]}


def test_outside_of_repositories_the_server_makes_no_file_but_edits_one_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(RepoFileError, match="not in a git repository"):
        repoconfig.add_channel(str(tmp_path), "a")
    assert _tree(tmp_path) == set()
    _write(tmp_path, "{}")
    assert repoconfig.add_channel(str(tmp_path), "a").channels == ("general", "memory", "a")


_KEYS = st.text().filter(lambda key: key not in ("identity", "channels"))
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(), lambda v: st.lists(v) | st.dictionaries(_KEYS, v), max_leaves=10
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_KEYS, _VALUES, max_size=4), st.lists(st.sampled_from("abcd"), max_size=4))
def test_foreign_keys_and_the_rest_of_the_list_survive_adding_and_removing(
    repo: Path, foreign: dict[str, object], listed: list[str]
) -> None:
    value = {"identity": "bus", **foreign, "channels": listed}
    _write(repo, json.dumps(value, ensure_ascii=False))
    once = list(dict.fromkeys(listed))
    repoconfig.add_channel_here(str(repo), "new")
    expected = {**value, "channels": [*once, "new"]}
    assert (repo / FILE).read_text(encoding="utf-8") == json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    repoconfig.remove_channel_here(str(repo), "new")
    assert _json(repo) == {**value, "channels": once}


# Files as they are on disk


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_an_edit_keeps_the_mode_whatever_the_umask(repo: Path, mode: int) -> None:
    path = _write(repo, "{}")
    path.chmod(mode)
    with _umask(0o077):
        repoconfig.add_channel_here(str(repo), "a")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_the_umask_gives(repo: Path, umask: int, mode: int) -> None:
    with _umask(umask):
        repoconfig.add_channel_here(str(repo), "a")
    assert stat.S_IMODE((repo / FILE).stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_edit_by_root_keeps_the_owner(repo: Path) -> None:
    path = _write(repo, "{}")
    os.chown(path, 1234, 4321)
    repoconfig.add_channel_here(str(repo), "a")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


def test_a_symbolic_link_is_written_through(repo: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles/bus.json"
    target.parent.mkdir()
    target.write_text('{"identity": "bus"}')
    (repo / ".local").mkdir()
    (repo / FILE).symlink_to("../../dotfiles/bus.json")
    repoconfig.add_channel_here(str(repo), "a")
    assert (repo / FILE).readlink() == Path("../../dotfiles/bus.json")
    assert json.loads(target.read_text())["channels"] == ["general", "memory", "a"]
    assert _tree(target.parent) == {"bus.json"}
    assert _tree(repo) == {".git", ".local", FILE}


def test_a_directory_that_is_a_link_is_followed_and_one_to_nowhere_is_refused(repo: Path, tmp_path: Path) -> None:
    (repo / ".local").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RepoFileError, match="No such file"):
        repoconfig.add_channel_here(str(repo), "a")
    (tmp_path / "elsewhere").mkdir()
    repoconfig.add_channel_here(str(repo), "a")
    assert (tmp_path / "elsewhere/agentbus.json").exists()


def test_a_file_in_place_of_the_directory_is_refused_by_name(repo: Path) -> None:
    (repo / ".local").write_text("mine")
    with pytest.raises(RepoFileError, match=f"{FILE}: Not a directory"):
        repoconfig.add_channel_here(str(repo), "a")
    assert (repo / ".local").read_text() == "mine"


def test_what_a_killed_editor_left_behind_is_in_nobodys_way(repo: Path) -> None:
    path = _write(repo, "{}")
    path.with_name("agentbus.json.agentbus-new").write_text('{"identity": "ha')
    repoconfig.add_channel_here(str(repo), "a")
    assert _tree(repo / ".local") == {"agentbus.json"}
    assert repoconfig.read(str(repo)).channels == ("general", "memory", "a")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(repo: Path) -> None:
    path = _write(repo, "{}")
    with _no_file_may_grow(), pytest.raises(RepoFileError, match="File too large"):
        repoconfig.add_channel_here(str(repo), "a")
    assert (path.read_text(), _tree(repo / ".local")) == ("{}", {"agentbus.json"})


def test_a_failed_first_write_leaves_no_directory(repo: Path) -> None:
    with _no_file_may_grow(), pytest.raises(RepoFileError, match="File too large"):
        repoconfig.add_channel_here(str(repo), "a")
    assert _tree(repo) == {".git"}


def test_a_directory_that_cannot_be_flushed_is_said_to_hold_the_new_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # the kernel refuses to flush a pipe
    try:
        with pytest.raises(OSError, match="written, but it may not survive a power cut"):
            replace._replace(str(tmp_path / "file"), reading, b"new")
    finally:
        os.close(reading)
        os.close(writing)
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_lock_on_a_directory_that_was_swapped_away_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
        with pytest.raises(OSError, match="replaced meanwhile"):
            replace._lock(descriptor, str(tmp_path / "a"))
    finally:
        os.close(descriptor)


def test_an_editor_that_never_ends_is_waited_for_a_while_and_readers_do_not_wait(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(repo, "{}")
    monkeypatch.setattr(replace, "LOCK_WAIT_S", 0.05)
    descriptor = os.open(repo / ".local", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert repoconfig.identity(str(repo)) == ("project", ())
        with pytest.raises(RepoFileError, match="another process is editing it; try again"):
            repoconfig.add_channel_here(str(repo), "a")
    finally:
        os.close(descriptor)
    assert path.read_text() == "{}"


def test_an_editor_does_over_what_it_had_in_mind_when_another_came_first(repo: Path) -> None:
    root = str(repo)
    with replace.exclusive(str(repo / FILE)) as write:
        waiting = threading.Thread(target=repoconfig.add_channel_here, args=(root, "second"))
        same = threading.Thread(target=repoconfig.add_channel_here, args=(root, "first"))
        waiting.start()
        same.start()
        write(b'{"channels": ["first"]}')
    waiting.join()
    same.join()
    assert _json(repo) == {"channels": ["first", "second"]}


_EDITOR = """
import sys
from agentbus import repoconfig
root, name = sys.argv[1:]
repoconfig.add_channel_here(root, name)
repoconfig.add_channel_here(root, f"{name}-more")
repoconfig.remove_channel_here(root, f"{name}-more")
"""


@pytest.mark.parametrize("text", [None, '{"identity": "bus", "mine": 1.0}'])
def test_twenty_editors_at_once_all_survive_and_no_reader_sees_half_a_file(repo: Path, text: str | None) -> None:
    if text:
        _write(repo, text)
    names = [f"channel-{i}" for i in range(20)]
    editors = [subprocess.Popen([sys.executable, "-c", _EDITOR, repo, name]) for name in names]
    while any(editor.poll() is None for editor in editors):
        assert repoconfig.read(str(repo)).failed == {}
    assert {editor.returncode for editor in editors} == {0}
    file = repoconfig.read(str(repo))
    assert (file.channels[:2], sorted(file.channels[2:])) == (_DEFAULT, sorted(names))
    assert _tree(repo) == {".git", ".local", FILE}
    assert text is None or '"mine": 1.0' in (repo / FILE).read_text()


# Worktrees and submodules, made by git itself


def test_a_linked_worktree_is_its_main_checkout(main_checkout: Path, worktree: Path) -> None:
    (worktree / "sub").mkdir()
    assert repoconfig.identity(str(worktree / "sub")) == ("main", ())
    path = _write(main_checkout, '{"channels": ["a"]}')
    file = repoconfig.read(str(worktree / "sub"))
    assert (file.path, file.identity, file.channels) == (str(path), "main", ("a",))
    repoconfig.add_channel(str(worktree / "sub"), "b")
    assert _json(main_checkout) == {"channels": ["a", "b"]}
    assert not (worktree / ".local").exists()


def test_the_server_in_a_worktree_makes_the_file_in_the_main_checkout(main_checkout: Path, worktree: Path) -> None:
    repoconfig.add_channel(str(worktree), "a")
    assert _json(main_checkout) == {"identity": "main", "channels": ["general", "memory", "a"]}
    assert not (worktree / ".local").exists()


@pytest.mark.parametrize("edit", ["add", "remove"])
def test_the_command_line_gives_a_worktree_a_file_of_its_own_that_begins_as_a_copy(
    main_checkout: Path, worktree: Path, edit: str
) -> None:
    text = '{"x": 1.0, "identity": "bus", "channels": ["a", "a/b", "c"]}'
    _write(main_checkout, text)
    if edit == "add":
        file = repoconfig.add_channel_here(str(worktree), "d")
    else:
        file = repoconfig.remove_channel_here(str(worktree), "c")
    own = ["a", "a/b", "c", "d"] if edit == "add" else ["a", "a/b"]
    assert (file.path, file.identity) == (str(worktree / FILE), "bus")
    assert _json(worktree) == {"x": 1.0, "identity": "bus", "channels": own}
    assert '"x": 1.0' in (worktree / FILE).read_text()
    assert (main_checkout / FILE).read_text() == text
    assert repoconfig.read(str(worktree)).channels == tuple(name for name in own if name != "a/b")


def test_an_edit_that_changes_nothing_gives_a_worktree_no_file(main_checkout: Path, worktree: Path) -> None:
    _write(main_checkout, '{"channels": ["a"]}')
    assert repoconfig.add_channel_here(str(worktree), "a").channels == ("a",)
    assert not (worktree / ".local").exists()


def test_a_worktree_without_any_file_gets_its_own_with_the_main_checkouts_identity(worktree: Path) -> None:
    repoconfig.add_channel_here(str(worktree), "a")
    assert _json(worktree) == {"identity": "main", "channels": ["general", "memory", "a"]}
    assert not (worktree.parent / "main/.local").exists()


def test_a_worktree_copies_no_broken_file(main_checkout: Path, worktree: Path) -> None:
    path = _write(main_checkout, "{")
    with pytest.raises(RepoFileError, match=f"{path}, line 1"):
        repoconfig.add_channel_here(str(worktree), "a")
    assert not (worktree / ".local").exists()


def test_worktrees_of_a_bare_repository_are_named_by_it(main_checkout: Path, tmp_path: Path) -> None:
    _git(tmp_path, "clone", "-q", "--bare", str(main_checkout), "thing.git")
    _git(tmp_path / "thing.git", "worktree", "add", "-q", "../one")
    assert repoconfig.identity(str(tmp_path / "one")) == ("thing", ())
    assert repoconfig.add_channel(str(tmp_path / "one"), "a").path == str(tmp_path / "one" / FILE)


def test_a_hidden_bare_repository_stands_for_the_directory_it_is_in(main_checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    _git(tmp_path / "thing", "clone", "-q", "--bare", str(main_checkout), ".bare")
    (tmp_path / "thing/.git").write_text("gitdir: ./.bare\n")
    _git(tmp_path / "thing", "worktree", "add", "-q", "one")
    assert repoconfig.identity(str(tmp_path / "thing/one")) == ("thing", ())
    assert repoconfig.identity(str(tmp_path / "thing")) == ("thing", ())


def test_a_submodule_is_a_repository_of_its_own(main_checkout: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    _git(outer, "init", "-q")
    _git(outer, "submodule", "--quiet", "add", str(main_checkout), "libs/inner")
    _write(outer, '{"identity": "outer-bus"}')
    inner = outer / "libs/inner"
    assert (inner / ".git").is_file()
    assert repoconfig.identity(str(inner)) == ("inner", ())
    repoconfig.add_channel(str(inner), "a")
    assert _json(inner) == {"identity": "inner", "channels": ["general", "memory", "a"]}
    assert _json(outer) == {"identity": "outer-bus"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gitdir: ../gone/.git/worktrees/x\n", 'its gitdir "../gone/.git/worktrees/x" is no directory'),
        ("gitdir:\n", 'its gitdir "" is no directory'),
        ("hello\n", 'it does not begin with "gitdir:"'),
    ],
)
def test_a_broken_git_file_is_named_and_its_directory_stands_alone(tmp_path: Path, text: str, says: str) -> None:
    root = tmp_path / "stray"
    root.mkdir()
    (root / ".git").write_text(text)
    name, (warning,) = repoconfig.identity(str(root))
    assert name == "stray"
    assert warning.startswith(f"{root / '.git'} is broken: {says}")
    assert repoconfig.add_channel_here(str(root), "a").warnings == (warning,)
    assert _json(root) == {"identity": "stray", "channels": ["general", "memory", "a"]}


def test_a_worktree_whose_repository_is_gone_is_named(main_checkout: Path, worktree: Path) -> None:
    (main_checkout / ".git/worktrees/feature/commondir").write_text("../../../gone\n")
    name, (warning,) = repoconfig.identity(str(worktree))
    assert name == "feature"
    assert 'its commondir "../../../gone" is no directory' in warning


# init


def test_init_writes_an_identity_once_and_finds_it_again(repo: Path) -> None:
    (repo / "sub").mkdir()
    done = repoconfig.init(str(repo / "sub"), None)
    assert (done.path, done.home, done.identity, done.written) == (str(repo / FILE), str(repo), "project", True)
    assert (repo / FILE).read_text() == '{\n  "identity": "project"\n}\n'
    assert not repoconfig.init(str(repo), None).written
    assert not repoconfig.init(str(repo), "project").written


def test_init_changes_the_identity_only_when_asked_and_nothing_else_ever(repo: Path) -> None:
    _write(repo, '{"x": 1.0, "identity": "bus", "channels": []}')
    assert repoconfig.init(str(repo), None).identity == "bus"
    assert repoconfig.init(str(repo), "other").identity == "other"
    assert _json(repo) == {"x": 1.0, "identity": "other", "channels": []}
    _write(repo, '{"channels": ["a"]}')
    assert repoconfig.init(str(repo), None).written
    assert _json(repo) == {"channels": ["a"], "identity": "project"}


def test_init_is_refused_outside_of_repositories_and_for_a_bad_name(tmp_path: Path, repo: Path) -> None:
    with pytest.raises(RepoFileError, match="not a git repository"):
        repoconfig.init(str(tmp_path), None)
    with pytest.raises(BusError, match='name "a/b" is not allowed'):
        repoconfig.init(str(repo), "a/b")
    assert _tree(repo) == {".git"}


def test_init_in_a_worktree_sets_up_the_main_checkout_unless_it_has_its_own_file(
    main_checkout: Path, worktree: Path
) -> None:
    assert repoconfig.init(str(worktree), None).path == str(main_checkout / FILE)
    assert not (worktree / ".local").exists()
    _write(worktree, '{"identity": "own"}')
    done = repoconfig.init(str(worktree), None)
    assert (done.path, done.home, done.identity) == (str(worktree / FILE), str(worktree), "own")


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _no_file_may_grow() -> Iterator[None]:
    """A full disk, as near as a test can come without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
