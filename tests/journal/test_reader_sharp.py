"""The reader at its edges: what a look costs, what is seen while somebody writes, which line an error names."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from journal import CorruptError, ReplacedError, UnsyncedError, record
from tests.journal.conftest import FaultyFiles, Unflushed, events, soon

if TYPE_CHECKING:
    from collections.abc import Callable

    from journal import Appended, Journal
    from tests.journal.conftest import Kit

TORN = b'{"seq":' + b"\0" * 1024 + b"}\n"  # a line that lost a block in a power cut


def append(kit: Kit, line: bytes, first_seq: int = 1) -> None:
    with kit.segment(first_seq).open("ab") as file:
        file.write(line)


def append_lost(kit: Kit, journal: Journal) -> None:
    """Say that one line is lost, as repair does where it knows what the next line continues."""
    seq, prev = journal.last_seq + 1, journal.anchor.partition(":")[2]
    lost = b'[{"type":"lost","first":%d,"last":%d,"next_prev":"%b","reason":"damage"}]' % (seq, seq, b"a" * 64)
    append(kit, record.encode(seq, "2026-09-09T08:00:07.049Z", 1, lost, prev)[0])


def test_under_the_lock_to_read_on_from_the_end_asks_the_system_nothing_and_to_read_again_gives_all(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    seen: list[object] = []

    def build(_time: str) -> bytes:
        files.calls.clear()
        seen.append([commit.seq for commit in journal.read(3)])
        seen.append(list(files.calls))
        seen.extend([commit.seq for commit in journal.read(after)] for after in (0, 1, 2))
        return events("two")

    journal.commit(build, deadline=soon())
    assert seen == [[], [], [1, 2, 3], [2, 3], [3]]


def test_a_line_is_seen_as_soon_as_it_is_written_though_its_writer_still_holds_the_lock(kit: Kit) -> None:
    """Or a thread that looks just then would go to sleep on a line that is there."""
    seen: list[list[int]] = []

    class Watched(Unflushed):
        journal: Journal | None = None

        def write(self, fd: int, data: bytes) -> int:
            taken = super().write(fd, data)
            if self.journal is not None:
                thread = threading.Thread(target=look, args=(self.journal,))
                thread.start()
                thread.join(20)
            return taken

    def look(journal: Journal) -> None:
        seen.append([commit.seq for commit in journal.read(3)])

    files = Watched()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.journal = journal
    assert kit.commit(journal, "two").seq == 4
    assert seen == [[4]]


def test_lines_that_were_just_read_are_given_again_without_a_read(kit: Kit) -> None:
    appended = kit.commit(kit.open(), "one")
    files = FaultyFiles()
    reader = kit.open(files=files)
    list(reader.read(0))
    files.calls.clear()
    assert b"one" in reader.line_at(appended.place, appended.seq).events
    assert files.calls == ["stat"]


def test_whatever_is_read_nothing_is_left_open(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=600)
    appended = [kit.commit(journal, str(number) * 50) for number in range(30)]
    at = journal.bookmark(journal.last_seq)
    assert at is not None
    append(kit, b'{"torn', appended[-1].place.segment)
    files = FaultyFiles()
    reader = kit.open(files=files, read_only=True)
    assert reader.resume(at)
    assert len(list(reader.read(0))) == len(appended) + 2 + len(list(kit.directory.glob("*.jsonl"))) - 1
    assert reader.line_at(appended[0].place, appended[0].seq).seq == appended[0].seq
    assert reader.torn_bytes() == 6
    assert files.fds == set()
    with pytest.raises(ReplacedError):
        reader.line_at(appended[0].place, appended[1].seq)
    writer = kit.open(files=files, segment_bytes_max=1)
    kit.commit(writer, "mended")
    writer.close()
    assert files.fds == set()


def test_a_line_in_hand_of_an_earlier_segment_is_given_only_while_that_is_there(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=300)
    first = kit.commit(journal, "one" * 100)
    second = kit.commit(journal, "two")
    assert first.place.segment < second.place.segment
    assert journal.line_at(first.place, first.seq).seq == first.seq
    kit.segment(first.place.segment).unlink()
    with pytest.raises(ReplacedError, match="it is gone"):
        journal.line_at(first.place, first.seq)


def lines_after_a_lost_one(kit: Kit) -> tuple[Journal, Appended]:
    journal = kit.open()
    kit.commit(journal)
    append_lost(kit, journal)
    after = kit.commit(journal, "after it")
    for number in range(20):  # more than are in hand
        kit.commit(journal, str(number))
    return journal, after


def test_a_torn_tail_keeps_nobody_from_a_line_by_its_place(kit: Kit) -> None:
    journal, after = lines_after_a_lost_one(kit)
    append(kit, TORN)
    assert b"after it" in journal.line_at(after.place, after.seq).events


def test_a_line_that_ends_before_its_place_does_is_another(kit: Kit) -> None:
    appended = kit.commit(kit.open(), "one")
    place = appended.place
    with kit.segment().open("r+b") as file:
        file.seek(place.offset + place.line_bytes // 2)
        file.write(b"\n")
    with pytest.raises(ReplacedError, match=f"seq 3 is not at byte {place.offset}"):
        kit.open().line_at(place, 3)


def test_a_torn_tail_does_not_keep_a_failed_flush_from_being_made_good(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "two")
    files.fail_nothing()
    append(kit, TORN)
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]
    assert len(journal.set_aside()) == 1


def test_a_failed_flush_of_a_short_segment_is_made_good_though_a_longer_one_follows(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "two")
    files.fail_nothing()
    kit.commit(kit.open(segment_bytes_max=1), "x" * 5000)
    with pytest.raises(ReplacedError):
        list(journal.read(journal.last_seq))
    assert len(list(journal.read(0))) == 6
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "x" * 5000, "three"]


def test_damage_far_into_a_segment_is_named_by_its_own_line(kit: Kit) -> None:
    journal = kit.open()
    for _ in range(3):
        kit.commit(journal, "x" * (400 << 10))
    damaged = kit.commit(journal, "damaged")
    for _ in range(5):
        kit.commit(journal, "after")
    data = kit.segment().read_bytes()
    kit.segment().write_bytes(data.replace(b"damaged", b"domoged"))
    files = FaultyFiles()
    with pytest.raises(CorruptError) as caught:
        list(kit.open(files=files, read_only=True).read(0))
    assert (caught.value.line, caught.value.offset, caught.value.seq) == (6, damaged.place.offset, 6)
    assert files.fds == set()


def test_files_that_were_replaced_are_not_left_open(kit: Kit) -> None:
    files = FaultyFiles()
    reader = kit.open(files=files)
    kit.commit(kit.open(), "one")
    list(reader.read(0))
    kit.commit(kit.open(), "two")
    data = kit.segment().read_bytes()
    kit.segment().rename(kit.directory / "kept")  # so that its inode is not given again
    kit.segment().write_bytes(data)
    with pytest.raises(ReplacedError, match="it is another file now"):
        list(reader.read(3))
    assert files.fds == set()


# --- how much is read


class Offsets(FaultyFiles):
    """Remembers where reads began."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: list[int] = []

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.offsets.append(offset)
        return super().pread(fd, length, offset)


def test_to_read_from_far_on_only_the_segment_that_holds_it_is_opened(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=600)
    for number in range(20):
        kit.commit(journal, str(number))
    files = FaultyFiles()
    reader = kit.open(files=files)
    next(iter(reader.read(0)))
    files.calls.clear()
    assert [commit.seq for commit in reader.read(journal.last_seq - 1)] == [journal.last_seq]
    assert files.calls.count("open") == 1


def test_to_read_on_in_a_segment_goes_on_from_the_last_known_place(kit: Kit) -> None:
    journal = kit.open()
    for number in range(200):
        kit.commit(journal, str(number) * 300, flush=False)
    files = Offsets()
    reader = kit.open(files=files)
    next(iter(reader.read(0)))
    files.offsets.clear()
    assert [commit.seq for commit in reader.read(journal.last_seq - 1)] == [journal.last_seq]
    assert min(files.offsets) > 1000


# --- a line that fails


class Garbled(FaultyFiles):
    """Gives something else for what is read, one read after the other, and then what is there."""

    def __init__(self, *reads: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.reads = list(reads)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        return self.reads.pop(0)(data) if self.reads else data


def garbled(data: bytes) -> bytes:
    return data.replace(b"one", b"o\0e")


@pytest.mark.parametrize("times", [1, 2])
def test_a_line_that_is_sound_when_it_is_read_again_is_sound(kit: Kit, times: int) -> None:
    kit.commit(kit.open(), "one")
    kit.commit(kit.open(), "two")
    assert kit.texts(kit.open(files=Garbled(*[garbled] * times))) == ["one", "two"]


def test_a_line_of_which_a_part_is_there_when_it_is_read_again_is_looked_at_once_more(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    files = Garbled(garbled, garbled, lambda data: data[:9])
    assert kit.texts(kit.open(files=files)) == ["one"]


def test_of_what_is_sound_under_the_lock_only_the_line_that_fails_is_damage(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    damaged = kit.commit(journal, "two")
    kit.segment().write_bytes(kit.segment().read_bytes().replace(b"two", b"tvo"))
    reader = kit.open(files=Garbled(garbled, garbled))
    with pytest.raises(CorruptError) as caught:
        list(reader.read(0))
    assert (caught.value.seq, caught.value.offset) == (4, damaged.place.offset)


def test_a_torn_line_with_a_segment_after_it_is_damage_though_that_began_meanwhile(kit: Kit) -> None:
    def roll(data: bytes) -> bytes:
        kit.segment(4).touch()
        return data

    kit.commit(kit.open(), "one")
    append(kit, TORN)
    with pytest.raises(CorruptError):
        list(kit.open(files=Garbled(bytes, roll)).read(0))


def test_damage_is_no_torn_tail_because_one_follows_it(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    append(kit, b'{"seq":4}\n' + TORN)
    with pytest.raises(CorruptError):
        list(kit.open().read(0))


def test_before_a_line_is_called_damaged_a_writer_at_work_is_waited_for(kit: Kit) -> None:
    class Busy(FaultyFiles):
        asked = 0

        def try_share(self, fd: int) -> bool:
            self.asked += 1
            return self.asked > 1 and super().try_share(fd)

    kit.commit(kit.open(), "one")
    append(kit, TORN)
    files = Busy()
    assert kit.texts(kit.open(files=files)) == ["one"]
    assert files.asked == 2
