"""Lines that say that others were left out, as people pass a log on."""

from __future__ import annotations

import re

PASTE = 1 << 17
"""Bytes of the longest text that may be an excerpt; what is longer is a log."""
ELISION = (
    rb"(?:\.{3,6}|\xe2\x80\xa6|\[(?:\.{2,}|\xe2\x80\xa6|[Tt]runcated|snip|cut|omitted)\]|\((?:\.{3}|\xe2\x80\xa6)\)"
    rb"|<snip>|-+ ?(?:snip|8<) ?-+"
    rb"|(?:[<(\[.-]|\xe2\x80\xa6){0,8} ?(?:\d[\d,]* |many |some )?(?:more )?(?:log )?lines? "
    rb"(?:are |were )?(?:omitted|skipped|snipped|truncated|removed|elided|hidden|cut|left out)"
    rb" ?(?:[>)\].-]|\xe2\x80\xa6){0,8}"
    rb"|(?:\.{3}|\xe2\x80\xa6) ?\d[\d,]* (?:more )?lines? ?(?:\.{3}|\xe2\x80\xa6)?)"
)
_SIGNS = b"...", b"\xe2\x80\xa6", b"snip", b"-8<", b"- 8<", b"runcated]", b"omitted]", b"[cut]", b"line"
_BEFORE = rb"^[ \t>|*_`#+-]*"
_BEHIND = rb"[ \t|*_`\r]*$"


def is_elided(text: bytes) -> bool:
    """Whether a line of a text says that others were left out."""
    if not any(sign in text for sign in _SIGNS):
        return False
    return re.search(_BEFORE + ELISION + _BEHIND, text, re.MULTILINE) is not None
