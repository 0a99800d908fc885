"""RFC 3339 UTC with three decimals: the one formatter and parser. No time zones, no other forms."""

from __future__ import annotations

import re
import time
from functools import lru_cache

_SECOND = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_MS = 86_400_000


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
    rest = text[20:]
    if len(rest) != 4 or rest[3] != "Z" or not (rest.isascii() and rest[:3].isdigit()):
        raise _other_form(text)
    return _second_ms(text[:20]) + int(rest[:3])


# The times of a journal lie close together: a fold parses a million of them, and each commit makes one.


@lru_cache(maxsize=4)
def _second_text(second: int) -> str:
    t = time.gmtime(second)
    return f"{t.tm_year:04d}-{t.tm_mon:02d}-{t.tm_mday:02d}T{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"


@lru_cache(maxsize=64)
def _second_ms(text: str) -> int:
    """``2026-09-09T08:00:07.`` -> milliseconds since 1970-01-01 UTC."""
    found = _SECOND.fullmatch(text)
    if found is None:
        raise _other_form(text)
    year, month, day, hour, minute, second = map(int, found.groups())
    if not (year and 1 <= month <= 12 and 1 <= day <= _month_days(year, month)):
        raise ValueError(f"{text!r} is not a date of the calendar")
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    return _day_number(year, month, day) * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000


def _other_form(text: str) -> ValueError:
    return ValueError(f"{text!r} is not a time like 2026-09-09T08:00:07.049Z")


def _month_days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month - 1] + (month == 2 and leap)


def _day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar."""
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    days += sum(_month_days(year, m) for m in range(1, month))
    return days + day - 1 - 719_162  # days from 0001-01-01 to 1970-01-01
