from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from journal import LINE_BYTES_MAX, CorruptError, Fault, Tail, UnsupportedError, Verdict, audit, record, verify, walk
from journal.files import Files
from journal.record import ZERO_HASH
from journal.walker import Walker
from tests.journal.test_segment import chain, digest, lost, opened, posted

NAME = "00000000000000000001.jsonl"


def lines() -> list[bytes]:
    return chain(opened(), *(posted(str(number)) for number in range(2, 9)))


def judge(path: Path) -> tuple[list[tuple[int, int]], Verdict]:
    *faults, verdict = verify([path])
    assert isinstance(verdict, Verdict)
    assert verdict.faults == len(faults)
    return [(fault.line, fault.seq) for fault in faults if isinstance(fault, Fault)], verdict


def judge_lines(path: Path, made: list[bytes]) -> tuple[list[tuple[int, int]], Verdict]:
    (path / NAME).write_bytes(b"".join(made))
    return judge(path)


def test_a_changed_text_is_one_fault(tmp_path: Path) -> None:
    made = lines()
    made[3] = made[3].replace(b'"4"', b'"x"')
    found, verdict = judge_lines(tmp_path, made)
    assert (found, verdict.commits, verdict.last_seq) == ([(4, 4)], 7, 8)


def test_two_changed_lines_are_two_faults(tmp_path: Path) -> None:
    made = lines()
    made[3] = made[3].replace(b'"4"', b'"x"')
    made[4] = made[4].replace(b'"5"', b'"y"')
    assert judge_lines(tmp_path, made)[0] == [(4, 4), (5, 5)]


def test_a_line_taken_out_is_one_fault_where_it_is_missed(tmp_path: Path) -> None:
    made = lines()
    del made[3]
    assert judge_lines(tmp_path, made)[0] == [(4, 4)]


def test_a_line_put_in_is_one_fault(tmp_path: Path) -> None:
    made = lines()
    made.insert(3, b"hello\n")
    assert judge_lines(tmp_path, made)[0] == [(4, 4)]
    made[3] = made[1]
    assert judge_lines(tmp_path, made)[0] == [(4, 4)]


def test_after_lines_that_state_no_hash_the_next_one_is_taken_as_stated(tmp_path: Path) -> None:
    made = lines()
    made[3] = made[4] = b"\x01\x02\n"
    found, verdict = judge_lines(tmp_path, made)
    assert (found, verdict.unchecked, verdict.last_seq) == ([(4, 4), (5, 5)], [6], 8)


def test_a_history_written_anew_is_a_fault_at_every_line_that_does_not_follow(tmp_path: Path) -> None:
    made = lines()
    made[4:] = chain(*(posted("other") for _ in range(4)), seq=5, prev="a" * 64)
    found, verdict = judge_lines(tmp_path, made)
    assert (found, verdict.commits) == ([(5, 5)], 7)


def test_damage_at_the_very_end_and_in_the_first_line(tmp_path: Path) -> None:
    made = lines()
    made[-1] = made[-1].replace(b'"8"', b'"x"')
    assert judge_lines(tmp_path, made)[0] == [(8, 8)]
    made[0] = made[0].replace(b"segment_opened", b"segment_closed")
    assert judge_lines(tmp_path, made)[0] == [(1, 1), (8, 8)]
    made[0] = b"x\n"
    found, verdict = judge_lines(tmp_path, made)
    assert (found, verdict.unchecked) == ([(1, 1), (8, 8)], [2])


def test_what_stands_after_the_last_line_is_a_note(tmp_path: Path) -> None:
    data = b"".join(lines())
    path = tmp_path / NAME
    for tail, unfinished in ((b"{", False), (data.splitlines(keepends=True)[-1][:-1], True)):
        cut = data[: data.rindex(b'{"seq":8')]
        path.write_bytes(cut + tail)
        found, verdict = judge(tmp_path)
        assert (found, verdict.commits) == ([], 7)
        assert verdict.tail == Tail(str(path), len(cut), len(tail), unfinished)


def test_a_torn_tail_after_damage_is_still_a_note(tmp_path: Path) -> None:
    made = lines()
    made[-2] = made[-2].replace(b'"7"', b'"x"')
    made[-1] = made[-1][:-1]
    found, verdict = judge_lines(tmp_path, made)
    assert found == [(7, 7)]
    assert verdict.tail is not None
    assert verdict.tail.bytes == len(made[-1])


def test_a_line_over_the_limit_is_a_fault_and_the_next_is_taken_as_stated(tmp_path: Path) -> None:
    made = lines()
    made[3] = b"x" * (3 * LINE_BYTES_MAX) + b"\n"
    found, verdict = judge_lines(tmp_path, made)
    assert (found, verdict.unchecked, verdict.commits) == ([(4, 4)], [5], 7)
    made[3:] = [b"x" * (3 * LINE_BYTES_MAX)]
    found, verdict = judge_lines(tmp_path, made)
    assert found == []
    assert verdict.tail is not None
    assert verdict.tail.bytes == 3 * LINE_BYTES_MAX


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Three segments of three lines."""
    prev, paths = ZERO_HASH, []
    for first in (1, 4, 7):
        made = chain(opened(prev), posted("a"), posted("b"), seq=first, prev=prev)
        prev = digest(made[-1])
        paths.append(tmp_path / f"{first:020d}.jsonl")
        paths[-1].write_bytes(b"".join(made))
    return paths


class Living(Files):
    """The files of a journal to which something is appended right after its end was read."""

    def __init__(self, path: Path, appended: bytes) -> None:
        super().__init__()
        self._path, self._appended = path, appended

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        if offset and not data and self._appended:
            with self._path.open("ab") as file:
                file.write(self._appended)
            self._appended = b""
        return data


@pytest.mark.parametrize("lines_after", [1, 3])
@pytest.mark.parametrize("cut", [0, 1, 30])
def test_what_a_writer_appends_while_the_end_is_judged_is_no_fault(lines_after: int, cut: int, tmp_path: Path) -> None:
    made, path = lines(), tmp_path / NAME
    path.write_bytes(b"".join(made[:4]))
    appended = b"".join(made[4 : 4 + lines_after])
    walker = Walker(Living(path, appended[: len(appended) - cut]))
    assert [found.seq for found in walker.walk([tmp_path])] == [1, 2, 3, 4]
    assert (walker.verdict.faults, walker.verdict.tail) == (0, None)


def test_segments_are_one_chain_and_each_is_verified_alone(three: list[Path]) -> None:
    folder = three[0].parent
    (folder / "writer.lock").touch()
    assert judge(folder)[1].commits == 9
    assert [commit.seq for commit in audit(three)] == list(range(1, 10))
    for number, path in enumerate(three):
        renamed = path.rename(folder / f"copy-{number}")
        assert [commit.seq for commit in audit([renamed])] == [3 * number + each for each in (1, 2, 3)]
    copies = sorted(folder.glob("copy-*"))
    assert len(list(audit(copies))) == 9
    assert judge(folder)[1] == Verdict()


def test_an_auditor_may_name_links_and_is_told_of_a_directory_in_a_files_place(three: list[Path]) -> None:
    link = three[0].with_name("link")
    link.symlink_to(three[0])
    assert [commit.seq for commit in audit([link])] == [1, 2, 3]
    three[1].unlink()
    three[1].mkdir()
    with pytest.raises(IsADirectoryError, match=three[1].name):
        list(audit([three[0].parent]))


def test_a_missing_segment_is_a_fault_by_its_name(three: list[Path]) -> None:
    three[1].unlink()
    *faults, verdict = verify([three[0].parent])
    assert [(fault.file, fault.seq) for fault in faults if isinstance(fault, Fault)] == [(str(three[1]), 4)]
    assert isinstance(verdict, Verdict)
    assert verdict.commits == 6
    three[0].unlink()
    assert judge(three[0].parent)[0] == [(1, 1)]
    with pytest.raises(CorruptError, match="is missing") as caught:
        list(audit([three[0].parent]))
    assert caught.value.file == str(three[0])
    assert judge(three[0])[0] == [(1, 1)]


def test_bytes_at_the_end_of_an_earlier_segment_are_a_fault(three: list[Path]) -> None:
    with three[1].open("ab") as file:
        file.write(b"torn")
    found, verdict = judge(three[0].parent)
    assert (found, verdict.commits) == ([(4, 7)], 9)


def test_damage_at_the_end_of_a_segment_leaves_the_next_to_stand_alone(three: list[Path]) -> None:
    data = three[0].read_bytes()
    three[0].write_bytes(data.replace(b'"b"', b'"x"'))
    found, verdict = judge(three[0].parent)
    assert (found, verdict.commits) == ([(3, 3)], 8)
    three[0].write_bytes(b"no journal\n")
    renamed = three[0].rename(three[0].with_name("renamed"))
    assert judge(renamed)[0] == [(1, 1)]
    *faults, _ = verify([three[1], renamed])
    assert [(fault.line, fault.seq) for fault in faults if isinstance(fault, Fault)] == [(1, 7)]


def test_a_segment_alone_whose_format_was_changed_is_damaged_and_one_of_another_format_is_not_judged(
    three: list[Path],
) -> None:
    data = three[1].read_bytes()
    three[1].write_bytes(data.replace(b'"format":1', b'"format":2'))
    assert judge(three[1])[0] == [(1, 4)]
    prev = digest(three[0].read_bytes().splitlines(keepends=True)[-1])
    three[1].write_bytes(b"".join(chain(opened(prev, format=2), posted(), seq=4, prev=prev)))
    with pytest.raises(UnsupportedError, match="format is 2"):
        judge(three[1])


def test_two_journals_in_one_directory_are_told(three: list[Path]) -> None:
    prev = digest(three[0].read_bytes().splitlines(keepends=True)[-1])
    events = msgspec.json.encode(opened(prev, journal="another"))
    line, _ = record.encode(4, "2026-09-09T08:00:07.049Z", 1, events, prev)
    three[1].write_bytes(line)
    three[2].unlink()
    faults = [found for found in verify([three[0].parent]) if isinstance(found, Fault)]
    assert [fault.cause for fault in faults] == ["two journals mixed: 3f2b8c1e-7a54-4d0e-9a51-0c6d2f9be001 and another"]


def test_lost_lines_are_named_and_what_follows_is_marked_where_it_cannot_be_checked(tmp_path: Path) -> None:
    head = chain(opened(), lost(2, 5, None, reason="redacted"))
    after = chain(posted(), lost(7, 7, "e" * 64), seq=6, prev="d" * 64)
    end = chain(posted(), seq=8, prev="e" * 64)
    found, verdict = judge_lines(tmp_path, head + after + end)
    assert (found, verdict.unchecked, verdict.commits) == ([], [6], 5)
    assert [(each.seq, each.last, each.reason) for each in verdict.lost] == [(2, 5, "redacted"), (7, 7, "damage")]


def test_a_history_may_begin_later_if_whoever_asks_says_so(three: list[Path]) -> None:
    three[0].unlink()
    *commits, verdict = walk([three[0].parent], from_first=False)
    assert isinstance(verdict, Verdict)
    assert (len(commits), verdict.faults, verdict.first_seq, verdict.last_seq) == (6, 0, 4, 9)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors as Linux tells them")
def test_what_is_no_regular_file_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="it is no regular file"):
            list(audit([tmp_path / NAME]))
    assert len(os.listdir("/proc/self/fd")) == before
