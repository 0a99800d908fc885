from __future__ import annotations

import datetime as dt
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import format_time, now, parse_time

YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_999


@given(st.integers(YEAR_1_MS, YEAR_9999_MS))
def test_a_time_survives_its_text(ms: int) -> None:
    assert parse_time(format_time(ms)) == ms


@given(st.integers(0, YEAR_9999_MS))
def test_a_time_is_written_as_the_standard_library_would(ms: int) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    assert format_time(ms) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_every_year_of_the_calendar_begins_and_ends_where_the_standard_library_says() -> None:
    epoch = dt.date(1970, 1, 1).toordinal()
    for year in range(1, 10_000):
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            days = dt.date(year, month, day).toordinal() - epoch
            assert parse_time(f"{year:04d}-{month:02d}-{day:02d}T00:00:00.000Z") == days * 86_400_000


@pytest.mark.parametrize("month", range(1, 13))
def test_a_month_ends_with_its_last_day(month: int) -> None:
    last = (dt.date(2026 + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)).day
    parse_time(f"2026-{month:02d}-{last}T00:00:00.000Z")
    with pytest.raises(ValueError, match="is not a date"):
        parse_time(f"2026-{month:02d}-{last + 1}T00:00:00.000Z")


def test_now_is_the_systems_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= parse_time(now()) <= before + 60_000


def test_times_compare_as_texts() -> None:
    assert format_time(999) < format_time(1000) < now()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-09-09T08:00:07Z",
        "2026-09-09T08:00:07.049",
        "2026-09-09t08:00:07.049Z",
        "2026-09-09T08:00:07.049Z\n",
        "\u0662026-09-09T08:00:07.049Z",
        "2026-09-09T08:00:07.049z",
        "2026-09-09T08:00:07.049X",
        "2026-09-09T08:00:07.0499",
        "2026-09-09T08:00:07.04xZ",
        "2026-09-09T08:00:07.x49Z",
        "2026-09-09T08:00:07.-49Z",
        "2026-09-09T08:00:07.04\u0669Z",
        "2026-09-09T08:00:07.04\u00b2Z",
        "2026-09-09T08:00:07.049\u017d",
        "2026-09-09T08:00:07,049Z",
        "2026-02-29T08:00:07.049Z",
        "2100-02-29T08:00:07.049Z",
        "2026-13-09T08:00:07.049Z",
        "2026-00-09T08:00:07.049Z",
        "2026-09-00T08:00:07.049Z",
        "0000-09-09T08:00:07.049Z",
        "2026-09-09T24:00:07.049Z",
        "2026-09-09T08:60:07.049Z",
        "2026-09-09T08:00:60.049Z",
    ],
)
def test_what_is_no_such_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_time(text)


def test_leap_days_are_real() -> None:
    assert format_time(parse_time("2024-02-29T00:00:00.000Z")) == "2024-02-29T00:00:00.000Z"
    assert format_time(parse_time("2000-02-29T00:00:00.000Z")) == "2000-02-29T00:00:00.000Z"
