"""What may be an excerpt: a short text, and one that says that lines were left out of it."""

from __future__ import annotations

import re

MOST = 1 << 17
"""Bytes of the longest text that is read as an excerpt."""
ELISION = (
    rb"(?:\.{3,6}|\xe2\x80\xa6|\[(?:\.{2,}|\xe2\x80\xa6|[Tt]runcated|snip|cut|omitted)\]|\((?:\.{3}|\xe2\x80\xa6)\)"
    rb"|<snip>|-+ ?(?:snip|8<) ?-+)"
)
_SIGNS = b"...", b"\xe2\x80\xa6", b"snip", b"runcated]", b"omitted]", b"[cut]"
_LEFT_OUT = rb"^[ \t>|*_`#+-]*" + ELISION + rb"[ \t|*_`\r]*$"
"""A line that says that others were left out."""


def is_elided(text: bytes) -> bool:
    """Whether a line of a text says that others were left out."""
    return any(sign in text for sign in _SIGNS) and re.search(_LEFT_OUT, text, re.MULTILINE) is not None
