"""The set-up of a communicator failed for another reason than a peer that cannot be reached."""

from collections.abc import Iterator

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.connecting import NO_ROUTE, REFUSED, came_up, gave_up, of_one_link
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks.fabrics import meetings
from nccl_inspect.judging.networks.interfaces import NO_FAMILY, without_family
from nccl_inspect.judging.statements import error_of, of_role, value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="bootstrap-failed",
    category="bootstrap",
    severity="error",
    title="Ranks do not find together",
    upsets=True,
)
_CALLS = ("socket", "bind", "listen", "accept", "getsockname", "getsockopt", "setsockopt", "fcntl")
_TWO_JOBS = "processes of two jobs, or of two starts of one job, share the address of rank 0"
_CAUSES = {
    "misread-size": "most often ranks run different NCCL releases: what they tell each other at the start has another "
    f"size in each; else {_TWO_JOBS}",
    "rank-counts-differ": "processes were started with different numbers of ranks (WORLD_SIZE, --nnodes or "
    f"--nproc-per-node differ between nodes); or {_TWO_JOBS}; or they run different NCCL releases",
    "rank-misfit": f"{_TWO_JOBS}; or a rank number is given twice; or ranks run different NCCL releases",
    "stranger": "somebody who is no rank of this communicator connected to its port: a port scanner, another job, or a "
    "rank of another release. Before 2.27.3 that alone ends the job",
    "bad-comm-id": "NCCL_COMM_ID cannot be used: a name that does not resolve, no port, or not of a reachable subnet",
    "garbled-address": "what this rank got for an address is none: most often ranks run different NCCL releases, which "
    "lay it out differently; else they use different networks, or the id of the communicator was not passed on whole",
    "no-oob-device": "NCCL_OOB_NET_IFNAME fits no device",
}
_ONE_JOB = (
    "One job at one address: give each start a MASTER_PORT, rdzv id or file:// store of its own.",
    "ps aux | grep <script>   # is a process of the last start left?",
)
_NUMBERS = "Give each rank its own RANK and the same WORLD_SIZE; start one torchrun on each node."
_RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: the same everywhere?"
_COPIES = "ldconfig -p | grep libnccl.so   # on every node: is there a second copy?"
_FIXES = {
    "misread-size": (_RELEASES, _COPIES, *_ONE_JOB),
    "rank-counts-differ": (_NUMBERS, *_ONE_JOB, _RELEASES),
    "rank-misfit": (*_ONE_JOB, _NUMBERS, _RELEASES),
    "stranger": (
        "NCCL 2.27.3 or later drops such connections and goes on.",
        "Keep scanners off: take a network of the cluster's own for NCCL_SOCKET_IFNAME, or a firewall.",
    ),
    "bad-comm-id": (
        "unset NCCL_COMM_ID   # PyTorch and MPI do without",
        "NCCL_COMM_ID=<IPv4 address of rank 0>:<port>   # where it is needed",
    ),
    "garbled-address": (_RELEASES, _COPIES, "Compare the lines 'Using network' of all ranks.", *_ONE_JOB),
    "no-oob-device": ("unset NCCL_OOB_NET_IFNAME   # or name a device that ibv_devinfo lists",),
}
"""By role, those that say more first."""
_MAY_DIFFER = {"rank-misfit", "stranger", "garbled-address"}
"""Roles with several causes."""
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
    first = failed[0]
    works = came_up(facts) and not facts.job.failed
    yield RULE.finding(
        f"ranks do not find together: {first.message}",
        cause=_OTHER_FAMILY
        if NO_FAMILY in error_of(first)
        else of_role(first, _CAUSES) or "the message tells: the system refuses a step of the set-up",
        impact="the job went on: one communicator, or one attempt, failed"
        if works
        else "the communicator is not built: the job does not start, and ranks without the error wait",
        fix=(_ONE_FAMILY, *_FIX) if NO_FAMILY in error_of(first) else of_role(first, _FIXES) or _FIX,
        severity="warning" if works else "error",
        confidence="likely" if not _MAY_DIFFER.isdisjoint(first.roles) else "certain",
        notices=failed,
        fatal=not works,
    )


def _failed(facts: Facts) -> list[Notice]:
    links = [] if came_up(facts) else of_one_link(facts)  # bootstrap-wrong-interface tells them
    told = {id(notice) for notice in (*gave_up(facts, *REFUSED, *NO_ROUTE), *links)}
    other = [notice for notice in gave_up(facts) if id(notice) not in told]
    stated = facts.leading_to(RULE.name)
    system = [] if came_up(facts) else [*facts.with_role("socket-refused"), *_calls(facts)]
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
    return [notice for notice in facts.notices("nccl/system-call-failed") if value(notice, "call") in _CALLS]
