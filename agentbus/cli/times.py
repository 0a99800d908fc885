"""Times as people give and read them: their own zone, or UTC. The journal's form is always UTC."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from journal import parse_time

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE
)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_when(text: str, now_ms: int, *, utc: bool, last: bool = False) -> int | None:
    """A time in ms since 1970 UTC; None if the text is none.

    Args:
        text: RFC 3339; or the same without a zone, as a reader is shown it; or a day; or ``90s``, ``30m``, ``2h``,
            ``3d`` ago.
        now_ms: what "ago" counts from.
        utc: whether a time without a zone is in UTC; else it is in the reader's own.
        last: whether a day stands for its last moment; else it does for its first.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    found = _MOMENT.fullmatch(text)
    try:
        if found is not None:
            moment = datetime.fromisoformat(f"{found[1]}T{_three_decimals(found[2])}{(found[3] or '').upper()}")
            return _since_epoch(moment, utc=utc)
        if _DAY.fullmatch(text) is None:
            return None
        if last:  # days are not all as long as each other, where clocks are put back
            return _since_epoch(datetime.fromisoformat(text) + timedelta(days=1), utc=utc) - 1
        return _since_epoch(datetime.fromisoformat(text), utc=utc)
    except (ValueError, OverflowError, OSError):
        return None


def _since_epoch(moment: datetime, *, utc: bool) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC) if utc else moment.astimezone()
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


def _three_decimals(clock: str) -> str:
    """A time of day as Python reads it: in a fraction it wants three digits."""
    whole, dot, fraction = clock.partition(".")
    return whole + dot + fraction.ljust(3, "0") if dot else whole


def utc_time(text: str) -> str:
    """The journal's form, as it is."""
    return text


def local_time(text: str) -> str:
    """The journal's form in the reader's own zone."""
    return _local_second(text[:20]) + text[19:23]


@lru_cache(maxsize=8)
def _local_second(text: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_time(text + "000Z") // 1000))
