"""Bootstrap failed for a reason other than an unreachable peer."""

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    REFUSED,
    failed_connections,
    has_built_communicator,
    link_local_refused,
)
from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.facts import ranks_concerned
from nccl_inspect.judging.networks.fabrics import network_mismatches
from nccl_inspect.judging.networks.interfaces import NO_FAMILY, without_family
from nccl_inspect.judging.statements import entry_for_role, error_of

RULE = Rule(
    name="bootstrap-failed",
    category="bootstrap",
    layer=Layer.RESOURCE,
    title="Ranks failed to connect to each other during bootstrap",
)
_CALLS = ("socket", "bind", "listen", "accept", "getsockname", "getsockopt", "setsockopt", "fcntl")
_TWO_JOBS = "processes of two jobs, or of two launches of one job, share the address of rank 0"
_CAUSES = {
    "misread-size": "most often ranks run different NCCL releases, whose first messages differ in size; "
    f"otherwise {_TWO_JOBS}",
    "rank-counts-differ": "processes were started with different numbers of ranks (WORLD_SIZE, --nnodes or "
    f"--nproc-per-node differ between nodes); or {_TWO_JOBS}; or they run different NCCL releases",
    "rank-misfit": f"{_TWO_JOBS}; or two processes have the same rank; or ranks run different NCCL releases",
    "stranger": "a process outside this communicator connected to its port: a port scanner, another job, or a rank of "
    "another release. Before 2.27.3 that alone ends the job",
    "bad-comm-id": "NCCL_COMM_ID is unusable: its name does not resolve, the port is missing, or the subnet is not "
    "reachable",
    "garbled-address": "the data that this rank received as an address is not an address: most often ranks run "
    "different NCCL releases, whose layouts differ; otherwise they use different networks, or the id of the "
    "communicator was not passed on completely",
    "no-oob-device": "NCCL_OOB_NET_IFNAME matches no device",
}
_ONE_JOB = (
    "Run one job per address: give each launch its own MASTER_PORT, rdzv id or file:// store.",
    "ps aux | grep <script>   # is a process left from the last launch?",
)
_NUMBERS = "Give each rank its own RANK and the same WORLD_SIZE; start one torchrun on each node."
_RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: is it the same everywhere?"
_COPIES = "ldconfig -p | grep libnccl.so   # on every node: is there a second copy?"
_FIXES = {
    "misread-size": (_RELEASES, _COPIES, *_ONE_JOB),
    "rank-counts-differ": (_NUMBERS, *_ONE_JOB, _RELEASES),
    "rank-misfit": (*_ONE_JOB, _NUMBERS, _RELEASES),
    "stranger": (
        "Upgrade to NCCL 2.27.3 or later, which drops such connections and continues.",
        "Keep scanners out: set NCCL_SOCKET_IFNAME to a network private to the cluster, or use a firewall.",
    ),
    "bad-comm-id": (
        "unset NCCL_COMM_ID   # PyTorch and MPI do not need it",
        "NCCL_COMM_ID=<IPv4 address of rank 0>:<port>   # if it is needed",
    ),
    "garbled-address": (_RELEASES, _COPIES, "Compare the lines 'Using network' of all ranks.", *_ONE_JOB),
    "no-oob-device": ("unset NCCL_OOB_NET_IFNAME   # or name a device that ibv_devinfo lists",),
}
"""By role, the most specific first."""
_MAY_DIFFER = {"rank-misfit", "stranger", "garbled-address"}
"""Roles with several causes."""
_FIX = (
    "ulimit -n   # too many open files: LimitNOFILE of the container runtime or of slurmd",
    "sysctl net.core.somaxconn=4096 net.ipv4.tcp_max_syn_backlog=4096   # connections lost at thousands of ranks",
)

_BOOTSTRAP, _SOCKETS = "bootstrap.", "socket."
_STOPPED = 3
"""What sockets return if the program aborts the communicator that waits for them (src/misc/socket.cc)."""
_CALLERS = ("init.", "group.", "enqueue.", "collectives.")
"""A frame of these files means that the error reached NCCL's caller, which reports it as well."""
_OTHER_FAMILY = (
    "another rank sent an address of a family that this host does not have: usually IPv6, which is disabled here"
)
_ONE_FAMILY = "NCCL_SOCKET_FAMILY=AF_INET   # on all ranks: IPv4 addresses only"


def judge(facts: Facts) -> Results:
    """Judge bootstrap errors, except those that only show that a peer is gone (see peer-death)."""
    errors = _errors(facts)
    if not errors:
        if frames := _frames(facts):
            yield _clue(frames)
        return
    first = errors[0]
    works = has_built_communicator(facts) and not facts.job.failed
    yield RULE.finding(
        f"ranks failed to connect to each other during bootstrap: {first.message}",
        cause=_OTHER_FAMILY
        if NO_FAMILY in error_of(first)
        else entry_for_role(first, _CAUSES) or "as the message says, the system refused a step of the set-up",
        impact="the job continued: only one communicator, or one attempt, failed"
        if works
        else "the communicator is not built: the job does not start, and ranks without the error wait",
        fix=(_ONE_FAMILY, *_FIX) if NO_FAMILY in error_of(first) else entry_for_role(first, _FIXES) or _FIX,
        severity="warning" if works else "error",
        confidence="likely" if not _MAY_DIFFER.isdisjoint(first.roles) else "certain",
        notices=errors,
        ranks=ranks_concerned(facts, errors, "rank"),
        fatal=not works,
    )


def _errors(facts: Facts) -> list[Notice]:
    links = [] if has_built_communicator(facts) else link_local_refused(facts)  # for bootstrap-wrong-interface
    covered = {id(notice) for notice in (*failed_connections(facts, *REFUSED, *NO_ROUTE), *links)}
    other = [notice for notice in failed_connections(facts) if id(notice) not in covered]
    stated = facts.errors_of_rule(RULE.name)
    system = [] if has_built_communicator(facts) else [*facts.with_role("socket-refused"), *_calls(facts)]
    later = {id(notice) for notice in network_mismatches(facts)}  # for mixed-networks
    later |= {id(notice) for notice in without_family(facts)}  # for bootstrap-no-interface
    return [notice for notice in (*stated, *other, *system) if id(notice) not in later]


def _frames(facts: Facts) -> list[Notice]:
    """Frames of the bootstrap, if no line says why it failed and no frame shows that the error reached the caller."""
    frames = facts.with_event(ErrorCascade)
    files = [frame.event.file.rpartition("/")[2] for frame in frames if isinstance(frame.event, ErrorCascade)]
    warned = any(notice.level == "WARN" for notice in facts.job.notices)
    completed = any(comm.completed for comm in facts.job.communicators)
    if (
        warned
        or completed
        or facts.errors(forced_ends=False)
        or has_built_communicator(facts)
        or any(file.startswith(_CALLERS) for file in files)
    ):
        return []
    codes = {frame.event.code for frame in frames if isinstance(frame.event, ErrorCascade)}
    set_up = (_BOOTSTRAP,) if codes == {_STOPPED} else (_BOOTSTRAP, _SOCKETS)
    return frames if any(file.startswith(set_up) for file in files) else []


def _clue(frames: list[Notice]) -> Finding:
    return RULE.clue(
        f"bootstrap failed in {frames[-1].message.partition(' ->')[0]}; the line with the reason is missing",
        cause="an error was passed up during bootstrap: a connection to another rank failed, or it sent something "
        "unexpected. The warning before the first '->' names the cause",
        impact="the communicator is not built: the job does not start",
        fix=[
            "NCCL_DEBUG=INFO   # (or WARN) on all ranks; keep all lines",
            "Look at the other ranks: the one with a warning, or whose log ends first, is the cause.",
        ],
        confirm="Look for 'NCCL WARN' right before these lines.",
        notices=frames,
    )


def _calls(facts: Facts) -> list[Notice]:
    """Failed system calls on sockets; others concern shared memory, files and threads."""
    return [notice for notice in facts.notices("nccl/system-call-failed") if value(notice, "call") in _CALLS]
