"""Filesystems of all kinds for a while: full, lying, read-only. Needs root and Linux; says what is missing.

Whatever is mounted here is unmounted when its block ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SYSTEM_PATH: Final = os.defpath + ":/usr/sbin:/sbin"
_BLOCK_BYTES: Final = 4096
_POOL_BYTES: Final = 16 << 20
_DISK_BYTES: Final = 64 << 20
_FLUSHES_MAX: Final = 64


class SkippedError(Exception):
    """A part that cannot be staged here; its text says why."""


@contextlib.contextmanager
def tmpfs(place: Path, size: int) -> Iterator[Path]:
    """A filesystem in memory, of so many bytes."""
    with _mounted(place, "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs"):
        yield place


@contextlib.contextmanager
def read_only_view(of: Path, place: Path) -> Iterator[Path]:
    """A directory seen at another place, where nothing can be written."""
    with _mounted(place, "--bind", str(of)):
        _run("mount", "-o", "remount,bind,ro", str(place))
        yield place


def fill(ballast: Path) -> None:
    """Take all room there is."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(_BLOCK_BYTES))


class LoopDisk:
    """An ext4 on a loop device whose blocks are found in memory when they are first written, if there is room.

    Without room a write to a new block fails after it was taken: a flush says so once, and the next one says all is
    well. The filesystem's own blocks are there from the beginning.

    Attributes:
        place: where it is mounted.
    """

    def __init__(self, pool: Path, device: str, place: Path) -> None:
        self.place = place
        self._ballast = pool / "ballast"
        self._device = device

    def fill(self) -> None:
        """Leave no room.

        Raises:
            SkippedError: it does not fail, or does not lie then.
        """
        os.sync()
        fill(self._ballast)
        fd = os.open(self.place / "scrap", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for _ in range(_FLUSHES_MAX):  # a page or two may be left
                os.write(fd, bytes(2 * _BLOCK_BYTES))
                if not _flushes(fd):
                    break
            else:
                raise SkippedError("its flush does not fail")
            if not _flushes(fd):
                raise SkippedError("its flush does not lie")
        finally:
            os.close(fd)

    def make_room(self) -> None:
        """As if the disk had been mended."""
        self._ballast.unlink()

    def mount_anew(self) -> None:
        """What a power cut shows: only what reached the device is there."""
        _unmount(self.place)
        _run("mount", "-o", "errors=continue", self._device, str(self.place))


@contextlib.contextmanager
def loop_disk(place: Path) -> Iterator[LoopDisk]:
    """A LoopDisk in a directory."""
    with tmpfs(place / "pool", _POOL_BYTES) as pool:
        image = pool / "image"
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,packed_meta_blocks=1"
        size = ["-J", "size=4", "-b", str(_BLOCK_BYTES), "-N", "256"]
        _run("mkfs.ext4", "-q", "-F", *size, "-E", extended, str(image))
        _take_the_filesystems_own(image)
        device = _run("losetup", "--find", "--show", str(image))
        try:
            with _mounted(place / "disk", "-o", "errors=continue", device):
                yield LoopDisk(pool, device, place / "disk")
        finally:
            _run("losetup", "--detach", device)


def _take_the_filesystems_own(image: Path) -> None:
    """Write the blocks before the first free one where they stand, so that they have their room."""
    free = re.search(r"^  Free blocks: (\d+)", _run("dumpe2fs", str(image)), flags=re.MULTILINE)
    if free is None:
        raise SkippedError("dumpe2fs says nothing of free blocks")
    with image.open("r+b") as file:
        data = file.read(int(free[1]) * _BLOCK_BYTES)
        file.seek(0)
        file.write(data)


def _flushes(fd: int) -> bool:
    try:
        os.fdatasync(fd)
    except OSError as error:
        if error.errno not in {errno.EIO, errno.ENOSPC}:
            raise
        return False
    return True


@contextlib.contextmanager
def _mounted(place: Path, *arguments: str) -> Iterator[None]:
    place.mkdir()
    _run("mount", *arguments, str(place))
    try:
        yield
    finally:
        _unmount(place)


def _unmount(place: Path) -> None:
    try:
        _run("umount", str(place))
    except SkippedError:  # somebody is in it still: nobody will find it any more, and it goes with him
        _run("umount", "--lazy", str(place))


def _run(program: str, *arguments: str) -> str:
    """What a program prints.

    Raises:
        SkippedError: it is not there, or fails.
    """
    found = shutil.which(program, path=_SYSTEM_PATH)
    if found is None:
        raise SkippedError(f"no {program}")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SkippedError(f"{program}: {(done.stderr.strip() or str(done.returncode)).splitlines()[0]}")
    return done.stdout.strip()
