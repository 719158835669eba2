"""Processes could not meet in PyTorch's store, by which NCCL gets the ids of its communicators."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.line_order import is_before, short
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.exceptions import STORE
from nccl_inspect.judging.statements import is_error, rank_in_front, value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="rendezvous-failed",
    category="bootstrap",
    severity="error",
    title="Processes could not meet in PyTorch's store",
    echoes=("gloo-not-connected",),
)
_PORT = "ss -ltnp | grep :<port>   # on the host of MASTER_ADDR: who has it?"
_REACH = "nc -vz $MASTER_ADDR $MASTER_PORT; getent hosts $MASTER_ADDR   # from this host or pod: does it answer?"
_SAME = "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK   # in every process: the same but for the rank?"
_REASONS = {
    frozenset(
        {"Connection refused"}
    ): "that host answers, and nobody listens at that port: rank 0 was not there yet or "
    "had ended, or MASTER_ADDR or MASTER_PORT is wrong; a firewall that rejects looks the same",
    frozenset({"No route to host", "Network is unreachable"}): "a firewall of that host rejects the port, that host is "
    "down, or there is no route from this host or pod",
    frozenset({"Connection timed out"}): "packets are dropped without a word, by a firewall, security group or network "
    "policy; or MASTER_ADDR is an address that nobody has",
}
_LISTEN, _JOIN, _CONNECT = "torch/store-listen-failed", "torch/store-join-timeout", "torch/store-connect-timeout"
_TIMEOUT, _CLOSED, _WAIT = "torch/rendezvous-timeout", "torch/rendezvous-closed", "torch/store-wait-timeout"


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what PyTorch says of its store; what it was before a communicator came up does not matter any more."""
    said = [notice for notice in facts.notices(*STORE, "torch/unique-id-failed") if is_error(notice)]
    begins = [comm.evidence[0] for comm in facts.job.communicators if comm.completed and comm.evidence]
    before = [one for one in said if any(is_before(one.evidence[0], begin) for begin in begins)]
    yield Effects(before)  # it came up at a later try
    # A rendezvous that is closed when NCCL is up is the effect of an end that the log of this node does not tell.
    said = [one for one in said if one not in before and not (begins and one.production == _CLOSED)]
    if not said:
        return
    kinds = {notice.production for notice in said}
    if _LISTEN in kinds:
        what, cause, fix = _taken(said)
    elif _JOIN in kinds:
        what, cause, fix = _absent(said)
    elif _CONNECT in kinds:
        what, cause, fix = _unreachable(facts, said)
    elif _TIMEOUT in kinds:
        what, cause, fix = _alone()
    elif _CLOSED in kinds:
        what, cause, fix = _closed()
    else:
        what, cause, fix = _silent(said)
    yield RULE.finding(
        what,
        cause=cause + _exceptions(facts, said),
        impact="the job does not start: NCCL gets the id of its communicator from this store"
        if not begins
        else "the ranks that wait end, and with them the job",
        fix=fix,
        confidence="certain" if _LISTEN in kinds else "likely",
        ranks={rank for notice in said if (rank := rank_in_front(notice)) is not None},
        evidence=first_said([*_of(said, _LISTEN), *_of(said, _JOIN), *_of(said, _CONNECT), *said]),
        fatal=True,
    )


def _exceptions(facts: Facts, said: list[Notice]) -> str:
    """The last exception that nobody put his name to, which may have ended the process that did not come."""
    told = {(one.source, one.order) for notice in said for one in notice.evidence}
    loose = [one for one in exceptions.found(facts).loose if (one.line.source, one.line.order) not in told]
    others = [one for one in loose if not one.is_of_a_peer]
    if not others:
        return ""
    return f". Maybe that is why: {others[-1].text} ({short(others[-1].line)})"


def _of(said: list[Notice], production: str) -> list[Notice]:
    return [notice for notice in said if notice.production == production]


def _taken(said: list[Notice]) -> tuple[str, str, list[str]]:
    detail = str(value(_of(said, _LISTEN)[0], "_detail"))
    is_taken = "EADDRINUSE" in detail or "already in use" in detail
    return (
        "rank 0, or torchrun, could not open MASTER_PORT" + (": another program has it" if is_taken else ""),
        "most often a process of an earlier job is left on that host, or two jobs share it and have the same port"
        if is_taken
        else "the line tells what the operating system said: the port may not be opened there, or MASTER_ADDR is none "
        "of this host's addresses",
        [
            _PORT,
            "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 …   # on one host: takes a port that is free",
            "--master-port=<another port>   # of torchrun; or MASTER_PORT; the same on all nodes",
        ],
    )


def _absent(said: list[Notice]) -> tuple[str, str, list[str]]:
    first = _of(said, _JOIN)[0]
    return (
        f"{value(first, 'present')} of {value(first, 'expected')} processes came to PyTorch's store within "
        f"{value(first, 'seconds')} s",
        "the others were not launched, died before, or look for it elsewhere: another MASTER_ADDR, MASTER_PORT or "
        "WORLD_SIZE, or a network that does not let them through",
        [
            "Look at the output of the processes that did not come, and how many were launched on which hosts.",
            _SAME,
            "Let --nnodes times --nproc-per-node of torchrun be WORLD_SIZE.",
            _REACH,
        ],
    )


def _unreachable(facts: Facts, said: list[Notice]) -> tuple[str, str, list[str]]:
    places = listed(f"{value(one, 'address')}:{value(one, 'port')}" for one in _of(said, _CONNECT))
    unknown = facts.notices("torch/store-name-unresolved")
    return (
        f"nobody answers at {places}, where PyTorch's store should be"
        + (": the name has no address" if unknown else ""),
        f"the name is not known on this host: {value(unknown[0], 'error')}. A wrong MASTER_ADDR, a headless Service "
        "that is missing, or a pod that is not there yet"
        if unknown
        else _reason(facts)
        or "rank 0 was not there yet or had died, MASTER_ADDR or MASTER_PORT is wrong, or a firewall or network "
        "policy is between",
        [
            _reach(said),
            "Look at the output of rank 0: whether it started, and what it printed last.",
            _SAME,
            "kubectl get pods,svc,networkpolicy -o wide   # is rank 0 up, and has its name a Service?",
        ],
    )


def _reach(said: list[Notice]) -> str:
    """The check with the address that the log states, where it states one."""
    places = {(str(value(one, "address")), str(value(one, "port"))) for one in _of(said, _CONNECT)}
    if len(places) != 1:
        return _REACH
    ((address, port),) = places
    return _REACH.replace("$MASTER_ADDR", shlex.quote(address)).replace("$MASTER_PORT", shlex.quote(port))


def _reason(facts: Facts) -> str:
    """What each answer of the operating system leaves as causes; empty where there is none, or several differ."""
    errors = {str(value(one, "error")) for one in facts.notices("torch/store-connect-failed")}
    cause = next((causes for words, causes in _REASONS.items() if errors and errors <= words), None)
    return f"{listed(sorted(errors))}: {cause}" if cause else ""


def _alone() -> tuple[str, str, list[str]]:
    return (
        "torchrun waited for agents of other nodes that did not come",
        "fewer agents than --nnodes asks for came in time: the others were not launched, use another --rdzv-id or "
        "--rdzv-endpoint, cannot reach it, or had ended before",
        [
            "Look at the output of torchrun on each node: whether it was started, and with the same arguments.",
            "nc -vz <host of --rdzv-endpoint> <port>   # from each node: does it answer?",
            "--rdzv-conf join_timeout=1200   # where nodes come up slowly: seconds, 600 unless told otherwise",
        ],
    )


def _closed() -> tuple[str, str, list[str]]:
    return (
        "torchrun came to a rendezvous that was closed",
        "another agent had closed it: the job had ended or failed there, or the --rdzv-id is one of an earlier job",
        [
            "Look at the output of torchrun on the other nodes: the one that ended first tells why.",
            "--rdzv-id=<a new one for each job>   # an id of an earlier job is closed",
        ],
    )


def _silent(said: list[Notice]) -> tuple[str, str, list[str]]:
    keys = listed(str(value(notice, "key")) for notice in _of(said, _WAIT))
    of_nccl = len(_of(said, _WAIT)) < len(said) or "cuda//" in keys or "ncclUniqueId" in keys
    return (
        "ranks waited in PyTorch's store for what another rank did not bring" + (f": {keys}" if keys else ""),
        "rank 0 brings the id of the communicator: it never came so far, died, or the ranks build their process groups "
        "in another order"
        if of_nccl
        else "the rank that writes this key never came so far, died, or does not know of it; it is none of NCCL's",
        ["Look at the output of rank 0 first, then of all ranks: a traceback, or which step it is in.", _SAME],
    )
