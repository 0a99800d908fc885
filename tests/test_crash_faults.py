"""A short run of the modes of tools/crash.py that break the disk, its model's own rules, and that each can say no."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tools.crashes import fail, power, real
from tools.crashes.disk import BLOCK_BYTES, Directory, Disk, File
from tools.crashes.fail import play_unharmed
from tools.crashes.mounts import SkippedError
from tools.crashes.power import Cuts, Story, recover, tell
from tools.crashes.session import abandon, call, open_host
from tools.crashes.states import after_a_cut

if TYPE_CHECKING:
    from pathlib import Path

SEED = 4


def test_every_failing_call_is_told_truly_and_healed_from() -> None:
    summary = fail.run(30, SEED)
    assert summary.wrong == []
    assert summary.tried["rounds"] == 30
    assert summary.tried["calls failed"] >= 30


def test_every_state_a_power_cut_leaves_holds_what_was_acknowledged() -> None:
    summary = power.run(60, SEED)
    assert summary.wrong == []
    assert summary.tried["states"] == 60


@pytest.mark.parametrize("part", real.PARTS)
def test_what_the_system_itself_can_break_is_told_truly_and_healed_from(part: str) -> None:
    try:
        account = real.run_part(part)
    except SkippedError as error:
        pytest.skip(f"{part}: {error}")
    assert account.wrong == []
    assert account.done


def chance() -> random.Random:
    return random.Random(SEED)  # noqa: S311  # repeatable, not secret


def test_a_product_that_does_not_flush_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(File, "flushed", lambda _: None)
    assert "but not safe" in play_unharmed().wrong[0]
    (lost,) = cut(tmp_path, Story()).wrong.values()
    assert "lost: call 1 (register" in lost


def test_a_product_that_flushes_no_names_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Directory, "flushed", lambda _: None)
    assert "safe if its name is" in play_unharmed().wrong[0]
    (lost,) = cut(tmp_path, Story()).wrong.values()
    assert "lost: call 1 (register" in lost


def cut(place: Path, story: Story) -> Cuts:
    cuts = Cuts(place, chance(), left=40, part=1.0)
    tell(cuts, story, place / "story" / "data")
    return cuts


def test_damage_in_what_a_power_cut_left_is_found(tmp_path: Path) -> None:
    segment = tmp_path / "data" / "journal" / f"{1:020d}.jsonl"
    segment.parent.mkdir(parents=True, mode=0o700)
    segment.write_bytes(b"{}\n")
    (wrong,) = recover(tmp_path / "data").wrong
    assert wrong.startswith("CorruptError")


def test_a_part_that_cannot_be_staged_is_named_in_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_disk(_: Path) -> real.Account:
        raise SkippedError("no losetup")

    monkeypatch.setattr(real, "PARTS", {"lying disk": no_disk})
    summary = real.run(0, SEED)
    assert summary.tried == {
        "parts": 0, "acknowledged": 0, "refused": 0, "unknown": 0, "faults": 0, "skipped: lying disk: no losetup": 1
    }  # fmt: skip


def test_an_account_finds_what_is_lost_doubled_or_refused_and_there(tmp_path: Path) -> None:
    host = open_host(tmp_path / "data")
    call(host, "register", name="sam")
    for content in ("one", "two", "two"):
        call(host, "post", as_="sam", channel="general", content=content)
    abandon(host)
    account = real.Account(tmp_path / "data", done={"gone": 9, "one": 4}, refused={"one"})
    account.check()
    assert account.wrong == ["lost: seq 9", "refused, and there at seq 4", "a post is there twice"]


# --- the model disk


def contents(file: File) -> set[bytes]:
    disk = Disk("/root")
    disk.top.now = disk.top.safe = {"file": file}
    found = {tree["file"] for tree in after_a_cut(disk, chance())}
    return {each for each in found if each is not None}


def test_until_a_flush_a_block_may_be_any_of_its_versions() -> None:
    file = File()
    file.become(0, b"a", 0)
    file.become(1, b"ab", 1)
    assert contents(file) == {b"", b"a", b"ab", b"\0", b"\0\0", b"a\0"}
    assert file.safe_bytes() == 0
    file.flushed()
    assert contents(file) == {b"ab"}
    assert file.safe_bytes() == 2


def test_later_blocks_may_be_there_without_earlier_ones() -> None:
    file = File()
    file.become(0, b"x" * 3 * BLOCK_BYTES, 0)
    assert b"\0" * BLOCK_BYTES + b"x" * 2 * BLOCK_BYTES in contents(file)
    assert b"x" * BLOCK_BYTES in contents(file)


def test_after_a_flush_that_failed_a_later_one_saves_only_the_blocks_that_were_written_since() -> None:
    file = File()
    file.become(0, b"x" * BLOCK_BYTES, 0)
    file.not_flushed()
    file.flushed()
    assert file.safe_bytes() == 0
    file.become(1, b"x" * BLOCK_BYTES + b"y", BLOCK_BYTES)
    file.flushed()
    assert contents(file) == {b"x" * BLOCK_BYTES + b"y", b"\0" * BLOCK_BYTES + b"y"}


def test_a_cut_that_was_not_flushed_may_come_back() -> None:
    file = File()
    file.become(0, b"whole", 0)
    file.flushed()
    file.become(1, b"whole half", 5)
    file.become(2, b"whole", 5)
    assert b"whole half" in contents(file)
    assert file.safe_bytes() == 5


def test_a_failed_flush_is_told_once_to_whoever_had_the_file_open() -> None:
    disk = Disk("/root")
    disk.opened(3, "/root/file", created=True, cut=False)
    disk.opened(4, "/root/file", created=False, cut=False)
    disk.wrote(3, b"x", 0)
    disk.not_flushed(3)
    disk.opened(5, "/root/file", created=False, cut=False)
    disk.flushed(3)
    disk.flushed(5)
    with pytest.raises(OSError, match="an earlier flush failed"):
        disk.flushed(4)
    disk.flushed(4)


def test_names_are_safe_when_their_directory_was_flushed() -> None:
    disk = Disk("/root")
    disk.made("/root/journal")
    disk.opened(3, "/root/journal/1.jsonl", created=True, cut=False)
    disk.wrote(3, b"x", 0)
    disk.flushed(3)
    assert len(disk.unsafe()) == 2
    disk.opened(4, "/root/journal", created=False, cut=False)
    disk.flushed(4)
    assert disk.unsafe() == ["/journal: the name of the directory"]
    disk.opened(5, "/root", created=False, cut=False)
    disk.flushed(5)
    assert disk.unsafe() == []
    disk.opened(6, "/root/journal/1.jsonl.new", created=True, cut=False)
    disk.renamed("/root/journal/1.jsonl.new", "/root/journal/1.jsonl")
    disk.unlinked("/root/journal/1.jsonl")
    held = [tree.get("journal/1.jsonl") for tree in after_a_cut(disk, chance())]
    assert {None, b"x", b""} == set(held)
