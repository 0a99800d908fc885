"""The data directory: whose it is, where it lies, and whether locks, events and room are there. Changes nothing in it.

Locks and events are tried in a directory of their own beside what is there (trial.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import stat
import time
from typing import TYPE_CHECKING, Final

from agentbus.columns import render_bytes, render_count
from agentbus.doctor.findings import fault, note, ok
from agentbus.doctor.trial import trial
from agentbus.doctor.visit import nearest_existing
from agentbus.limits import DISK_FREE_LOW_BYTES, SEARCH_DISK_BYTES_MIN
from journal import Files, UnusableError, network_filesystem, open_source, require_own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

ABOUT: Final = "data directory"
_EVENT_WAIT_S: Final = 5.0
_LOG: Final = ("agentbus.log", ".__agentbus.lock")
_UNUSABLE: Final = "Every server refuses to work there."
_ELSEWHERE: Final = "Name a directory of your own: data_directory in the settings, or AGENTBUS_DATA_DIR."
_LOCAL_DISK: Final = "Name a directory on a disk of this machine: data_directory in the settings, or AGENTBUS_DATA_DIR."


def directory(visit: Visit) -> Iterator[Finding]:
    """Whether it is there, ours alone, and may be written to."""
    data = visit.data
    if not os.path.lexists(data):
        yield _missing(data)
        return
    for path in (data, f"{data}/journal"):
        if not os.path.lexists(path):
            continue
        try:
            require_own(path)
        except UnusableError as error:
            yield fault(ABOUT, f"{path}: {error.cause}", _UNUSABLE, _way_out(path))
            return
        yield from _rights(path)
    yield from _foreign(data)


def _missing(data: str) -> Finding:
    above = nearest_existing(data)
    if os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK):
        return note(ABOUT, f"there is none yet: {data}", "The first agent that registers makes it.")
    why = f"{above} is no directory" if not os.path.isdir(above) else f"nothing may be made in {above}"
    return fault(ABOUT, f"{data} is missing and cannot be made: {why}", _UNUSABLE, _ELSEWHERE)


def _way_out(path: str) -> str:
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode):
        return f"Set data_directory (or AGENTBUS_DATA_DIR) to where it leads: {os.path.realpath(path)}."
    if stat.S_ISDIR(facts.st_mode) and not facts.st_mode & stat.S_ISVTX:
        return f'sudo chown -R "$(id -un)" {shlex.quote(path)}'
    return _ELSEWHERE


def _rights(path: str) -> Iterator[Finding]:
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & 0o300 == 0o300 and not os.access(path, os.W_OK | os.X_OK):
        what = (
            f"{path} may not be written to, though its mode allows it: its filesystem is read-only, or it is immutable"
        )
        yield fault(ABOUT, what, _UNUSABLE, _ELSEWHERE)
    elif mode == 0o700:
        yield ok(ABOUT, f"{path} is ours alone")
    else:
        why = "Others on this machine may look into it." if mode & 0o077 else "It may not be used as it is."
        why += " Whoever writes to the bus next sets it right."
        yield note(ABOUT, f"{path} has mode {mode:04o}, not 0700", why, f"chmod 700 {shlex.quote(path)}")


def _foreign(data: str) -> Iterator[Finding]:
    """Files of other users below, as a command run by root leaves them."""
    others = [path for path, uid in _below(data) if uid != os.geteuid()]
    if others:
        many = render_count(len(others), "file")
        yield fault(
            ABOUT,
            f"{many} in {data} {'belongs' if len(others) == 1 else 'belong'} to another user, {others[0]} first",
            "Commands fail as soon as they need one of them; mostly an agentbus was run by root once.",
            f'sudo chown -R "$(id -un)" {shlex.quote(data)}',
        )


def _below(path: str) -> Iterator[tuple[str, int]]:
    """Everything below a directory, and whose it is; what goes meanwhile is passed over."""
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.path, entry.stat(follow_symlinks=False).st_uid
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)


def filesystem(visit: Visit) -> Iterator[Finding]:
    """Whether its filesystem has locks that hold for everybody."""
    kind = network_filesystem(nearest_existing(visit.data))
    if not kind:
        yield ok(ABOUT, "its filesystem is this machine's")
        return
    what = f"{visit.data} is on a {kind} filesystem"
    why = "Locks may hold on one side of it only, and two writers at once damage the journal."
    if visit.settings.allow_network_filesystem:
        yield note(ABOUT, f"{what}, which allow_network_filesystem allows", why)
    else:
        yield fault(ABOUT, what, why, _LOCAL_DISK)


def lock(visit: Visit) -> Iterator[Finding]:
    """Whether a lock that one process holds is refused to another, and free once that has died."""
    files, place = Files(), _place(visit)
    if not place:
        return
    with trial(place) as other:
        fd = files.open(other.file, os.O_RDWR)
        try:
            refused = not files.try_lock(fd)
            other.end()
            free = files.try_lock(fd)
        finally:
            files.close(fd)
    yield judge_lock(place, refused=refused, free=free)


def judge_lock(place: str, *, refused: bool, free: bool) -> Finding:
    """What it means how a lock was given: ``refused`` while another process held it, ``free`` once that was gone."""
    if refused and free:
        return ok(ABOUT, "a lock holds between two processes")
    how = "is still held after the process that held it has ended" if refused else "is given to two processes"
    why = "Without locks two agents write at once and damage the journal."
    return fault(ABOUT, f"a lock in {place} {how}", why, _LOCAL_DISK)


def events(visit: Visit) -> Iterator[Finding]:
    """Whether the system tells of a write by another process, or who waits has to look by itself."""
    place = _place(visit)
    if not place:
        return
    with trial(place) as other:
        source = open_source(other.directory)
        if source is None:
            yield note(
                ABOUT,
                "the system has no file events to give",
                "Who waits for messages looks every half second instead: a little later, and a little more work.",
                "On Linux, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl.",
            )
            return
        try:
            other.write()
            poll = select.poll()
            poll.register(source.fd, select.POLLIN)
            arrived = bool(poll.poll(_EVENT_WAIT_S * 1000))
        finally:
            source.close()
    if arrived:
        yield ok(ABOUT, "a write wakes who waits for it")
    else:
        yield note(
            ABOUT,
            f"no file event came within {_EVENT_WAIT_S:g} s of a write in {place}",
            "Who waits for messages looks once a second all the same: messages arrive later, none is lost.",
        )


def _place(visit: Visit) -> str:
    """Where to try things: the data directory, or above it where it will be; "" where another check says why not."""
    place = nearest_existing(visit.data)
    if not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
        return ""
    if place == visit.data:
        try:
            require_own(place)
        except UnusableError:
            return ""
    return place


def space(visit: Visit) -> Iterator[Finding]:
    """Whether there is room for what is posted."""
    disk = os.statvfs(nearest_existing(visit.data))
    yield judge_space(disk.f_bavail * disk.f_frsize, spare_files=disk.f_favail if disk.f_files else None)


def judge_space(free_bytes: int, *, spare_files: int | None) -> Finding:
    """What free room means; ``spare_files`` is how many more files may be made, None where that has no limit."""
    why = "A full disk refuses every post, and lets no agent register."
    do = "Make room on it; agentbus status shows what the bus itself takes."
    if spare_files == 0:
        return fault(ABOUT, "its filesystem has room for no file more", why, do)
    if free_bytes < SEARCH_DISK_BYTES_MIN:
        return fault(ABOUT, f"its disk is full: {render_bytes(free_bytes)} free", why, do)
    if free_bytes < DISK_FREE_LOW_BYTES:
        return note(ABOUT, f"its disk is nearly full: {render_bytes(free_bytes)} free", why, do)
    return ok(ABOUT, f"its disk has {render_bytes(free_bytes)} free")


def log(visit: Visit) -> Iterator[Finding]:
    """Whether agentbus.log can be written."""
    if not os.path.isdir(visit.data):
        return
    for name in _LOG:
        path = f"{visit.data}/{name}"
        if not os.path.lexists(path):
            continue
        if not stat.S_ISREG(os.lstat(path).st_mode):
            cause = "it is no regular file"
        elif not os.access(path, os.W_OK):
            cause = "it may not be written to"
        else:
            continue
        why = "Tools work without a log, but what goes wrong in a server is told nowhere."
        yield note(ABOUT, f"{path}: {cause}", why, f"mv {shlex.quote(path)} {shlex.quote(path + '.old')}")
        return
    yield ok(ABOUT, "agentbus.log can be written")


def wait_until(deadline: float) -> bool:
    """A short sleep; false once a time.monotonic() deadline has passed."""
    time.sleep(0.02)
    return time.monotonic() < deadline
