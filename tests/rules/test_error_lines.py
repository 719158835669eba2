"""Every error line that the grammar knows leads to a rule, which says what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.grammar.production import Production
from nccl_inspect.judging import engine
from nccl_inspect.judging.statements import is_error
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

RULES = {entry.rule.name: entry.rule for entry in engine.list_rules()}
PRODUCTIONS = grammar.load_grammar().productions
ERRORS = [one for one in PRODUCTIONS if one.constants.get("tone") == "error"]

HALF = "exited on"
"""How the first of two lines of Open MPI ends; the signal stands in the second one."""
EXTRA = {"cuda-lib-missing": {"gdrcopy-failed"}}
"""One production has several libraries, and one of them is optional."""
EXCEPTIONS = {
    # it only passes on that a process ended; who did, and why, stands in lines beside it
    *("kubectl-exit-code", "mpi-exit-code", "mpi-hydra", "ray-task-error", "ray-worker-died", "slurm-failed"),
    *("slurm-task-failure", "vllm-engine-died", "async-error-2-4", "watchdog-terminated-unknown"),
    # a part of a report of several lines; the line that heads the report leads to the rule
    *("desync-lagging", "libfabric-efa-abort-code", "desync-not-finished", "desync-not-joined", "failure-signal"),
    *("monitor-disabled", "mpi-executable", "mpi-hydra-process", "ofi-security-group-banner", "work-status"),
    "work-status-2-6",
    # an exception that a program may have caught; it counts where it ended a rank
    "cuda-out-of-memory",
    # it means nothing outside of an NCCL log
    *("python-interrupted", "rank-interrupted"),
}
"""Error lines that raise nothing alone, by production."""
OTHERS = {name: {*engine.superseding(name), *EXTRA.get(name, ())} for name in RULES}
"""Rules that may speak in the place of the one that the grammar names."""


def read_alone(production: Production, sample: str) -> Job | None:
    """Return a log of one line; None where that is none."""
    lead = "" if production.foreign or production.bare else "node-a:100:120 [0] file.cc:1 NCCL WARN "
    try:
        return nccl_inspect.read(f"{lead}{sample}\n".encode())
    except NoInputError:
        return None


def findings_of(job: Job) -> list[Finding]:
    """Return what was found, without what is about the log as such."""
    return [finding for finding in job.findings if finding.category != engine.CATEGORIES[-1]]


def complaints(production: Production, most: int | None) -> Iterator[str]:
    """Yield what is wrong with the rule to which samples of an error line lead, the first ones or all."""
    jobs = (read_alone(production, sample) for sample in production.samples if not sample.endswith(HALF))
    # With some values it is no error, such as an Xid that programs cause.
    errors = [*islice((job for job in jobs if job and any(map(is_error, job.notices))), most)]
    if not errors:
        yield "no sample is an error"
    for job in errors:
        found = findings_of(job)
        if not found or not all(finding.evidence and finding.fix for finding in found):
            yield f"no rule says what to do about it: {job.notices[0].message}"
        rules = {finding.rule for finding in found}
        # any other finding may replace a symptom
        wanted = {production.rule, *OTHERS.get(production.rule, ())}
        if production.rule and RULES[production.rule].reach != Layer.CALL and not rules & wanted:
            yield f"it leads to {rules}, not to {production.rule}"
        if job.unexplained:
            yield f"unexplained: {job.unexplained[0].message}"


JUDGED = [one for one in ERRORS if one.name not in EXCEPTIONS]
KINDS = {(one.rule, *sorted(one.roles)): one for one in reversed(JUDGED)}
"""One of each rule and roles."""


@pytest.mark.parametrize(
    "some, most", [([*KINDS.values()], 1), pytest.param(JUDGED, None, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_each_error_line_leads_to_a_rule(some: list[Production], most: int | None) -> None:
    wrong = [f"{one.dialect}/{one.name}: {what}" for one in some for what in complaints(one, most)]
    assert not wrong, "\n".join(["nccl_inspect/grammar/dialects:", *wrong])
    assert {*EXCEPTIONS} <= {production.name for production in ERRORS}


def test_a_rule_that_the_grammar_names_exists_and_is_named_by_errors_only() -> None:
    named = [production for production in PRODUCTIONS if production.rule]
    assert not [f"{one.dialect}/{one.name}" for one in named if one.rule not in RULES or one not in ERRORS]


_PASSED = {"nccl-not-built-in", "nccl-symbol-undefined", "nccl-library-not-found", "nccl-not-loaded"}
"""Errors of a process that loads NCCL; ranks that are connected did."""
_HARMLESS = {"xid", "proxy-socket-failed", "store-connect-timeout"}
"""Errors with other values than these samples have, or if they are raised."""


@pytest.mark.parametrize("some", [[*KINDS.values()], pytest.param(ERRORS, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_connected_job_is_not_all_right_where_an_error_or_the_echo_of_one_is_its_last_line(
    some: list[Production],
) -> None:
    wrong = []
    echoes = [one for one in PRODUCTIONS if "echoes-failure" in one.roles]
    for one in (*some, *echoes):
        if one.name in _PASSED | _HARMLESS or "survivable" in one.roles:
            continue
        lead = "" if one.foreign or one.bare else "node-b:20:99 [0] file.cc:1 NCCL WARN "
        lines = [f"{lead}{sample}\n" for sample in one.samples[:1] if not sample.endswith(HALF)]
        jobs = (nccl_inspect.read(f"{_JOB}{line}".encode()) for line in lines)
        wrong += [f"{one.dialect}/{one.name}" for job in jobs if job.verdict == "ok" and not findings_of(job)]
    assert echoes
    assert not wrong, "\n".join(wrong)


# --- An error of NET/IB leads to the same findings in each wording that NCCL has for it, old and new

_INIT = "NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init"
_JOB = f"""\
node-a:10:10 [0] NCCL INFO Using network IB
node-a:10:10 [0] {_INIT.format(rank=0)} START
node-b:20:20 [0] {_INIT.format(rank=1)} START
node-a:10:10 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
node-b:20:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA
node-a:10:10 [0] {_INIT.format(rank=0)} COMPLETE
node-b:20:20 [0] {_INIT.format(rank=1)} COMPLETE
"""
_STATUSES = {1: "LOC_LEN", 5: "WR_FLUSH", 10: "REM_ACCESS", 12: "RETRY_EXC", 13: "RNR_RETRY_EXC", 21: "GENERAL"}
_GIDS = "localGid ::ffff:10.0.0.1 remoteGid"
_CQE = "(devIndex=0, req=0x7f01a0, comm=0x7f02a0 (send), wr_id=5, qp_num=7)"
_NAMED = "NET/IB: Got completion from peer 10.0.0.2<4> with status={name}({status}) opcode=IBV_WC_SEND(0)"
_COMPLETIONS = {
    "2.4": "NET/IB : Got completion with error {status}, opcode 0, len 0, vendor err 129",
    "2.20": "NET/IB : Got completion from peer 10.0.0.2<4> with error {status}, opcode 0, len 0, vendor err 129 (Send) "
    + f"{_GIDS} ::ffff:10.0.0.2",
    "2.28.3": "NET/IB: Got completion from peer 10.0.0.2<4> with status={status} opcode=0 len=0 vendor err 129 (Send) "
    + f"{_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.28.9": f"{_NAMED} reqSize=1 vendor_err=129 req_type=Send {_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.29.7, RoCE": f"NET/IB: ncclIbTest: Got CQE with error {_CQE}\n"
    + f"{_NAMED} vendor_err=129  {_GIDS}s::ffff:10.0.0.2 hca mlx5_0",
    "2.30.7, InfiniBand": f"NET/IB: Got CQE with error {_CQE}\n{_NAMED} vendor_err=129  hca mlx5_0",
    "2.30.7, the second line": f"{_NAMED} vendor_err=129  hca mlx5_0",
    "2.30.7, failover": "NET/IB: ncclIbTest: Unsupported completion status {name} ({status})",
}
_EVENTS = {
    **dict.fromkeys(("port error", "LID change", "client reregistration"), ("",)),
    **dict.fromkeys(("local catastrophic error", "CQ error", "invalid request local work queue error"), ("", "fatal")),
}
_ASYNC = {
    "": ("Got async event : {event}", "Got async event: {event}", "Got async error event: {event}"),
    "fatal": (
        "async fatal event on QP (0x7f01a0) qpn=3 handle=3 send_cq=3 recv_cq=3 state=3 sq_psn=3 rq_psn=3: {event}",
    ),
}
_NUMBERS = {
    "Call to ibv_modify_qp failed with error {}": (
        "Connection timed out",
        "Connection timed out errno 110",
        "-110",
        "110",
    ),
    "socketStartConnect: Connect to 10.0.0.2<4> failed : {}": ("Connection refused", "111", "errno 111", "error -111"),
    "Call to ibv_reg_mr failed with error {}": ("Bad address", "Bad address errno 14", "-14", "Unknown error 14"),
}


def _findings(messages: str) -> list[tuple[str, str]]:
    lines = "".join(f"node-a:10:30 [0] net_ib.cc:1 NCCL WARN {message}\n" for message in messages.split("\n"))
    job = nccl_inspect.read((_JOB + lines).encode())
    return [(finding.rule, finding.severity) for finding in job.findings] or [(job.verdict, "no finding")]


def test_each_status_and_event_leads_where_its_oldest_wording_leads() -> None:
    cases = {
        name: [text.format(status=status, name=f"IBV_WC_{name}_ERR") for text in _COMPLETIONS.values()]
        for status, name in _STATUSES.items()
    }
    for event, kinds in _EVENTS.items():
        wordings = (wording for kind in kinds for wording in _ASYNC[kind])
        cases[event] = [f"NET/IB : mlx5_0:1 {wording.format(event=event)}" for wording in wordings]
    cases |= {text: [text.format(error) for error in errors] for text, errors in _NUMBERS.items()}
    wrong = []
    for name, texts in cases.items():
        expected, *others = map(_findings, texts)
        wrong += [f"{name}: {text}: {got}" for text, got in zip(texts[1:], others, strict=True) if got != expected]
        wrong += [f"{name}: no finding"] if expected[0][1] == "no finding" else []
    assert not wrong, "nccl_inspect/grammar/dialects/nccl/warnings-ib.grammar:\n" + "\n".join(wrong)
