"""Other people's text, safe to show on one line of a terminal. Pure.

Made visible as escapes: control characters, line and paragraph separators, bidirectional marks, and lone
surrogates, which cannot be sent at all. Everything else stays, backslashes too: the result is for eyes, not
for parsing.
"""

from __future__ import annotations

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_SEPARATORS = [0x2028, 0x2029]
_BIDI_MARKS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


def render_visible(text: str) -> str:
    """``text`` on one line, encodable as UTF-8, with nothing in it that moves the cursor."""
    if text.isascii() and text.isprintable():  # most are, and an auditor reads millions
        return text
    return text.translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def _escape(code: int) -> str:
    return _SHORT.get(chr(code)) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


_VISIBLE = {code: _escape(code) for code in (*_CONTROL, *_SEPARATORS, *_BIDI_MARKS)}
