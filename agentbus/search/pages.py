"""Where the pages of earlier searches ended, so that the next one neither repeats nor skips. Finds nothing itself.

What was shown is remembered here and not written into the cursor: the order of hits shifts a little with every new
text, and an agent has to repeat a cursor letter by letter.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

from msgspec import Struct

from agentbus.errors import VALIDATION, BusError, render_value
from agentbus.limits import SEARCH_PAGES_MAX
from agentbus.search.matching import Word
from agentbus.search.scope import Scope


class Page(Struct, frozen=True):
    """A page that has a next one.

    Attributes:
        asked: the arguments as they were given, but for count and cursor: a cursor goes on with these only.
        words: what was looked for, and ``scope`` where; a period that began "2h" ago stays where it is.
        upto: messages and memories made later belong to no page of this search.
        shown: keys of what is on the page; those of the pages before it are theirs.
    """

    asked: dict[str, Any]
    words: tuple[Word, ...]
    scope: Scope
    upto: int
    shown: tuple[int, ...]
    before: Page | None

    def all_shown(self) -> frozenset[int]:
        """Keys of everything on this page and those before it."""
        found: set[int] = set()
        page: Page | None = self
        while page is not None:
            found.update(page.shown)
            page = page.before
        return frozenset(found)


class Pages:
    """The last pages of this process's searches, by cursor."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, Page] = OrderedDict()
        self._mutex = threading.Lock()

    def keep(self, page: Page) -> str:
        """Remember a page; its cursor."""
        cursor = os.urandom(4).hex()
        with self._mutex:
            self._pages[cursor] = page
            if len(self._pages) > SEARCH_PAGES_MAX:
                self._pages.popitem(last=False)
        return cursor

    def find(self, cursor: str, asked: dict[str, Any]) -> Page:
        """The page with this cursor. It stays: whoever lost an answer asks again.

        Raises:
            BusError: validation; there is none, or it belongs to another search.
        """
        with self._mutex:
            page = self._pages.get(cursor)
        if page is None:
            raise BusError(
                VALIDATION,
                f'"cursor" {render_value(cursor)} is none that is known here: pass the "next" of one of this '
                f"session's last {SEARCH_PAGES_MAX} pages, or leave it out to search anew",
            )
        if page.asked != asked:
            raise BusError(
                VALIDATION,
                f'"cursor" {render_value(cursor)} goes on with another search: repeat its arguments, or leave it out',
            )
        return page
