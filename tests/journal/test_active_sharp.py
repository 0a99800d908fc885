"""The segment that is written to: locked before its first byte, flushed before its answer, nothing of it left open."""

from __future__ import annotations

import os

from tests.journal.conftest import Kit, Unflushed


def test_every_line_is_written_under_the_lock_of_its_own_segment(kit: Kit) -> None:
    """The lock file may have been deleted: then that lock alone keeps two writers apart."""

    class Guarded(Unflushed):
        def __init__(self) -> None:
            self.locked: list[bool] = []

        def write(self, fd: int, data: bytes) -> int:
            other = os.open(max(kit.directory.glob("*.jsonl")), os.O_RDWR)
            self.locked.append(not self.try_lock(other))
            os.close(other)
            return super().write(fd, data)

    files = Guarded()
    journal = kit.open(files=files, segment_bytes_max=300)
    for number in range(4):
        kit.commit(journal, str(number))
    segments = len(list(kit.directory.glob("*.jsonl")))
    assert segments > 2
    assert files.locked == [True] * (segments + 1 + 4)


def test_the_child_of_a_process_that_wrote_nothing_has_nothing_to_close(kit: Kit) -> None:
    journal = kit.open()
    journal._writer.active.after_fork()
    assert kit.commit(journal).seq == 3
