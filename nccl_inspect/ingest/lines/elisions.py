"""Lines that say that others were left out, as people pass a log on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.ingest.lines.prefix import MARK

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
_LINE = (
    rb"\n[ \t>|*_`#+-]*"
    rb"(?=[.\xe2\[(<\- \dmsl])"  # with which they begin: most lines are not looked at further
    + ELISION
    + rb"[ \t|*_`\r]*$"
)
"""One after another line, which is found faster than one at the beginning of any."""
_SIGNS = b"..", b"\xe2\x80\xa6", b"line", b"snip", b"8<-", b"8< -", b"runcated]", b"cut]", b"omitted]"
"""One of these is in each such line; searching for them takes a hundredth of the time."""
_SPARED = b"x across cluster]"
"""What Ray puts behind a line that it shows for several workers: ``[repeated 7x across cluster]``."""


def is_elided(text: bytes) -> bool:
    """Whether a line of a text says that others were left out."""
    return any(sign in text for sign in _SIGNS) and re.search(_LINE, b"\n" + text, re.MULTILINE) is not None


DECORATION = (
    rb"(?<=[\w.)\]}>'\"])(?:\*{2,3}|`{1,3}|~~|</?[A-Za-z]{1,10} ?/?>|[ \t]+\\|\.{3}|\xe2\x80\xa6|(?:\x1b|\^\[)?\[0?m)+"
)
"""What is put behind a line that is quoted; a row of asterisks is no such thing."""
_ENDS = b"*", b"`", b"~", b">", b"\\", b"...", b"\xe2\x80\xa6", b"[m", b"[0m"
"""How it ends: few lines do, so most are not searched for it."""


def is_decorated(text: bytes) -> bool:
    """Whether a line of a text ends with what is put behind a quoted one."""
    lines = (line.rstrip(b" \t\r") for line in text.split(b"\n"))
    return any(re.search(DECORATION + rb"$", line) for line in lines if line.endswith(_ENDS))


def undecorated(text: bytes) -> bytes:
    """A text without it."""
    return re.sub(DECORATION + rb"[ \t\r]*$", b"", text)


def spared(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of NCCL of which a collector says that it left out others like them, with their places from 0."""
    at = -1
    while (at := text.find(_SPARED, at + 1)) >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        line = text[begin : end if end >= 0 else len(text)]
        if MARK in line:
            yield text.count(b"\n", 0, at), line
