from __future__ import annotations

import pytest

from journal import (
    BusyError,
    CorruptError,
    JournalError,
    ReplacedError,
    TooLargeError,
    UnreadableError,
    UnsupportedError,
    UnsyncedError,
    UnusableError,
    UnwritableError,
)


@pytest.mark.parametrize(
    ("error", "facts", "text"),
    [
        (BusyError("the lock"), {"waited_for": "the lock"}, "the lock was not free in time; nothing was written"),
        (TooLargeError(9, 7), {"size": 9, "limit": 7}, "takes 9 bytes and a line holds at most 7"),
        (UnwritableError("disk full"), {"cause": "disk full"}, "not stored: disk full"),
        (UnsyncedError("gone"), {"cause": "gone"}, "it is not known whether the disk holds what was written: gone"),
        (
            CorruptError("f.jsonl", 3, 40, 7, "why"),
            {"file": "f.jsonl", "line": 3, "offset": 40, "seq": 7, "cause": "why"},
            "f.jsonl line 3 (byte 40, seq 7): why",
        ),
        (
            UnsupportedError("the format", "2", "1"),
            {"what": "the format", "found": "2", "known": "1"},
            "the format is 2, this software knows 1",
        ),
        (UnusableError("/d", "why"), {"directory": "/d", "cause": "why"}, "cannot use /d: why"),
        (UnreadableError("/d", "why"), {"directory": "/d", "cause": "why"}, "cannot use /d: why"),
        (ReplacedError("f", "why"), {"file": "f", "cause": "why"}, "f is not the file read before: why"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, JournalError) else "",
)
def test_an_error_holds_its_facts_and_says_them_in_one_sentence(
    error: JournalError, facts: dict[str, object], text: str
) -> None:
    assert vars(error) == facts
    assert text in str(error)
