"""The set-up of a communicator failed for another reason than a peer that cannot be reached."""

from collections.abc import Iterator

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.connecting import NO_ROUTE, REFUSED, came_up, gave_up, of_one_link
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks.fabrics import meetings
from nccl_inspect.judging.networks.interfaces import NO_FAMILY, without_family
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="bootstrap-failed",
    category="bootstrap",
    severity="error",
    title="Ranks do not find together",
    upsets=True,
)
_MIXED = (
    "bootstrap-already-checked-in",
    "bootstrap-rank-count-mismatch",
    "bootstrap-root-internal",
    "bootstrap-message-truncated",
)
_STRANGER = ("socket-wrong-magic",)
_ADDRESS = ("comm-id-invalid", "comm-id-set-with-get-id", "address-invalid", "no-interface-in-subnet")
_DEVICE = ("oob-device-not-found",)
_GARBAGE = ("socket-address-family", "socket-address-family-init")
_SYSTEM = ("socket-accept-failed", "socket-create-failed", "socket-create-failed-init")
_CALLS = ("socket", "bind", "listen", "accept", "getsockname", "getsockopt", "setsockopt", "fcntl")
_TRUNCATED, _COUNTS = "bootstrap-message-truncated", "bootstrap-rank-count-mismatch"
_TWO_JOBS = "processes of two jobs, or of two starts of one job, share the address of rank 0"
_CAUSES = {
    **dict.fromkeys(_MIXED, f"{_TWO_JOBS}; or a rank number is given twice; or ranks run different NCCL releases"),
    _TRUNCATED: "most often ranks run different NCCL releases: what they tell each other at the start has another size "
    f"in each; else {_TWO_JOBS}",
    _COUNTS: "processes were started with different numbers of ranks (WORLD_SIZE, --nnodes or --nproc-per-node differ "
    f"between nodes); or {_TWO_JOBS}; or they run different NCCL releases",
    **dict.fromkeys(
        _STRANGER,
        "somebody who is no rank of this communicator connected to its port: a port scanner, another job, or a rank "
        "of another release. Before 2.27.3 that alone ends the job",
    ),
    **dict.fromkeys(
        _ADDRESS, "NCCL_COMM_ID cannot be used: a name that does not resolve, no port, or not of a reachable subnet"
    ),
    **dict.fromkeys(
        _GARBAGE,
        "what this rank got for an address is none: most often ranks run different NCCL releases, which lay it out "
        "differently; else they use different networks, or the id of the communicator was not passed on whole",
    ),
    **dict.fromkeys(_DEVICE, "NCCL_OOB_NET_IFNAME fits no device"),
}
_ONE_JOB = (
    "One job at one address: give each start a MASTER_PORT, rdzv id or file:// store of its own.",
    "ps aux | grep <script>   # is a process of the last start left?",
)
_NUMBERS = "Give each rank its own RANK and the same WORLD_SIZE; start one torchrun on each node."
_RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: the same everywhere?"
_COPIES = "ldconfig -p | grep libnccl.so   # on every node: is there a second copy?"
_FIXES = {
    **dict.fromkeys(_MIXED, (*_ONE_JOB, _NUMBERS, _RELEASES)),
    _TRUNCATED: (_RELEASES, _COPIES, *_ONE_JOB),
    **dict.fromkeys(_GARBAGE, (_RELEASES, _COPIES, "Compare the lines 'Using network' of all ranks.", *_ONE_JOB)),
    _COUNTS: (_NUMBERS, *_ONE_JOB, _RELEASES),
    **dict.fromkeys(
        _STRANGER,
        (
            "NCCL 2.27.3 or later drops such connections and goes on.",
            "Keep scanners off: take a network of the cluster's own for NCCL_SOCKET_IFNAME, or a firewall.",
        ),
    ),
    **dict.fromkeys(
        _ADDRESS,
        (
            "unset NCCL_COMM_ID   # PyTorch and MPI do without",
            "NCCL_COMM_ID=<IPv4 address of rank 0>:<port>   # where it is needed",
        ),
    ),
    **dict.fromkeys(_DEVICE, ("unset NCCL_OOB_NET_IFNAME   # or name a device that ibv_devinfo lists",)),
}
_FIX = (
    "ulimit -n   # too many open files: LimitNOFILE of the container runtime or of slurmd",
    "sysctl net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=4096   # connections lost at thousands of ranks",
)

_BOOTSTRAP, _SOCKETS = "bootstrap.", "socket."
_STOPPED = 3
"""What sockets return where the program aborts the communicator that waits for them (src/misc/socket.cc)."""
_CALLERS = ("init.", "group.", "enqueue.", "collectives.")
"""A frame of these files means that the error reached the caller of NCCL, who tells it, too."""
_OTHER_FAMILY = (
    "another rank gave an address of a family that this host does not have: mostly IPv6, which is switched off here"
)
_ONE_FAMILY = "NCCL_SOCKET_FAMILY=AF_INET   # on all ranks: IPv4 addresses only"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge errors of set-up; what only says that a peer is gone is the affair of peer-death."""
    failed = _failed(facts)
    if not failed:
        if frames := _frames(facts):
            yield _suspected(frames)
        return
    kind = failed[0].production
    works = came_up(facts) and not facts.job.failed
    yield RULE.finding(
        f"ranks do not find together: {failed[0].message}",
        cause=_OTHER_FAMILY
        if NO_FAMILY in failed[0].message
        else _CAUSES.get(kind, "the message tells: the system refuses a step of the set-up"),
        impact="the job went on: one communicator, or one attempt, failed"
        if works
        else "the communicator is not built: the job does not start, and ranks without the error wait",
        fix=(_ONE_FAMILY, *_FIX) if NO_FAMILY in failed[0].message else _FIXES.get(kind, _FIX),
        severity="warning" if works else "error",
        confidence="likely" if kind in (*_MIXED, *_STRANGER, *_GARBAGE) else "certain",
        notices=failed,
        fatal=not works,
    )


def _failed(facts: Facts) -> list[Notice]:
    links = [] if came_up(facts) else of_one_link(facts)  # bootstrap-wrong-interface tells them
    told = {id(notice) for notice in (*gave_up(facts, *REFUSED, *NO_ROUTE), *links)}
    other = [notice for notice in gave_up(facts) if id(notice) not in told]
    stated = facts.notices(*_MIXED, *_STRANGER, *_GARBAGE, *_ADDRESS, *_DEVICE)
    system = [] if came_up(facts) else [*facts.notices(*_SYSTEM), *_calls(facts)]
    later = {id(notice) for notice in meetings(facts)}  # mixed-networks tells them
    later |= {id(notice) for notice in without_family(facts)}  # bootstrap-no-interface tells these
    return [notice for notice in (*stated, *other, *system) if id(notice) not in later]


def _frames(facts: Facts) -> list[Notice]:
    """Frames of the set-up where no line says why it failed, and none that the error reached the caller."""
    frames = facts.said(ErrorCascade)
    files = [frame.event.file.rpartition("/")[2] for frame in frames if isinstance(frame.event, ErrorCascade)]
    warned = any(notice.level == "WARN" for notice in facts.job.notices)
    completed = any(comm.completed for comm in facts.job.communicators)
    if warned or completed or facts.failures() or came_up(facts) or any(file.startswith(_CALLERS) for file in files):
        return []
    codes = {frame.event.code for frame in frames if isinstance(frame.event, ErrorCascade)}
    set_up = (_BOOTSTRAP,) if codes == {_STOPPED} else (_BOOTSTRAP, _SOCKETS)
    return frames if any(file.startswith(set_up) for file in files) else []


def _suspected(frames: list[Notice]) -> Finding:
    return RULE.clue(
        f"the set-up failed in {frames[-1].message.partition(' ->')[0]}; the line that says why is missing",
        cause="an error was passed up through the set-up: a connection to another rank failed, or what it sent was not "
        "expected. The warning before the first '->' names the cause",
        impact="the communicator is not built: the job does not start",
        fix=[
            "NCCL_DEBUG=INFO   # (or WARN) on all ranks, without lines taken out",
            "Look at the other ranks: the one with a warning, or whose log ends first, is the cause.",
        ],
        confirm="Look for 'NCCL WARN' right before these lines.",
        severity="warning",
        notices=frames,
    )


def _calls(facts: Facts) -> list[Notice]:
    """System calls for sockets that failed; others are about shared memory, files and threads."""
    return [notice for notice in facts.notices("system-call-failed") if value(notice, "call") in _CALLS]
