"""Logs of the kernel (``dmesg``, ``journalctl -k``): read as logs; the grammar knows lines of the driver."""

from __future__ import annotations

import re

_LINE = rb"(?:<\d+>)?\[ *(?:\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})\] |kern  :\w+ *: \["
_SYSLOG = rb"(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+-]+Z?) \S+ kernel: "
_BEGINNING = re.compile(rb"(?:(?:-- [^\n]*\n)?(?:" + _LINE + rb"|" + _SYSLOG + rb")[^\n]*\n){2}")
_HOST = re.compile(r"(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,+-]+Z?) (\S+) kernel: ")


def is_log(head: bytes) -> bool:
    """Return whether a file begins with lines of the kernel."""
    return _BEGINNING.match(head) is not None


def host(line: str) -> str | None:
    """Return the host that a line of syslog names."""
    return match[1] if (match := _HOST.match(line)) else None
