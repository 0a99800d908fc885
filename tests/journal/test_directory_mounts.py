"""Which filesystems are refused, read from a mount table as Linux writes it."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

import pytest

from journal import Files, UnusableError, UnwritableError
from journal.directory import mount_type, prepare
from tests.journal.conftest import FaultyFiles

if TYPE_CHECKING:
    from pathlib import Path

ODD = r"""21 1 8:1 / / rw - ext4 /dev/root rw
22 21 0:5 / - nfs4 too:/short rw
23 21 0:6 / /nothing -
24 21 0:7 / /five - 9p five rw
25 21 0:8 / /tab\011x rw - cifs a rw
26 21 0:9 / /feed\012x rw - nfs a rw
27 21 0:10 / /back\134x rw - ceph a rw
28 21 0:11 / /spelt\134040out rw - afs a rw
29 21 0:12 / /home/old~ rw - smb3 a rw
30 21 0:13 / /dash rw - lustre a - b rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/too", "ext4"),
        ("/nothing/x", "ext4"),
        ("/five/x", "9p"),
        ("/tab\tx/y", "cifs"),
        ("/feed\nx", "nfs"),
        ("/back\\x", "ceph"),
        ("/spelt\\040out", "afs"),
        ("/home/old~/x", "smb3"),
        ("/home/old/x", "ext4"),
        ("/dash", "lustre"),
    ],
)
def test_a_mount_is_found_whatever_its_line_looks_like(path: str, kind: str) -> None:
    assert mount_type(ODD.replace("/nothing -\n", "/nothing - \n"), path) == kind


def prepare_on(kind: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = directory / "mountinfo"
    table.write_bytes(b"1 1 0:1 / / rw - %b x rw\n2 1 0:2 / /caf\xe9 rw - ext4 x rw\n" % kind.encode())
    monkeypatch.setattr("journal.directory._MOUNTS", str(table))
    monkeypatch.setattr(sys, "platform", "linux")
    prepare(str(directory / "data" / "journal"), Files(), allow_network=False)


NETWORK = (
    "9p afs ceph cifs fuse fuseblk fuse.rclone lustre ncpfs nfs nfs4 smb2 smb3 smbfs virtiofs vboxsf fuse.gvfsd-fuse"
)


@pytest.mark.parametrize("kind", NETWORK.split())
def test_locks_of_these_hold_on_one_side_only(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableError, match=f"on a {kind} filesystem"):
        prepare_on(kind, tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fusectl", "f2fs"])
def test_others_are_welcome(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_on(kind, tmp_path, monkeypatch)


def test_a_parent_that_may_not_be_read_is_not_ours_to_flush(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "journal"
    prepare(str(directory), Files(), allow_network=True)
    files = FaultyFiles()
    files.fail_verbs("open", code=errno.EACCES)
    prepare(str(directory), files, allow_network=True)
    files.fail_verbs("open", code=errno.EIO)
    with pytest.raises(UnwritableError, match="Input/output error"):
        prepare(str(directory), files, allow_network=True)
