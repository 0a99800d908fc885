"""Every anticipated failure as the envelope a caller sees."""

from __future__ import annotations

import pytest

import journal
from agentbus import errors
from agentbus.errors import BusError
from agentbus.refusals import render_error, unsynced


def test_a_refusal_is_its_own_envelope() -> None:
    refusal = BusError(errors.RATE_LIMITED, "slow down: wait a second", retryable=True)
    assert render_error(refusal) == {"code": "rate_limited", "message": "slow down: wait a second", "retryable": True}


CORRUPT = (
    "corrupt: /d/1.jsonl line 3 (byte 99, seq 3): does not verify: end all sessions and run `agentbus repair`:"
    " it shows what it does, and asks; until then this cannot be done"
)
UNSYNCED = (
    "unsynced: it is not known whether the disk holds what was written: EIO:"
    " look whether it took effect before you call again, and pass an idempotency_key"
)
UNSUPPORTED = (
    "unsupported: journal format is 2, this software knows 1; run the newer software that wrote it:"
    " restart this session with the newer agentbus"
)
DISK_FULL = (
    "not stored: disk full: see to the disk that data_directory lies on (`agentbus status` names it), then call again"
)
FAILURES: list[tuple[journal.JournalError, str, bool, str]] = [
    (
        journal.BusyError("the writer lock"),
        "busy",
        True,
        "busy: the writer lock was not free in time; nothing was written: call again",
    ),
    (
        journal.TooLargeError(9, 8),
        "validation",
        False,
        "not stored: the commit takes 9 bytes and a line holds at most 8: send less at once",
    ),
    (
        journal.UnwritableError("disk full"),
        "capacity_exhausted",
        False,
        DISK_FULL,
    ),
    (
        journal.UnsyncedError("EIO"),
        "unsynced",
        False,
        UNSYNCED,
    ),
    (journal.CorruptError("/d/1.jsonl", 3, 99, 3, "does not verify"), "corrupt", False, CORRUPT),
    (
        journal.UnsupportedError("journal format", "2", "1"),
        "unsupported",
        False,
        UNSUPPORTED,
    ),
    (
        journal.UnusableError("/d", "another user's"),
        "validation",
        False,
        "cannot use /d: another user's: choose another data_directory in the settings",
    ),
    (
        journal.UnreadableError("/d", "Too many open files"),
        "capacity_exhausted",
        False,
        "cannot use /d: Too many open files: see to the machine, then call again",
    ),
    (
        journal.ReplacedError("/d/1.jsonl", "shorter"),
        "busy",
        True,
        "/d/1.jsonl is not the file read before: shorter: call again",
    ),
    (
        journal.ChangedError("/d"),
        "busy",
        True,
        "/d has changed since it was looked at; nothing was done: run it again",
    ),
    (journal.JournalError("something new"), "internal", False, "something new: see agentbus.log"),
]


@pytest.mark.parametrize(("error", "code", "retryable", "message"), FAILURES)
def test_what_the_journal_meets_gets_its_code_and_its_next_step(
    error: journal.JournalError, code: str, message: str, *, retryable: bool
) -> None:
    assert render_error(error) == {"code": code, "message": message, "retryable": retryable}
    assert code in errors.CODES


def test_each_journal_error_has_its_meaning() -> None:
    told = {type(error) for error, *_ in FAILURES}
    exported = {getattr(journal, name) for name in journal.__all__ if name.endswith("Error")}
    assert exported == told


@pytest.mark.parametrize("retryable", [True, False])
def test_an_unknown_outcome_may_be_retried_only_where_twice_is_once(*, retryable: bool) -> None:
    envelope = render_error(unsynced(journal.UnsyncedError("EIO"), retryable=retryable))
    assert (envelope["code"], envelope["retryable"]) == ("unsynced", retryable)
    assert envelope["message"].endswith(": call again" if retryable else "and pass an idempotency_key")


def test_a_failure_is_one_line_that_can_be_sent_whatever_is_in_it() -> None:
    path = "/home/\udcff\n\u202e/1.jsonl"
    for error in (
        render_error(journal.CorruptError(path, 1, 0, 1, "x")),
        render_error(unsynced(journal.UnsyncedError(path), retryable=False)),
    ):
        error["message"].encode()
        assert error["message"].isprintable()


def test_codes_are_those_of_the_contract() -> None:
    codes = "validation not_registered not_found conflict rate_limited capacity_exhausted busy unsynced unsupported"
    assert " ".join(errors.CODES) == f"{codes} corrupt internal"
