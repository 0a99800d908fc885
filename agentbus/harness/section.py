"""The session protocol as a section of a file of rules that agents read, such as AGENTS.md. Pure: texts in, texts out.

It stands between two marks, so that it can be renewed and taken out again; what others wrote around it stays.
"""

from __future__ import annotations

from agentbus.protocol import render_protocol

BEGIN = "<!-- agentbus begin: written by `agentbus init --agents-md` -->"
END = "<!-- agentbus end -->"


class BrokenSectionError(ValueError):
    """The marks are not one pair, in order. The text is a clause that says so."""


def put(text: str, name: str) -> str:
    """The text with the section for the identity ``name``: in its place if it is there, else at the end.

    Raises:
        BrokenSectionError: nothing can be told to be ours.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    section = f"{BEGIN}\n## Agentbus\n\n{render_protocol(name)}{END}".replace("\n", newline)
    found = _find(text)
    if found is not None:
        return text[: found[0]] + section + text[found[1] :]
    if text and not text.endswith("\n"):
        text += newline
    return text + (newline if text else "") + section + newline


def drop(text: str) -> str:
    """The text without the section, and without the line ends that came with it.

    Raises:
        BrokenSectionError: as `put`.
    """
    found = _find(text)
    if found is None:
        return text
    before, behind = text[: found[0]], text[found[1] :]
    newline = "\r\n" if "\r\n" in text else "\n"
    return before.removesuffix(newline) + behind.removeprefix(newline)


def _find(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if not begins and not ends:
        return None
    start, end = text.find(BEGIN), text.find(END)
    if (begins, ends) != (1, 1) or end < start:
        raise BrokenSectionError(f"it must hold the line {BEGIN} once, and behind it the line {END} once")
    return start, end + len(END)
