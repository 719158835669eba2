"""Processes could not meet in PyTorch's store, which distributes the ids of NCCL's communicators."""

from __future__ import annotations

import shlex

from nccl_inspect.judging.engine import Effects, Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.line_order import is_before, short
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import is_error, rank_prefix
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="rendezvous-failed",
    category="bootstrap",
    title="Processes could not meet in PyTorch's store",
    shows=("death",),
)
_PORT = "ss -ltnp | grep :<port>   # on the host of MASTER_ADDR: which process uses it?"
_REACH = "nc -vz $MASTER_ADDR $MASTER_PORT; getent hosts $MASTER_ADDR   # from this host or pod: does it answer?"
_SAME = "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK   # in every process: all the same except the rank?"
_REASONS = {
    frozenset(
        {"Connection refused"}
    ): "that host answers, but nothing listens on that port: rank 0 was not up yet or had ended, or MASTER_ADDR or "
    "MASTER_PORT is wrong; a firewall that rejects connections looks the same",
    frozenset({"No route to host", "Network is unreachable"}): "a firewall of that host rejects the port, that host is "
    "down, or there is no route from this host or pod",
    frozenset({"Connection timed out"}): "a firewall, security group or network policy silently drops packets; or "
    "no host has the address MASTER_ADDR",
}
_GROUP = later(r"/default_pg/0//(\w{1,64})//cuda")
"""The group, other than that of all ranks, to which a key of the store belongs."""
_LISTEN, _JOIN = "torch/store-listen-failed", "torch/store-join-timeout"
_CONNECT = ("torch/store-connect-timeout", "torch/store-unreachable")
_WAITS = "torch/store-waits"
_TIMEOUT, _CLOSED, _WAIT = "torch/rendezvous-timeout", "torch/rendezvous-closed", "torch/store-wait-timeout"
_GONE = {"torch/store-closed", "torch/store-lost"}
_AFTER_THE_END = {_CLOSED, *_GONE}
"""While NCCL is up, these follow from an end that may not be in this log."""


def judge(facts: Facts) -> Results:
    """Judge PyTorch's errors about its store; those before a communicator came up no longer matter."""
    errors = [notice for notice in facts.with_role("store-failed") if is_error(notice)]
    if not errors:
        if not facts.job.last_lines and (waits := facts.notices(_WAITS)):
            yield _still_waiting(waits)
        return
    begins = [comm.evidence[0] for comm in facts.job.communicators if comm.completed and comm.evidence]
    before = [error for error in errors if any(is_before(error.evidence[0], begin) for begin in begins)]
    yield Effects(before)  # a later attempt succeeded
    errors = [error for error in errors if error not in before and not (begins and error.production in _AFTER_THE_END)]
    if not errors:
        return
    kinds = {error.production for error in errors}
    if _LISTEN in kinds:
        summary, cause, fix = _port_not_opened(errors)
    elif _JOIN in kinds:
        summary, cause, fix = _processes_missing(errors)
    elif kinds.intersection(_CONNECT):
        summary, cause, fix = _unreachable(facts, errors)
    elif _TIMEOUT in kinds:
        summary, cause, fix = _agents_missing()
    elif _CLOSED in kinds:
        summary, cause, fix = _rendezvous_closed()
    elif kinds <= _GONE:
        summary, cause, fix = _store_gone()
    else:
        summary, cause, fix = _key_missing(errors)
    yield RULE.finding(
        summary,
        cause=cause + _exceptions(facts, errors),
        impact="the ranks that need the store end, and with them the job"
        if begins or kinds <= _GONE
        else "the job does not start: NCCL gets the id of its communicator from this store",
        fix=fix,
        confidence="certain" if _LISTEN in kinds else "likely",
        ranks={rank for error in errors if (rank := rank_prefix(error)) is not None},
        evidence=first_evidence([*_of(errors, _LISTEN), *_of(errors, _JOIN), *_of(errors, *_CONNECT), *errors]),
        fatal=True,
    )


def _still_waiting(waits: list[Notice]) -> Finding:
    """A clue about a store that did not answer yet, in a log without a line of NCCL."""
    return RULE.clue(
        f"PyTorch's store at {value(waits[-1], 'address')}:{value(waits[-1], 'port')} does not answer yet",
        cause="rank 0 is not up yet, MASTER_ADDR or MASTER_PORT is wrong, or a firewall is between",
        impact="the job does not start before the store answers",
        fix=[_REACH, _SAME],
        confirm="Wait until the time-out of the store (30 minutes if the program sets none), or look at rank 0.",
        confidence="possible",
        evidence=first_evidence(waits),
    )


def _exceptions(facts: Facts, errors: list[Notice]) -> str:
    """The last exception not attributable to a rank, which may have ended the missing process."""
    lines = {(line.source, line.order) for error in errors for line in error.evidence}
    loose = [
        raised
        for raised in exceptions.exceptions_of(facts).loose
        if (raised.line.source, raised.line.order) not in lines
    ]
    others = [raised for raised in loose if not raised.is_loss_of_peer]
    if not others:
        return ""
    return f". Possible reason: {others[-1].text} ({short(others[-1].line)})"


def _of(errors: list[Notice], *productions: str) -> list[Notice]:
    return [error for error in errors if error.production in productions]


def _port_not_opened(errors: list[Notice]) -> tuple[str, str, list[str]]:
    detail = str(value(_of(errors, _LISTEN)[0], "_detail"))
    is_taken = "EADDRINUSE" in detail or "already in use" in detail
    return (
        "rank 0 or torchrun could not open MASTER_PORT" + (": another program uses it" if is_taken else ""),
        "usually a process of an earlier job is still running on that host, or two jobs on it use the same port"
        if is_taken
        else "the line shows the error of the operating system: the port may not be opened there, or MASTER_ADDR is "
        "not an address of this host",
        [
            _PORT,
            "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 …   # on a single host: uses a free port",
            "--master-port=<another port>   # option of torchrun, or MASTER_PORT; the same on all nodes",
        ],
    )


def _processes_missing(errors: list[Notice]) -> tuple[str, str, list[str]]:
    first = _of(errors, _JOIN)[0]
    return (
        f"only {value(first, 'present')} of {value(first, 'expected')} processes joined PyTorch's store within "
        f"{value(first, 'seconds')} s",
        "the others were not launched, died before, or tried another store: different MASTER_ADDR, MASTER_PORT or "
        "WORLD_SIZE, or a network that blocks them",
        [
            "Look at the output of the missing processes, and check how many were launched on which hosts.",
            _SAME,
            "Make sure that --nnodes times --nproc-per-node of torchrun equals WORLD_SIZE.",
            _REACH,
        ],
    )


def _unreachable(facts: Facts, errors: list[Notice]) -> tuple[str, str, list[str]]:
    places = listed(f"{value(error, 'address')}:{value(error, 'port')}" for error in _of(errors, *_CONNECT))
    unresolved = facts.notices("torch/store-name-unresolved")
    return (
        f"nothing answers at {places}, where PyTorch's store should be"
        + (": the name cannot be resolved" if unresolved else ""),
        f"this host cannot resolve the name: {value(unresolved[0], 'error')}. MASTER_ADDR is wrong, a headless Service "
        "is missing, or the pod does not exist yet"
        if unresolved
        else _reason(facts)
        or "rank 0 was not up yet or had died, MASTER_ADDR or MASTER_PORT is wrong, or a firewall or network policy "
        "blocks the connection",
        [
            _reach(errors),
            "Look at the output of rank 0: check whether it started, and what it printed last.",
            _SAME,
            "kubectl get pods,svc,networkpolicy -o wide   # is rank 0 up, and does its name have a Service?",
        ],
    )


def _reach(errors: list[Notice]) -> str:
    """The check with the address from the log, if there is exactly one."""
    places = {(str(value(error, "address")), str(value(error, "port"))) for error in _of(errors, *_CONNECT)}
    if len(places) != 1:
        return _REACH
    ((address, port),) = places
    return _REACH.replace("$MASTER_ADDR", shlex.quote(address)).replace("$MASTER_PORT", shlex.quote(port))


def _reason(facts: Facts) -> str:
    """The causes that the operating system's error leaves; empty if there is none, or if errors differ."""
    errors = {str(value(notice, "error")) for notice in facts.notices("torch/store-connect-failed")}
    cause = next((causes for words, causes in _REASONS.items() if errors and errors <= words), None)
    return f"{listed(sorted(errors))}: {cause}" if cause else ""


def _agents_missing() -> tuple[str, str, list[str]]:
    return (
        "torchrun waited for agents of other nodes that did not join",
        "fewer agents than --nnodes joined in time: the others were not launched, use another --rdzv-id or "
        "--rdzv-endpoint, cannot reach it, or had already ended",
        [
            "Look at the output of torchrun on each node: check that it started, with the same arguments.",
            "nc -vz <host of --rdzv-endpoint> <port>   # from each node: does it answer?",
            "--rdzv-conf join_timeout=1200   # if nodes come up slowly: seconds, 600 by default",
        ],
    )


def _rendezvous_closed() -> tuple[str, str, list[str]]:
    return (
        "torchrun tried to join a closed rendezvous",
        "another agent had closed it: the job had ended or failed there, or an earlier job used the same --rdzv-id",
        [
            "Look at the output of torchrun on the other nodes: the one that ended first shows why.",
            "--rdzv-id=<a new id for each job>   # the rendezvous of an earlier job is closed",
        ],
    )


def _store_gone() -> tuple[str, str, list[str]]:
    return (
        "the connection to PyTorch's store was closed",
        "the process that serves it (rank 0, or torchrun on the node of --rdzv-endpoint) ended or died first, or its "
        "host can no longer be reached",
        [
            "Look at the output of rank 0 and of torchrun on its node: find a traceback, a signal or an eviction.",
            _REACH,
        ],
    )


def _key_missing(errors: list[Notice]) -> tuple[str, str, list[str]]:
    keys = listed(str(value(error, "key")) for error in _of(errors, _WAIT))
    of_nccl = len(_of(errors, _WAIT)) < len(errors) or "cuda//" in keys or "ncclUniqueId" in keys
    groups = dict.fromkeys(match[1] for error in errors if (match := _GROUP.search(error.message)))
    writer = f"rank 0 of process group {' and of '.join(groups)}, counted in the group," if groups else "rank 0"
    first = "rank 0 of that group" if groups else "rank 0"
    return (
        "ranks waited in PyTorch's store for a key that another rank did not write" + (f": {keys}" if keys else ""),
        f"{writer} provides the id of the communicator: it did not get that far, died, or the ranks create their "
        "process groups in a different order"
        if of_nccl
        else "the rank that writes this key did not get that far, died, or does not write it; it is not a key of NCCL",
        [f"Look at the output of {first} first, then of all ranks: find a traceback, or the step it is in.", _SAME],
    )
