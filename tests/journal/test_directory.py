from __future__ import annotations

import builtins
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from journal import Files, UnusableError, UnwritableError
from journal.directory import mount_type, prepare
from tests.journal.conftest import FaultyFiles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.conftest import Kit

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
22 21 0:5 / /home rw - nfs4 server:/home rw
23 22 0:6 / /home/me/with\\040space rw shared:2 master:1 - fuse.sshfs me@host rw
24 21 0:7 / /home rw - xfs /dev/b rw
25 21 0:8 / /homestead rw - 9p hostshare rw
not a mount
26 21 0:8 / /short -
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc", "ext4"),
        ("/home", "xfs"),
        ("/home/me", "xfs"),
        ("/home/me/with space/x", "fuse.sshfs"),
        ("/homestead/x", "9p"),
        ("/homeste", "ext4"),
    ],
)
def test_the_filesystem_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert mount_type(MOUNTS, path) == kind


def test_no_mounts_known_is_no_type() -> None:
    assert mount_type("", "/etc") == ""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "virtiofs", "fuse.sshfs", "fuseblk"])
def test_a_network_filesystem_is_refused_unless_allowed(kit: Kit, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = builtins.open

    def mounts(path: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- stands for open
        if path == "/proc/self/mountinfo":
            return io.StringIO(f"1 1 0:1 / / rw - {kind} x rw\n")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", mounts)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(UnusableError, match=f"on a {kind} filesystem") as caught:
        kit.commit(kit.open())
    assert caught.value.directory == str(kit.directory)
    kit.commit(kit.open(allow_network_filesystem=True))
    monkeypatch.setattr(sys, "platform", "darwin")
    kit.commit(kit.open())


def test_another_users_directory_is_refused_by_name(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.commit(kit.open())
    monkeypatch.setattr(os, "geteuid", lambda: 12345678)
    with pytest.raises(UnusableError, match="belongs to user") as caught:
        kit.commit(kit.open())
    assert caught.value.directory == str(kit.data)


def test_a_symlink_or_a_file_is_no_directory(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    kit.data.symlink_to(tmp_path / "real")
    with pytest.raises(UnusableError, match="it is a symlink"):
        kit.commit(kit.open())
    kit.data.unlink()
    kit.data.mkdir()
    kit.directory.write_text("")
    with pytest.raises(UnusableError, match="it is no directory"):
        kit.commit(kit.open())


def test_a_directory_that_cannot_be_made_is_unwritable(kit: Kit) -> None:
    files = FaultyFiles()
    for verb in ("mkdir", "fsync"):
        files.fail_verbs(verb)
        with pytest.raises(UnwritableError, match="Input/output error"):
            kit.commit(kit.open(files=files))
    files.fail_nothing()
    assert kit.commit(kit.open(files=files)).seq == 3


def test_two_processes_may_make_it_at_once(tmp_path: Path) -> None:
    class Late(Files):
        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            super().mkdir(path)

    prepare(str(tmp_path / "a" / "b" / "c"), Late(), allow_network=False)
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_directory_for_everybodys_files_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(UnusableError, match="a place for everybody's files"):
        prepare(str(shared / "journal"), Files(), allow_network=False)
    assert shared.stat().st_mode & 0o7777 == 0o1777
