from __future__ import annotations

from pathlib import Path

import pytest

from journal import Commit, Fault, Journal, LostRange, Verdict, audit, verify, walk

GOLDEN = Path(__file__).parent.parent / "golden"
ANCHORS = {
    "journal-v1": (9, "9:dbfd9ec65e7b6458e7d99ab68800814ca6880bdcd71c1d4659bc9e188e8133d7"),
    "journal-v1-more": (22, "24:374a42c08e59f46f3a51288c3c759cb08e66e5753b2c03bac53bc27b0d1216cd"),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_a_golden_journal_reads_and_verifies_to_its_anchor(name: str) -> None:
    commits, anchor = ANCHORS[name]
    journal = Journal(GOLDEN / name, first_events=b"", read_only=True)
    read = list(journal.read(0))
    assert (len(read), journal.anchor) == (commits, anchor)
    assert list(audit([GOLDEN / name])) == read
    assert [found for found in walk([GOLDEN / name]) if isinstance(found, Commit)] == read
    *faults, verdict = verify([GOLDEN / name])
    assert faults == []
    assert isinstance(verdict, Verdict)
    assert f"{verdict.last_seq}:{verdict.hash}" == anchor
    assert (verdict.commits, verdict.first_seq, verdict.tail, verdict.unchecked) == (commits, 1, None, [])


def test_a_golden_journal_can_be_read_from_any_seq() -> None:
    every = [commit.seq for commit in audit([GOLDEN / "journal-v1-more"])]
    for after_seq in range(25):
        journal = Journal(GOLDEN / "journal-v1-more", first_events=b"", read_only=True)
        assert [commit.seq for commit in journal.read(after_seq)] == [seq for seq in every if seq > after_seq]


def test_a_lost_range_is_named_in_the_verdict() -> None:
    verdict = list(verify([GOLDEN / "journal-v1-more"]))[-1]
    assert isinstance(verdict, Verdict)
    digest = "25c2587431a9ae423851afd41d91e2b2d52d53dd7c4c10605b41aad6cbc82ecf"
    assert verdict.lost == [LostRange(14, digest, 16, "damage")]


def test_each_flipped_byte_is_found_with_its_file_line_offset_and_seq(tmp_path: Path) -> None:
    name = "00000000000000000001.jsonl"
    data = (GOLDEN / "journal-v1" / name).read_bytes()
    copy = tmp_path / name
    begin, line = 0, 1
    for at, byte in enumerate(data[:-1]):
        copy.write_bytes(data[:at] + bytes([byte ^ 1]) + data[at + 1 :])
        faults = [found for found in verify([tmp_path]) if isinstance(found, Fault)]
        assert [(fault.file, fault.line, fault.offset, fault.seq) for fault in faults] == [
            (str(copy), line, begin, line)
        ]
        if byte == ord("\n"):
            begin, line = at + 1, line + 1
    copy.write_bytes(data[:-1] + b"\x0b")
    last = list(verify([tmp_path]))[-1]
    assert isinstance(last, Verdict)
    assert last.tail is not None
    assert (last.commits, last.tail.offset, last.tail.unfinished_line) == (8, begin, False)
