"""``ulimit -a`` of bash, zsh and sh, ``/proc/PID/limits`` and ``prlimit``: the limits of a process."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "ulimit output"
START = re.compile(
    rb"(?:core file size|real-time non-blocking time|socket buffer size) +\([^)\n]*-\w\) "  # bash
    rb"|-t: cpu time|time\((?:cpu-)?seconds\) "  # zsh, sh
    rb"|Limit +Soft Limit +Hard Limit|RESOURCE +DESCRIPTION +SOFT"
)
_VALUE = r"\s+(?P<value>unlimited|\d+)\b"
_FORMS = tuple(
    (limit, unit, re.compile(rf"\s*(?:{words}){_VALUE}", re.IGNORECASE))
    for limit, unit, words in (
        ("memlock", 1024, r"max locked memory\s+\(.*?-l\)|-l: locked-in-memory size.*?\)|locked memory\(kbytes\)"),
        ("memlock", 1, r"Max locked memory|MEMLOCK\s+max locked-in-memory address space"),
        ("nofile", 1, r"open files\s+\(-n\)|-n: file descriptors|nofiles(?:\(descriptors\))?|Max open files"),
        ("nofile", 1, r"NOFILE\s+max number of open files"),
        ("nproc", 1, r"max user processes\s+\(-u\)|-u: processes|process(?:es)?(?:\(.*?\))?|Max processes"),
        ("nproc", 1, r"NPROC\s+max number of processes"),
    )
)
"""Of bash, zsh, sh, /proc and prlimit."""


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the limits; a size in bytes, None where there is no limit."""
    for line in lines:
        for limit, unit, form in _FORMS:
            if match := form.match(line.text):
                value = None if match["value"] == "unlimited" else int(match["value"]) * unit
                yield Item("limit", limit, {"value": value}, line.number, " ".join(line.text.split()))
                break
