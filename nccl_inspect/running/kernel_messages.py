"""What the kernel of this machine printed (``dmesg -T``) during a run."""

from __future__ import annotations

import re
import time

_STAMP = re.compile(rb"(?:<\d+>)?\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})\] ")


def since(log: bytes, begin: float) -> bytes:
    """The lines from a time on; what has no time belongs to the line before.

    Args:
        log: with the times of this machine.
        begin: seconds since 1970.
    """
    kept, is_later = [], True
    for line in log.splitlines(keepends=True):
        if stamp := _STAMP.match(line):
            is_later = time.mktime(time.strptime(stamp[1].decode("ascii"), "%a %b %d %H:%M:%S %Y")) >= begin
        if is_later:
            kept.append(line)
    return b"".join(kept)
