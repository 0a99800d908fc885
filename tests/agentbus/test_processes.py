"""Which harness a server and a hook belong to, however they were started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from agentbus import processes
from agentbus.processes import Process

TELL = "import json; from agentbus import processes; print(json.dumps(processes.harness().named()))"


def family(*names: str) -> dict[int, Process]:
    """Processes from a child up to its ancestors; the child is number 100."""
    return {
        100 - index: Process(100 - index, f"s{index}", name, 99 - index if index + 1 < len(names) else 0)
        for index, name in enumerate(names)
    }


@pytest.mark.parametrize(
    ("names", "harness"),
    [
        (("agentbus", "claude", "bash", "tmux: server", "systemd"), "claude"),
        (("agentbus", "sh", "claude", "bash"), "claude"),
        (("python3", "uvx", "codex", "node"), "codex"),
        (("python3", "timeout", "-bash", "env", "gemini"), "gemini"),
        (("agentbus", "weird) name (x"), "weird) name (x"),
    ],
)
def test_shells_and_launchers_are_passed_over(names: tuple[str, ...], harness: str) -> None:
    found = processes.harness(100, family(*names).get)
    assert found is not None
    assert found.name == harness


def test_a_process_under_nothing_but_shells_has_no_harness() -> None:
    assert processes.harness(100, family("agentbus", "bash", "sh").get) is None
    assert processes.harness(100, family("claude").get) is None
    assert processes.harness(100, {100: Process(100, "s", "x", 99), 99: Process(99, "s", "sh", 99)}.get) is None


def _told_through(*argv: str) -> dict[str, object]:
    told = subprocess.run([*argv, sys.executable, "-c", TELL], capture_output=True, text=True, check=True, timeout=30)
    found: dict[str, object] = json.loads(told.stdout)
    return found


def test_a_server_and_a_hook_of_one_harness_find_the_same_process() -> None:
    own = processes.system_look()(os.getpid())
    assert own is not None
    direct = _told_through()
    through_shells = _told_through("sh", "-c", '"$@"; exit $?', "sh", "env", "bash", "-c", '"$@"; exit $?', "bash")
    assert direct == through_shells == own.named()
    assert processes.lives(own.pid, own.started)


def test_a_number_that_another_process_has_by_now_names_nobody() -> None:
    assert not processes.lives(os.getpid(), "1")
    assert not processes.lives(2**22 - 1, "1")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="compares with what Linux tells")
def test_psutil_tells_of_the_same_family_as_proc() -> None:
    look = processes.psutil_look()
    assert look is not None
    pid = os.getpid()
    for _ in range(3):
        by_psutil, by_proc = look(pid), processes.look_in_proc(pid)
        assert by_psutil is not None
        assert by_proc is not None
        assert (by_psutil.pid, by_psutil.parent) == (by_proc.pid, by_proc.parent)
        assert by_psutil.name.startswith(by_proc.name)
        assert float(by_psutil.started) == pytest.approx(psutil.Process(pid).create_time(), abs=0.01)
        pid = by_proc.parent
    assert look(2**22 - 1) is None


def test_where_nothing_tells_of_processes_the_parent_counts_as_the_harness() -> None:
    found = processes.harness(None, processes.no_look)
    assert found is not None
    assert found.pid == os.getppid()
    assert processes.no_look(1 if os.getppid() != 1 else 2) is None


def test_psutil_counts_only_where_it_sees_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without /proc it is there, and blind."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/no such directory")
    assert processes.system_look("/no such directory") is processes.no_look


def test_the_system_s_own_way_to_tell_is_taken_and_without_any_the_fallback() -> None:
    assert processes.system_look("/proc") is processes.look_in_proc
    by_psutil = processes.system_look("/no such directory")
    assert by_psutil is not processes.no_look
    own = by_psutil(os.getpid())
    assert own is not None
    code = f"import sys; sys.modules['psutil'] = None; from agentbus import processes as p; {_FALLBACK}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


_FALLBACK = "assert p.system_look('/no such directory') is p.no_look"
