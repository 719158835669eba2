"""What the kernel of this machine printed (``dmesg -T``), without what happened to processes before a run."""

from __future__ import annotations

import re
import time

_STAMP = re.compile(rb"(?:<\d+>)?\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})\] ")
_PROCESS = re.compile(rb"oom-kill|[Oo]ut of memory: |\]: segfault at ")
"""A process was killed or crashed. What happened to a GPU or switch is of interest whenever it was: it may be lost."""


def without_earlier_ends(log: bytes, begin: float) -> bytes:
    """All lines, but for those of processes that ended before a time; what has no time belongs to the line before.

    Args:
        log: with the times of this machine.
        begin: seconds since 1970.
    """
    kept, is_kept = [], True
    for line in log.splitlines(keepends=True):
        if stamp := _STAMP.match(line):
            is_later = time.mktime(time.strptime(stamp[1].decode("ascii"), "%a %b %d %H:%M:%S %Y")) >= begin
            is_kept = is_later or _PROCESS.search(line) is None
        if is_kept:
            kept.append(line)
    return b"".join(kept)
