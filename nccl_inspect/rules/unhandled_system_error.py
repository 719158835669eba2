"""A system call failed in NCCL, and nothing in the log says which."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="unhandled-system-error",
    category="failures",
    severity="error",
    title="A system call failed, and the log does not say which",
    supersedes=("nccl-tests-failed",),
)
_SYSTEM_ERROR = 2
_PLACES = {
    "shm": "shared memory: /dev/shm too small or not shared",
    "socket": "a socket: the peer is gone, a port is blocked, too many open files",
    "bootstrap": "a socket of the bootstrap: the root is gone or cannot be reached, too many open files",
    "ib": "InfiniBand verbs: memlock limit, device access",
    "xml": "a topology or graph file",
}
"""What the source file of the first frame is about."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NCCL's code 2 where no warning explains it: without the warnings only the code is left."""
    said = propagated_errors.unexplained(facts, _SYSTEM_ERROR)
    if not said:
        return
    first = next(iter(propagated_errors.frames(facts, _SYSTEM_ERROR)), None)
    place = next((text for key, text in _PLACES.items() if first and key in propagated_errors.file_of(first)), None)
    yield RULE.finding(
        "NCCL reports a system error (code 2) and no warning says which call failed"
        + (f"; it came from {propagated_errors.file_of(first)}" if first else ""),
        cause=f"unknown from this log. The place suggests {place}"
        if place
        else "unknown from this log; likely: a socket, memory, a file, shared memory or a library call",
        impact="the communicator cannot be built or used; the job ends",
        fix=[
            "NCCL_DEBUG=INFO   # on all ranks, and run again: the line before the first '-> 2' names the call",
            "df -h /dev/shm; ulimit -l; ulimit -n   # in the container: shared memory, locked memory, open files",
            "dmesg -T | tail   # on the host, at the time of the failure",
        ],
        confidence="likely",
        notices=said,
        fatal=True,
    )
