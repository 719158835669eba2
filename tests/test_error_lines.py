"""Every error line that the grammar knows leads to a rule, which says what to do about it."""

import pytest

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.grammar.production import Production
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.rules import engine
from nccl_inspect.rules.statements import is_error

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
OTHERS = {name: {*rule.specific, *EXTRA.get(name, ())} for name, rule in RULES.items()}
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
        assert not production.rule or rules & {production.rule, *OTHERS.get(production.rule, ())}
        assert not job.unexplained


def test_exceptions_are_error_lines() -> None:
    assert set(EXCEPTIONS) <= {production.name for production in ERRORS}
