"""Text from jobs made safe to show: on a terminal, in a table, in a log line.

Stored text may contain escape sequences, line breaks and characters that reverse the direction of
writing. Shown as they are, they move the cursor, forge lines or disguise names. Every part that
shows text to a person passes it through one of these functions.
"""

import re
from typing import Final

INDENT: Final = "    "
"""Prefix of the lines of a log record after the first, so that none of them looks like a record."""

_UNSAFE_RANGES: Final = (
    "\x7f-\x9f"  # DEL and C1; U+009B alone begins an escape sequence
    "\xad\u180e\u200b\u2060-\u2064\ufeff\ufff9-\ufffb"  # invisible
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # direction of writing
    "\u2028\u2029"  # line and paragraph separator
    "\ud800-\udfff"  # lone surrogates, which no encoding can write
    "\U000e0000-\U000e0fff"  # tags, invisible
)
_UNSAFE: Final = re.compile(f"[\\x00-\\x1f{_UNSAFE_RANGES}]")
_UNSAFE_IN_LINES: Final = re.compile(f"[\\x00-\\x08\\x0b-\\x1f{_UNSAFE_RANGES}]")
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NEEDS_QUOTES: Final = re.compile(r"[\s=\"'\\]")


def printable(text: str) -> str:
    r"""Return `text` on one line; control characters become escapes such as `\x1b`. Idempotent."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return `text` with its line breaks and tabs; other control characters become escapes."""
    if text.isprintable():
        return text
    return _UNSAFE_IN_LINES.sub(_escape, text.replace("\r\n", "\n"))


def log_value(value: object) -> str:
    """Return the value of `key=value` in a log line; in quotes unless it is a single plain word."""
    text = str(value)
    if text and text.isprintable() and not _NEEDS_QUOTES.search(text):
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if code > 0xFFFF:  # noqa: PLR2004 - the last code point of four hex digits
        return f"\\U{code:08x}"
    return _SHORT_ESCAPES.get(char) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")  # noqa: PLR2004
