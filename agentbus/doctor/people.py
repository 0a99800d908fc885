"""Who is on the bus: processes that are stopped, a writer lock that is not given back, letters that nobody reads."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from agentbus import overview, processes
from agentbus.columns import render_count
from agentbus.doctor.findings import fault, note, ok
from agentbus.doctor.place import wait_until
from journal import Files, JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

ABOUT: Final = "sessions"
LOCK_WAIT_S: Final = 2.0
_NAMED_MAX: Final = 3
_HOUR_MS: Final = 3600 * 1000


def stopped(visit: Visit) -> Iterator[Finding]:
    """Live sessions whose server, or the client that started it, is stopped."""
    names, seen = _names(visit), set[int]()
    living = visit.owners.living()
    for each in living:
        who = ", ".join(f'"{name}"' for name in names[str(each["owner"])]) or "nobody yet"
        server, client = _pid(each), _pid(each.get("harness"))
        for pid, what in ((server, "server"), (client, "client")):
            if pid in seen or not is_stopped(pid):
                continue
            seen.add(pid)
            yield note(
                ABOUT,
                f"process {pid} is stopped: the {what} of {who}",
                "It reads no message and answers nothing; stopped in the middle of a post, it lets nobody else write.",
                f"kill -CONT {pid}, or fg in its terminal; or end it: kill -KILL {pid}",
            )
    if not seen:
        yield ok(ABOUT, f"{render_count(len(living), 'live server process', 'live server processes')}, none stopped")


def _names(visit: Visit) -> dict[str, list[str]]:
    """Which identities each owner holds, as far as the journal can be read: what is wrong with it is told elsewhere."""
    names = defaultdict[str, list[str]](list)
    with contextlib.suppress(JournalError):
        for identity, session in sorted(visit.state().sessions.items()):
            names[session.owner].append(identity)
    return names


def _pid(named: Any) -> int:  # noqa: ANN401  # JSON
    """The number of a process that an owner's file names, if it is still that process; else 0."""
    if not isinstance(named, dict):
        return 0
    pid, started = named.get("pid"), named.get("started")
    alive = isinstance(pid, int) and isinstance(started, str) and processes.lives(pid, started)
    return int(pid) if alive and isinstance(pid, int) else 0


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger; False where that cannot be told."""
    if not pid:
        return False
    if os.path.exists("/proc/self/stat"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in {"T", "t"}
        return False
    return is_stopped_by_psutil(pid)


def is_stopped_by_psutil(pid: int) -> bool:
    """The same as psutil tells it."""
    import psutil  # noqa: PLC0415  # only where there is no /proc

    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def writer_lock(visit: Visit, wait_s: float = LOCK_WAIT_S) -> Iterator[Finding]:
    """Whether the writer lock comes free: writers hold it for some thousandths of a second."""
    files, path = Files(), f"{visit.data}/journal/writer.lock"
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        deadline = time.monotonic() + wait_s
        while not files.try_share(fd):
            if not wait_until(deadline):
                yield _held(path, os.fstat(fd).st_ino, wait_s)
                return
        yield ok(ABOUT, "the writer lock comes free")
    finally:
        files.close(fd)


def _held(path: str, inode: int, wait_s: float) -> Finding:
    pid = _holder(inode)
    state = " which is stopped" if is_stopped(pid) else ""
    who = f"process {pid}{',' if state else ''}{state}" if pid else "another process"
    do = f"kill -CONT {pid}" if state else f"Find out what process {pid} is, and end it: kill {pid}"
    return fault(
        ABOUT,
        f"the writer lock was held for {wait_s:g} s by {who}",
        "As long as that lasts every post and every register fails as busy.",
        do if pid else f"Find out who has it open: fuser {path}",
    )


def _holder(inode: int) -> int:
    """The process that holds a lock, as Linux lists them; 0 where that cannot be told."""
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        for line in file:
            fields = line.split()
            if fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].endswith(f":{inode}"):
                return max(0, int(fields[4]))
    return 0


def dead_letters(visit: Visit) -> Iterator[Finding]:
    """Messages for identities that are gone."""
    state = visit.state()
    gone = visit.owners.gone(session.owner for session in state.sessions.values())
    horizon_ms = time.time_ns() // 1_000_000 - visit.settings.message_retention_hours * _HOUR_MS
    dead = [each for each in overview.standings(state, gone, horizon_ms) if each.session is None and each.total]
    if not dead:
        yield ok(ABOUT, "no message waits for somebody who is gone")
        return
    names = ", ".join(f'"{each.identity}"' for each in dead[:_NAMED_MAX])
    more = f" and {len(dead) - _NAMED_MAX} more" if len(dead) > _NAMED_MAX else ""
    messages = render_count(sum(each.total for each in dead), "message")
    verb = "waits" if messages.startswith("1 ") else "wait"
    yield note(
        ABOUT,
        f"{messages} {verb} for {names}{more}, who {'is' if len(dead) == 1 else 'are'} gone",
        "Each is handed its messages when it registers again under its name; nobody else will be.",
        "agentbus status shows them; agentbus ack-all NAME ends it for one that will not come back.",
    )
