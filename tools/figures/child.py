"""What is measured in a process of its own: ``python -m tools.figures.child MODE ...``. Prints JSON, one value a line.

Timed once: ``open DATA``, ``load FILE``, ``read DIRECTORY``, ``verify DIRECTORY``. Making what these need: ``snapshot
DATA``, ``rows DATA FILE``. Driven by lines on stdin, each with the beginning and the end of a stretch of time on the
monotonic clock: ``posts DATA NAME``, ``inserts FILE``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.figures.yardsticks import SqliteTable, load_rows, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.host import Host

CONTENT = "x" * 200
SNAPSHOT_WAIT_S = 60.0
_POLL_S = 0.02


def main() -> None:
    """Dispatch."""
    mode, *arguments = sys.argv[1:]
    modes: dict[str, Callable[..., None]] = {
        "open": open_data,
        "snapshot": make_snapshot,
        "load": lambda file: _say(seconds=load_rows(Path(file))),
        "rows": write_rows,
        "read": read,
        "verify": verify,
        "posts": drive_posts,
        "inserts": lambda file: _drive(SqliteTable(Path(file), CONTENT).write),
    }
    modes[mode](*arguments)


def open_data(data: str) -> None:
    """From nothing but imports to a State that is ready for the first call."""
    began = time.perf_counter()
    host = _host(data)
    host.warm()
    seconds = time.perf_counter() - began
    _say(seconds=seconds, peak_bytes=_peak_bytes(), last_seq=host.bus.ask(lambda state: state.last_seq))


def make_snapshot(data: str) -> None:
    """Have the product make a snapshot, as it does by itself, and wait until it is there."""
    host = _host(data)
    host.warm()
    limit = time.monotonic() + SNAPSHOT_WAIT_S
    while not has_snapshot(Path(data)) and time.monotonic() < limit:
        time.sleep(_POLL_S)
    host.close(time.monotonic() + 5)
    _say(made=has_snapshot(Path(data)))


def has_snapshot(data: Path) -> bool:
    """Whether a finished one is in the data directory."""
    with contextlib.suppress(FileNotFoundError):
        return any(len(name) == 20 and name.isdigit() for name in os.listdir(data / "snapshots"))
    return False


def write_rows(data: str, file: str) -> None:
    """The retained messages of a State, one row each, as a program would keep them that has no columns."""
    import orjson  # noqa: PLC0415  # not a part of what the other modes measure

    host = _host(data)
    host.warm()
    Path(file).write_bytes(orjson.dumps(host.bus.ask(_rows)))
    _say(bytes=Path(file).stat().st_size)


def _rows(state: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # a State, which only this mode imports
    rows = []
    for channel in state.channels.values():
        retained = channel.retained
        for index, seq in enumerate(retained.seqs):
            place = retained.place(index)
            rows.append(
                {
                    "seq": seq,
                    "channel": channel.name,
                    "from": state.identities.names[retained.authors[index]],
                    "time": retained.times[index],
                    "segment": place.segment,
                    "offset": place.offset,
                    "bytes": place.line_bytes,
                }
            )
    return rows


def read(directory: str) -> None:
    """The yardstick of a fold and of a verification."""
    began = time.perf_counter()
    count = read_lines(Path(directory))
    _say(seconds=time.perf_counter() - began, peak_bytes=_peak_bytes(), commits=count)


def verify(directory: str) -> None:
    """``agentbus replay --verify``, without the start of Python and its imports."""
    from agentbus.cli import main as cli  # noqa: PLC0415  # click, for this mode only

    began = time.perf_counter()
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            cli(["replay", "--verify", directory])
    except SystemExit as ended:
        if ended.code:
            raise
    _say(seconds=time.perf_counter() - began, peak_bytes=_peak_bytes())


def drive_posts(data: str, name: str) -> None:
    """Posts of one process among several."""
    from agentbus.commands import Post, Register  # noqa: PLC0415  # of this mode only
    from agentbus.names import parse_agent_name, parse_channel_name  # noqa: PLC0415  # as above

    host = _host(data)
    as_ = host.bus.execute(Register(name=parse_agent_name(name), context="bench")).result.as_
    command = Post(as_=as_, channel=parse_channel_name("general"), content=CONTENT)
    _drive(lambda: host.bus.execute(command))


def _drive(work: Callable[[], object]) -> None:
    """Work from the beginning to the end of each stretch named on stdin; say how often, and the longest single wait."""
    work()
    _say(ready=True)
    for line in sys.stdin:
        begin, end = map(float, line.split())
        time.sleep(max(0.0, begin - time.monotonic()))
        count, worst, now = 0, 0.0, time.monotonic()
        while now < end:
            work()
            before, now = now, time.monotonic()
            count, worst = count + 1, max(worst, now - before)
        _say(count=count, worst_s=worst, ended=now)


def _host(data: str) -> Host:
    from agentbus.config import Settings  # noqa: PLC0415  # the yardsticks' modes need no agentbus
    from agentbus.host import open_host  # noqa: PLC0415  # as above

    return open_host(Settings(data_directory=Path(data)), os.getcwd(), "bench")


def _peak_bytes() -> int:
    """The most memory this process has held. Not getrusage's, which begins with what the parent held."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    import resource  # noqa: PLC0415  # where there is no /proc

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _say(**values: object) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


if __name__ == "__main__":
    main()
