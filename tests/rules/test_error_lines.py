"""Every error line that the grammar knows leads to a rule, which says what to do about it."""

import pytest
from command_line import invoke

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.grammar.production import Production
from nccl_inspect.judging import engine
from nccl_inspect.judging.relations import relations
from nccl_inspect.judging.statements import is_error
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

RULES = {entry.rule.name: entry.rule for entry in engine.registered()}
PRODUCTIONS = grammar.shipped().productions
ERRORS = [one for one in PRODUCTIONS if one.constants.get("tone") == "error"]

_PASSED_ON = "it only passes on that a process ended; who did, and why, stands in lines beside it"
_PART = "a part of a report of several lines; the line that heads the report leads to the rule"
_CAUGHT = "an exception that a program may have caught; it counts where it ended a rank"
_ALONE = "it means nothing outside of an NCCL log"
HALF = "exited on"
"""How the first of two lines of Open MPI ends; the signal stands in the second one."""
EXTRA = {"cuda-lib-missing": {"gdrcopy-failed"}}
"""One production has several libraries, and one of them is optional."""
EXCEPTIONS = {
    "kubectl-exit-code": _PASSED_ON,
    "mpi-exit-code": _PASSED_ON,
    "mpi-hydra": _PASSED_ON,
    "ray-task-error": _PASSED_ON,
    "ray-worker-died": _PASSED_ON,
    "slurm-failed": _PASSED_ON,
    "slurm-task-failure": _PASSED_ON,
    "vllm-engine-died": _PASSED_ON,
    "vllm-engine-failed": _PASSED_ON,
    "async-error-2-4": _PASSED_ON,
    "watchdog-terminated-unknown": _PASSED_ON,
    "desync-lagging": _PART,
    "libfabric-efa-abort-code": _PART,
    "desync-not-finished": _PART,
    "desync-not-joined": _PART,
    "failure-signal": _PART,
    "monitor-disabled": _PART,
    "mpi-executable": _PART,
    "mpi-hydra-process": _PART,
    "ofi-security-group-banner": _PART,
    "work-status": _PART,
    "work-status-2-6": _PART,
    "cuda-out-of-memory": _CAUGHT,
    "python-interrupted": _ALONE,
    "rank-interrupted": _ALONE,
}
"""Error lines that raise nothing alone, by production, with the reason."""
OTHERS = {name: {*relations().superseding(name), *EXTRA.get(name, ())} for name in RULES}
"""Rules that may speak in the place of the one that the grammar names."""


def alone(production: Production, sample: str) -> Job | None:
    """A log of one line; None where that is none."""
    lead = "" if production.foreign or production.bare else "node-a:100:120 [0] file.cc:1 NCCL WARN "
    try:
        return nccl_inspect.read(f"{lead}{sample}\n".encode())
    except NoInputError:
        return None


def told(job: Job) -> list[Finding]:
    """What was found, without what is about the log as such."""
    return [finding for finding in job.findings if finding.category != engine.CATEGORIES[-1]]


@pytest.mark.parametrize("name", sorted({production.rule for production in PRODUCTIONS} - {""}))
def test_a_rule_that_the_grammar_names_exists_and_is_named_by_errors_only(name: str) -> None:
    assert name in RULES
    assert all(one in ERRORS for one in PRODUCTIONS if one.rule == name)


@pytest.mark.parametrize("production", ERRORS, ids=lambda one: f"{one.dialect}-{one.name}")
def test_an_error_line_leads_to_a_rule(production: Production) -> None:
    jobs = [alone(production, sample) for sample in production.samples if not sample.endswith(HALF)]
    # With some values it is no error, such as an Xid that programs cause.
    errors = [job for job in jobs if job and any(map(is_error, job.notices))]
    if production.name in EXCEPTIONS:
        return
    assert errors
    for job in errors:
        found = told(job)
        assert found, f"no rule says what to do about it: {job.notices[0].message}"
        assert all(finding.evidence and finding.fix for finding in found)
        rules = {finding.rule for finding in found}
        if production.rule and not RULES[production.rule].is_symptom:  # which any other finding may replace
            assert rules & {production.rule, *OTHERS.get(production.rule, ())}
        assert not job.unexplained


def test_exceptions_are_error_lines() -> None:
    assert set(EXCEPTIONS) <= {production.name for production in ERRORS}


LEADS = {
    "NET/IB : unable to allocate requests": "internal-limit-reached",  # by the grammar
    "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129": "ib-timeout-err12",  # by judging it
    "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct": "shm-instead-of-p2p",
}


@pytest.mark.parametrize(("line", "rule"), LEADS.items())
def test_explain_says_which_rule_a_line_leads_to_and_the_first_fix(line: str, rule: str) -> None:
    lines = invoke("explain", line).stdout.splitlines()
    assert any(one.startswith(f"rule        {rule}: ") for one in lines)
    assert any(one.startswith("first fix   ") for one in lines)


def test_explain_names_the_rule_of_a_line_that_raises_nothing_alone() -> None:
    output = invoke("explain", FULL).stdout
    assert "\nrule        gpu-out-of-memory: " in output
    assert "first fix" not in output


def test_explain_names_no_rule_where_there_is_none() -> None:
    assert "\nrule" not in invoke("explain", "Trees [0] -1/-1/-1->0->1").stdout


FULL = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
    "79.15 GiB of which 1.02 GiB is free."
)
WARN = "node-a:100:120 [0] file.cc:1 NCCL WARN "
REFUSED = f"{WARN}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n"
LOST = f"{WARN}Net : Call to recv from 10.0.0.2<40000> failed : Connection reset by peer\n"
INTERNAL = f"{WARN}Error: trying to connect already connected sendComm\n"
PROGRESS = f"{WARN}NET/Socket : socket progress error\n"


@pytest.mark.parametrize(
    ("log", "root", "echo"),
    [
        (REFUSED + INTERNAL, "duplicate-gpu", "internal-error"),
        (INTERNAL + REFUSED, "duplicate-gpu", "internal-error"),
        (LOST + PROGRESS, "peer-death", "transfer-failed"),
        (PROGRESS + INTERNAL, "transfer-failed", "internal-error"),
    ],
)
def test_what_tells_where_something_failed_stands_under_what_tells_why(log: str, root: str, echo: str) -> None:
    found = {finding.rule: finding for finding in told(nccl_inspect.read(log.encode()))}
    assert set(found) == {root, echo}
    assert found[root].root
    assert not found[echo].root
    assert found[echo].because == [root]


def test_a_symptom_is_left_out_where_another_finding_shows_its_lines() -> None:
    assert [finding.rule for finding in told(nccl_inspect.read(LOST.encode()))] == ["peer-death"]
