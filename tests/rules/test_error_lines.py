"""Every error line that the grammar knows leads to a rule, which says what to do about it."""

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
