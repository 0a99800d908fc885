"""Identities known to the bus, and which of them a text addresses with ``@identity``. Pure.

The same code serves the rule that answers a post and the fold, so the two cannot disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_JOINERS = "-_/"


class Identities:
    """Every identity ever seen, numbered from 0 in order of appearance; the numbers stand in Retained's columns."""

    __slots__ = ("_firsts", "_lengths", "_numbers", "names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lengths: list[int] = []
        self._firsts: set[str] = set()
        for name in names:
            self.add(name)

    def add(self, identity: str) -> int:
        """The identity's number; a new one if it was not known."""
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.names)
            self.names.append(identity)
            self._firsts.add(identity[:1])
            if len(identity) not in self._lengths:
                self._lengths.append(len(identity))
                self._lengths.sort(reverse=True)
        return number

    def find(self, identity: str) -> int | None:
        """The identity's number; None if it was never seen."""
        return self._numbers.get(identity)

    def mentioned(self, content: str) -> Iterator[str]:
        """The identities ``content`` holds an ``@`` for, in order of their place; one may come twice.

        After each ``@`` the longest known identity counts that is followed by the end of the text or by a character
        that could not belong to a name: no letter, no digit, none of ``-``, ``_``, ``/``. An ``@`` right behind an
        ASCII letter or digit belongs to something else, mostly to a mail address.
        """
        at = content.find("@")
        while at >= 0:
            start = at + 1
            if content[start : start + 1] in self._firsts and not _is_inside_word(content, at):
                yield from self._longest_at(content, start)
            at = content.find("@", start)

    def _longest_at(self, content: str, start: int) -> Iterator[str]:
        for length in self._lengths:
            name = content[start : start + length]
            if name in self._numbers and _ends(content, start + length):
                yield name
                return


def _is_inside_word(content: str, at: int) -> bool:
    before = content[at - 1 : at]
    return before.isascii() and before.isalnum()


def _ends(content: str, end: int) -> bool:
    following = content[end : end + 1]
    return not following or not (following.isalnum() or following in _JOINERS)
