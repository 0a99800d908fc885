"""FORMAT.md is run: its example, its checker and its use of the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.journal.conftest import ROOT
from tests.journal.test_archive import filled, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.conftest import Kit

TEXT = (ROOT / "journal" / "FORMAT.md").read_text()
CHECKER, USE = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
GOLDEN = ROOT / "tests" / "golden" / "journal-v1"


def test_the_checker_in_the_document_gives_the_golden_anchor_and_finds_tampering(tmp_path: Path) -> None:
    assert len(CHECKER.splitlines()) <= 20
    run = [sys.executable, "-c", CHECKER]
    out = subprocess.run([*run, str(GOLDEN)], capture_output=True, text=True, check=True).stdout
    assert out == "9:dbfd9ec65e7b6458e7d99ab68800814ca6880bdcd71c1d4659bc9e188e8133d7\n"
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN, copy)
    path = next(copy.iterdir())
    path.write_bytes(path.read_bytes().replace(b"starting", b"stopping"))
    told = subprocess.run([*run, str(copy)], capture_output=True, text=True, check=False).stderr
    assert told == f"{path} line 5: does not verify\n"


def test_the_checker_in_the_document_reads_archives(kit: Kit) -> None:
    journal = filled(kit)
    assert journal.archive(wanted())
    out = subprocess.run(
        [sys.executable, "-c", CHECKER, str(kit.directory)], capture_output=True, text=True, check=True
    )
    assert out.stdout == f"{journal.anchor}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="head -c -76 is of the GNU tools")
def test_the_worked_example_gives_what_the_document_shows() -> None:
    shown = re.search(r"    \$ F=.*?\n\n", TEXT, flags=re.DOTALL)
    assert shown is not None
    lines = [line.removeprefix("    ") for line in shown[0].rstrip().splitlines()]
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    expected = [line for line in lines if not line.startswith("$ ")]
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert out.splitlines() == expected


def test_the_use_in_the_document_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(USE, {})  # noqa: S102 -- the document's own lines
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["1", "2", "3"]
    assert printed[3].startswith("3:")
