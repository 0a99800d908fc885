"""The mutation tool on a project of one small module: what is noticed, what survives, what is explained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants.operators import mutants

ROOT = Path(__file__).parent.parent
ROOM = '''\
"""A room."""
LIMIT = 3


def fits(size: int, lock: list[str]) -> bool:
    lock.append("held")
    return size < LIMIT
'''
TESTS = """\
from journal.room import fits


def test_a_size_fits():
    assert fits(2, [])
    assert not fits(4, [])
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a and b and c", {"a or b or c", "b and c", "a and c", "a and b"}),
        ("not a", {"a"}),
        ("x = a + 7", {"x = None", "x = a - 7", "x = a + 8", "x = a + 6"}),
        ("a.b = 'word'", {"pass", "a.b = 'word~'"}),
        ("f('a sentence', b=True)", {"pass", "f('a sentence', b=False)", "f('a sentence')"}),
        ("with lock:\n    f()", {"if True:\n    f()", "with lock:\n    pass"}),
        ("raise Error('word')", {"pass"}),
        ("try:\n    f()\nexcept E:\n    g()", {
            "try:\n    pass\nexcept E:\n    g()",
            "try:\n    f()\nexcept E:\n    raise",
            "try:\n    f()\nexcept E:\n    pass",
        }),
        ('"""Prose."""\nassert a < b\nx: int', set()),
    ],
)  # fmt: skip
def test_each_kind_of_code_is_changed_in_the_ways_a_hand_slips(source: str, expected: set[str]) -> None:
    assert {mutant.source for mutant in mutants("room.py", source)} == expected


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "mutate.py"), "--root", str(root), "--room", "journal/room.py"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {"journal/__init__.py": "", "journal/room.py": ROOM, "tests/journal/test_room.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    return tmp_path


def test_survivors_are_named_and_the_score_counts_them(project: Path) -> None:
    found = run(project)
    survivors = sorted(line.partition("  [")[0] for line in found.stdout.splitlines() if line.startswith("survived"))
    assert survivors == [
        "survived: journal/room.py:2 - `(module)`: ``3`` → ``4``",
        "survived: journal/room.py:6 - `fits`: ``'held'`` → ``'held~'``",
        "survived: journal/room.py:6 - `fits`: ``lock.append('held')`` → ``lock.count('held')``",
        "survived: journal/room.py:6 - `fits`: ``lock.append('held')`` → ``pass``",
        "survived: journal/room.py:7 - `fits`: ``size < LIMIT`` → ``size <= LIMIT``",
    ]
    assert "journal/room.py: 9 mutants, 4 killed (0 by the clock), 0 explained, 5 survived: 44.4 %" in found.stdout
    assert found.returncode == 1
    assert (project / "journal" / "room.py").read_text() == ROOM


def test_what_is_explained_is_no_survivor_and_what_explains_nothing_is_named(project: Path) -> None:
    (project / "tools" / "mutants").mkdir(parents=True)
    (project / "tools" / "mutants" / "explained.md").write_text(
        "# Explained\n\n## journal/room.py\n\n"
        "- `fits`: ``lock.append('held')`` → ``pass``: nobody reads it.\n"
        "- `(module)`: ``3`` → ``4``: no size of 3 is met.\n- `gone`: ``a`` → ``b``: it was so.\n"
    )
    found = run(project, "--in", "fits")
    assert "6 mutants, 2 killed (0 by the clock), 1 explained, 3 survived" in found.stdout
    assert "explained, but no mutant now: journal/room.py gone a b" in found.stdout


def test_listing_runs_nothing(project: Path) -> None:
    (project / "tests" / "journal" / "test_room.py").unlink()
    found = run(project, "--list", "--in", "fits")
    assert (found.returncode, found.stdout.splitlines()[0]) == (
        0,
        "journal/room.py:6 - `fits`: ``lock.append('held')`` → ``pass``",
    )


def test_the_survivors_of_an_earlier_run_can_be_tried_alone(project: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.txt"
    earlier.write_text(run(project, "--in", "fits").stdout)
    found = run(project, "--again", str(earlier))
    assert "journal/room.py: 4 mutants, 0 killed (0 by the clock), 0 explained, 4 survived: 0.0 %" in found.stdout


def test_of_a_kept_map_only_tests_that_changed_are_learned_anew(project: Path, tmp_path: Path) -> None:
    options = ("--in", "fits", "--map", str(tmp_path / "map.json"))
    assert "6 mutants, 2 killed" in run(project, *options).stdout
    more = (
        "from journal.room import fits\n\n\ndef test_a_size_at_the_limit_does_not_fit():\n    assert not fits(3, [])\n"
    )
    (project / "tests" / "journal" / "test_more.py").write_text(more)
    assert "6 mutants, 3 killed" in run(project, *options).stdout


def test_tests_that_are_not_there_are_told(project: Path) -> None:
    found = run(project, "--tests", "tests/gone")
    assert (found.returncode, "there is no tests/gone" in found.stderr) == (2, True)


def test_what_a_test_leaves_running_holds_nothing_up_and_is_ended(project: Path) -> None:
    leaving = "import os, signal\n\n\ndef test_leaves_a_child():\n    if os.fork() == 0:\n        signal.pause()\n"
    (project / "tests" / "journal" / "test_leaving.py").write_text(f"{leaving}    assert fits(2, [])\n\n\n{TESTS}")
    assert "6 mutants, 2 killed" in run(project, "--in", "fits").stdout
