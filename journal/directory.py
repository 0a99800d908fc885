"""The directories a journal lives in: made private, and judged fit to lock and write in. Opens no file."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING, Final

from journal.errors import UnusableError, UnwritableError
from journal.files import DIRECTORY_MODE, render_cause

if TYPE_CHECKING:
    from journal.files import Files

_MOUNTS: Final = "/proc/self/mountinfo"
# Locks there may hold on one side of the network, or of the virtual machine's border, only.
_NETWORK: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse", "fuseblk", "lustre", "ncpfs", "nfs", "nfs4", "smb2", "smb3", "smbfs"}
    | {"virtiofs", "vboxsf"}
)


def prepare(directory: str, files: Files, *, allow_network: bool) -> None:
    """Make the journal's directory and its parents where they are missing, and check the two that are ours.

    Their names are flushed whoever made them: that one may have been killed before it, or may never have meant to.

    Raises:
        UnusableError: one is another user's, a symlink, no directory, or on a filesystem without sound locks.
        UnwritableError: it cannot be made.
    """
    directory = os.path.abspath(directory)
    for path in (os.path.dirname(directory), directory):
        try:
            made = _make(path, files)
            require_own(path)
            _make_private(path)
            if not made:
                _flush_name(path, files)
        except OSError as error:
            raise UnwritableError(f"{path}: {render_cause(error)}") from error
    if not allow_network:
        kind = network_filesystem(directory)
        if kind:
            raise UnusableError(
                directory, f"it is on a {kind} filesystem, where locks may not hold; see allow_network_filesystem"
            )


def require_own(path: str) -> None:
    """Judge a directory of the journal as it is; its mode is another matter, for we set that ourselves.

    Raises:
        UnusableError: it is a symlink, no directory, another user's, or a place for everybody's files.
        OSError: it cannot be looked at.
    """
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode):
        raise UnusableError(path, "it is a symlink")
    if not stat.S_ISDIR(facts.st_mode):
        raise UnusableError(path, "it is no directory")
    if facts.st_uid != os.geteuid():
        raise UnusableError(path, f"it belongs to user {facts.st_uid}, not to {os.geteuid()}")
    if facts.st_mode & stat.S_ISVTX:
        raise UnusableError(path, "it is a place for everybody's files; name a directory of its own in it")


def network_filesystem(path: str) -> str:
    """The type of the filesystem that holds a path if locks there may hold on one side only, or ""."""
    kind = _filesystem(path)
    return kind if kind in _NETWORK or kind.startswith("fuse.") else ""


def mount_type(mountinfo: str, path: str) -> str:
    """Type of the filesystem that holds an absolute path without symlinks, by the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        point = _unescape(parts[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts at one place the later one is seen
            best, kind = point, rest.split(" ")[0]
    return kind


def _make(path: str, files: Files) -> bool:
    """Make a directory and those above it, durably; false if it was there."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process is as quick; its fsync may not be
            files.mkdir(each)
        files.fsync_directory(os.path.dirname(each))
    return bool(missing)


def _flush_name(path: str, files: Files) -> None:
    with contextlib.suppress(PermissionError):  # a parent that we may not read is not ours: somebody made it for us
        files.fsync_directory(os.path.dirname(path))


def _make_private(path: str) -> None:
    if stat.S_IMODE(os.lstat(path).st_mode) != DIRECTORY_MODE:
        os.chmod(path, DIRECTORY_MODE)


def _filesystem(path: str) -> str:
    if not sys.platform.startswith("linux"):
        return ""
    with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
        return mount_type(mounts.read(), os.path.realpath(path))


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
