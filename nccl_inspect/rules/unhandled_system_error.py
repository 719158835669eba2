"""A system call failed in NCCL, and the log does not show which."""

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="unhandled-system-error",
    category="failures",
    layer=Layer.CALL,
    title="A system call failed, and the log does not show which",
    supersedes=("nccl-tests-failed",),
)
_SYSTEM_ERROR = 2
_PLACES = {
    "shm": "shared memory: /dev/shm too small or not shared",
    "socket": "a socket: the peer is gone, a port is blocked, too many open files",
    "bootstrap": "a bootstrap socket: the root is gone or unreachable, too many open files",
    "ib": "InfiniBand verbs: memlock limit, device access",
    "xml": "a topology or graph file",
}
"""Likely causes by the source file of the first frame."""


def judge(facts: Facts) -> Results:
    """Judge NCCL's code 2 if no warning explains it."""
    errors = propagated_errors.unexplained(facts, _SYSTEM_ERROR)
    if not errors:
        return
    first = next(iter(propagated_errors.frames(facts, _SYSTEM_ERROR)), None)
    place = next((text for key, text in _PLACES.items() if first and key in propagated_errors.file_of(first)), None)
    yield RULE.finding(
        "NCCL reports a system error (code 2), but no warning names the call that failed"
        + (f"; it came from {propagated_errors.file_of(first)}" if first else ""),
        cause=f"unknown from this log; the source file suggests {place}"
        if place
        else "unknown from this log; likely: a socket, memory, a file, shared memory or a library call",
        impact="the communicator cannot be created or used; the job ends",
        fix=[
            "NCCL_DEBUG=INFO   # on all ranks, and run again: the line before the first '-> 2' names the call",
            "df -h /dev/shm; ulimit -l; ulimit -n   # in the container: shared memory, locked memory, open files",
            "dmesg -T | tail   # on the host, at the time of the failure",
        ],
        confidence="likely",
        notices=errors,
        fatal=True,
    )
