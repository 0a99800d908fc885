"""agentbus.log: one object a line, whatever is in it and whoever else writes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentbus import log as log_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.log import Log

    Opening = Callable[[Path, str], Log]


@pytest.fixture
def open_log() -> Iterator[Opening]:
    """As log.open_log; what it opened is closed after the test."""
    with contextlib.ExitStack() as opened:

        def opening(directory: Path, level: str) -> Log:
            return opened.enter_context(contextlib.closing(log_module.open_log(directory, level)))

        yield opening


def _lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "agentbus.log").read_bytes().decode("ascii").split("\n")[:-1]]


def test_a_line_is_an_object_with_time_level_msg_pid_and_then_its_attributes(open_log: Opening, tmp_path: Path) -> None:
    log = open_log(tmp_path, "debug")
    log.debug("one")
    log.info("two", seq=7, name="é", ok=True, ratio=0.5, cause=None)
    log.warning("three")
    log.error("four")
    lines = _lines(tmp_path)
    assert [line["level"] for line in lines] == ["DEBUG", "INFO", "WARN", "ERROR"]
    assert list(lines[1]) == ["time", "level", "msg", "pid", "seq", "name", "ok", "ratio", "cause"]
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", lines[1]["time"])
    assert lines[1] | {"time": ""} == {
        "time": "",
        "level": "INFO",
        "msg": "two",
        "pid": os.getpid(),
        "seq": 7,
        "name": "é",
        "ok": True,
        "ratio": 0.5,
        "cause": None,
    }


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)])
def test_lines_below_the_level_are_not_written(open_log: Opening, tmp_path: Path, level: str, written: int) -> None:
    log = open_log(tmp_path, level)
    log.error("e")
    log.warning("w")
    log.info("i")
    log.debug("d")
    assert len(_lines(tmp_path)) == written


@pytest.mark.parametrize("text", ["a\nb", "a\r\u2028\u2029\x85b", "half \ud83d", '"}', "\0", "漢" * 100_000])
def test_no_text_breaks_a_line(open_log: Opening, tmp_path: Path, text: str) -> None:
    open_log(tmp_path, "info").info(text, **{"key": text, "other\n": text})
    (line,) = _lines(tmp_path)
    assert line["msg"] == line["key"] == line["other\n"] == text


def test_what_json_does_not_have_is_written_as_text(open_log: Opening, tmp_path: Path) -> None:
    log = open_log(tmp_path, "info")
    log.info("nan", value=float("nan"), other=1)
    log.info("path", where=Path("/x"))  # type: ignore[arg-type]  # a caller's mistake must not become a tool's failure
    first, second = _lines(tmp_path)
    assert (first["value"], first["other"]) == ("nan", "1")
    assert second["where"] == "/x"


def test_an_attribute_cannot_stand_in_for_the_logs_own_keys(open_log: Opening, tmp_path: Path) -> None:
    open_log(tmp_path, "info").info("real", time="never", pid=0, level="NONE")
    (line,) = _lines(tmp_path)
    assert (line["msg"], line["level"], line["pid"]) == ("real", "INFO", os.getpid())
    assert line["time"] != "never"


def test_nothing_is_made_before_the_first_line_and_all_of_it_is_for_the_user_alone(
    open_log: Opening, tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    log = open_log(directory, "info")
    log.info("kept: only the journal makes its directory")
    assert not directory.exists()
    directory.mkdir(mode=0o700)
    log.debug("not written")
    assert list(directory.iterdir()) == []
    log.info("written")
    assert [line["msg"] for line in _lines(directory)] == ["kept: only the journal makes its directory", "written"]
    log.close()
    log.info("and again")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes["agentbus.log"] == 0o600
    assert set(modes.values()) == {0o600}
    assert len(_lines(directory)) == 3


def test_a_log_that_cannot_be_written_fails_nobody_and_prints_nothing(
    open_log: Opening, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    open_log(tmp_path / "file/data", "info").error("no such directory")
    (tmp_path / "data/agentbus.log").mkdir(parents=True)
    log = open_log(tmp_path / "data", "info")
    log.error("a directory in the way")
    log.close()
    assert capfd.readouterr() == ("", "")


def test_a_stopped_process_that_holds_the_log_stops_nobody(
    open_log: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_LOCK_TRIES_MAX", 3)
    log = open_log(tmp_path, "info")
    log.info("first")
    with (tmp_path / ".__agentbus.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        log.info("dropped")
    log.info("last")
    assert [line["msg"] for line in _lines(tmp_path)] == ["first", "last"]


_WRITER = """
import sys
from pathlib import Path
from agentbus import log
log._FILE_BYTES_MAX = 10_000
log = log.open_log(Path(sys.argv[1]), "info")
for i in range(100):
    log.info("line", i=i)
"""


def test_four_processes_over_several_rolls_lose_no_line(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path]) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    files = sorted(tmp_path.glob("agentbus.log*"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len({(line["pid"], line["i"]) for line in lines}) == 400
    assert [file.name for file in files][:3] == ["agentbus.log", "agentbus.log.1", "agentbus.log.2"]


def test_importing_the_log_imports_no_library() -> None:
    code = "import sys, agentbus.log; print('portalocker' in sys.modules, 'concurrent_log_handler' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
