"""A system call failed in NCCL, and nothing in the log says which."""

from collections.abc import Iterator

from nccl_inspect.event_types import ErrorCascade, Event
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.rules.statements import is_retold

RULE = Rule(
    name="unhandled-system-error",
    category="failures",
    severity="error",
    title="A system call failed, and the log does not say which",
)
_SYSTEM_ERROR = 2
_CALLERS = (
    *("nccl-error", "nccl-error-code", "test-nccl-failure"),
    *("horovod-nccl-failed", "vllm-nccl-failed", "xla-nccl-failed"),
)
_INTERFACE = ("init.cc", "group.cc", "enqueue.cc", "collectives.cc")
"""A frame of these files means that the error reached the caller of NCCL."""
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
    frames = facts.said(ErrorCascade, _is_system_error)
    reached = [frame for frame in frames if _file(frame).rpartition("/")[2] in _INTERFACE]
    callers = facts.notices(*_CALLERS)
    told = [
        *facts.notices("nccl-system-error"),
        *(notice for notice in callers if "unhandled system error" in notice.message),
    ]
    if not (reached or told) or _explained(facts):
        return
    first = frames[0] if frames else None
    place = next((text for key, text in _PLACES.items() if first and key in _file(first)), None)
    said = [*frames[:1], *told, *reached]
    yield RULE.finding(
        "NCCL reports a system error (code 2) and no warning says which call failed"
        + (f"; it came from {_file(first)}" if first else ""),
        cause=f"not in the log. The place suggests {place}"
        if place
        else "not in the log: a socket, memory, a file, shared memory or a library call",
        impact="the communicator cannot be built or used; the job ends",
        fix=[
            "NCCL_DEBUG=INFO   # on all ranks, and run again: the line before the first '-> 2' names the call",
            "df -h /dev/shm; ulimit -l; ulimit -n   # in the container: shared memory, locked memory, open files",
            "dmesg -T | tail   # on the host, at the time of the failure",
        ],
        confidence="likely",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=True,
    )


def _is_system_error(event: Event) -> bool:
    return isinstance(event, ErrorCascade) and event.code == _SYSTEM_ERROR


def _file(frame: Notice) -> str:
    assert isinstance(frame.event, ErrorCascade)
    return frame.event.file


def _explained(facts: Facts) -> bool:
    """Whether a warning, an echo of a peer's end or another error tells more than the code."""
    warned = any(notice.level == "WARN" for notice in facts.job.notices)
    return warned or any(not is_retold(notice) for notice in facts.failures())
