"""RFC 3339 UTC with three decimals: the one formatter and parser. No time zones, no other forms."""

from __future__ import annotations

import re
import time
from functools import lru_cache

_MINUTE = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):", re.ASCII)
_SECOND = re.compile(r"\d\d\.", re.ASCII)
_REST = re.compile(r"\d{3}Z", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_MS = 86_400_000
_OTHER_FORM = "is not a time like 2026-09-09T08:00:07.049Z"
_NO_TIME_OF_DAY = "is not a time of day"


def now() -> str:
    """The wall clock; it may step back, so never use it to order commits."""
    return format_time(time.time_ns() // 1_000_000)


def format_time(ms: int) -> str:
    """Milliseconds since 1970-01-01 UTC -> ``2026-09-09T08:00:07.049Z``. Such texts compare as times do."""
    second, rest = divmod(ms, 1000)
    return f"{_second_text(second)}.{rest:03d}Z"


def parse_time(text: str) -> int:
    """The inverse of `format_time`.

    Raises:
        ValueError: any other form, or no real date. A leap second is none.
    """
    try:
        return _begin_ms(text[:20]) + _rest_ms(text[20:])
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None


# A fold parses a million times, which lie close together, and each commit makes one: every part is looked up.


@lru_cache(maxsize=4)
def _second_text(second: int) -> str:
    t = time.gmtime(second)
    return f"{t.tm_year:04d}-{t.tm_mon:02d}-{t.tm_mday:02d}T{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"


@lru_cache(maxsize=4)
def _begin_ms(text: str) -> int:
    """``2026-09-09T08:00:07.`` -> milliseconds since 1970-01-01 UTC."""
    return _minute_ms(text[:17]) + _second_ms(text[17:])


@lru_cache(maxsize=64)
def _minute_ms(text: str) -> int:
    """``2026-09-09T08:00:`` -> milliseconds since 1970-01-01 UTC."""
    found = _MINUTE.fullmatch(text)
    if found is None:
        raise ValueError(_OTHER_FORM)
    year, month, day, hour, minute = map(int, found.groups())
    if not (year and 1 <= month <= 12 and 1 <= day <= _month_days(year, month)):
        raise ValueError("is not a date of the calendar")
    if hour > 23 or minute > 59:
        raise ValueError(_NO_TIME_OF_DAY)
    return _day_number(year, month, day) * _DAY_MS + (hour * 60 + minute) * 60_000


@lru_cache(maxsize=60)
def _second_ms(text: str) -> int:
    """``07.`` -> milliseconds."""
    if not _SECOND.fullmatch(text):
        raise ValueError(_OTHER_FORM)
    second = int(text[:2])
    if second > 59:
        raise ValueError(_NO_TIME_OF_DAY)
    return second * 1000


@lru_cache(maxsize=1000)
def _rest_ms(text: str) -> int:
    """``049Z`` -> milliseconds."""
    if not _REST.fullmatch(text):
        raise ValueError(_OTHER_FORM)
    return int(text[:3])


def _month_days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month - 1] + (month == 2 and leap)


def _day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar."""
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    days += sum(_month_days(year, m) for m in range(1, month))
    return days + day - 1 - 719_162  # days from 0001-01-01 to 1970-01-01
