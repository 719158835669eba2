"""How NCCL's lines begin, for programs that have one regular expression for it: src/debug.cc of all releases.

``[time] host:pid:tid [device] file:line (function) NCCL LEVEL message``. What a launcher puts in front is taken as it
is (``label``), so that the time of ``kubectl logs --timestamps`` is found and the rest does no harm. Prefixes that were
masked by hand, and whole-line envelopes such as JSON, are left to ``nccl-inspect``.
"""

from __future__ import annotations

from collections.abc import Callable

from nccl_inspect.util.levels import ANY

LEVEL = ANY.decode("ascii")
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
"""NCCL's own time (since 2.26 before WARN, NCCL_DEBUG_TIMESTAMP_FORMAT) and that of collectors."""
LABEL = r"[^\n]{0,300}?[ \t>|\]:]"
"""What else a launcher puts there: it ends with a blank or a mark."""
HOST = r'[A-Za-z0-9_][^\s:\[\]<>(){},"|\\]*'
NUMBER = r"[0-9]{1,10}"
DEVICE = r"-?[0-9]{1,10}"
LOCATION = r"[^ \n][^\n]*?:[0-9]{1,7}(?: \([^()\n]*\))?"
"""``init.cc:737``, with the function since 2.30.7; plugins give what they like."""
FIELDS = {
    "timestamp": "time as printed, where a line has one",
    "label": "what a launcher put in front",
    "host": "host, or pod",
    "pid": "process",
    "tid": "thread",
    "device": "current CUDA device of the thread that prints, not always that of the rank",
    "location": "file:line (function) of a WARN",
    "level": "INFO, WARN, ATTN, TRACE, CALL or ABORT",
}


def head(named: Callable[[str, str], str], timed: str = "") -> str:
    """The pattern up to the blank before the message, without an anchor.

    Args:
        named: writes a group with a name.
        timed: what matches the time instead, with its blank and its group.
    """
    time = timed or rf"(?:\[?{named('timestamp', DATE)}\]? )?"
    return (
        time
        + f"(?:{named('label', LABEL)})??"
        + rf"{named('host', HOST)}:{named('pid', NUMBER)}:{named('tid', NUMBER)}"
        + rf"(?: \[{named('device', DEVICE)}\])?(?: {named('location', LOCATION)})?"
        + f" NCCL {named('level', LEVEL)}"
    )
