"""Errors that were the last output of a rank before the others lost their connections to it: it died of them.

Such an error alone may be survivable, and its rule says so. A rank that prints nothing after it, while others lose a
peer and no communicator is finalized, did not survive it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.statements import is_propagated_error
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.util.patterns import later

_LOSS = "nccl/socket-closed-by-peer"
_IS_ERROR = later(r" NCCL WARN | -> \d+(?: \[[^\]]*\])?$")
"""A warning, or a frame of the cascade that an error leaves."""


def with_fatal_errors(facts: Facts, findings: Iterable[Finding]) -> list[Finding]:
    """The findings; those about such an error become fatal if no other finding explains why the job is dead."""
    results = list(findings)
    if any(finding.fatal and finding.confidence != "possible" for finding in results):
        return results
    lines = {(line.source, line.order) for line in _lines(facts)}
    return [_fatal(finding) if lines and _shows(finding, lines) else finding for finding in results]


def _shows(finding: Finding, lines: set[tuple[str, int]]) -> bool:
    return not finding.clue and any((line.source, line.order) in lines for line in finding.evidence)


def _fatal(finding: Finding) -> Finding:
    confidence = "likely" if finding.confidence == "possible" else finding.confidence
    return replace(finding, severity="error", confidence=confidence, fatal=True)


def is_death(facts: Facts) -> bool:
    """Whether a rank died of an error of its own."""
    return bool(_lines(facts))


def _lines(facts: Facts) -> list[Evidence]:
    return _of(facts)


@once
def _of(facts: Facts) -> list[Evidence]:
    losses = facts.notices(_LOSS)
    comms = facts.job.communicators
    if not losses or not comms or facts.job.excerpt or all(len(comm.ended) == comm.nranks for comm in comms):
        return []
    return [
        line for notice in facts.errors(forced_ends=False) if _may_kill(notice) for line in _last(facts, notice, losses)
    ]


def _may_kill(notice: Notice) -> bool:
    return notice.level == "WARN" and notice.production != _LOSS and not is_propagated_error(notice)


def _last(facts: Facts, notice: Notice, losses: list[Notice]) -> Iterator[Evidence]:
    """The lines of an error after which its process printed nothing but errors, and others lost a connection."""
    ends = _ends(facts)
    for process, line in zip(notice.processes, notice.evidence, strict=False):  # evidence is of the first ones
        last = ends.get(process)
        if last is None or last.order < line.order or not _IS_ERROR.search(last.text):
            continue
        if any(process not in loss.processes and _follows(loss, line) for loss in losses):
            yield line


@once
def _ends(facts: Facts) -> dict[object, Evidence]:
    return {last.process: last.evidence for last in facts.job.last_lines if last.evidence}


def _follows(loss: Notice, line: Evidence) -> bool:
    """Whether the first loss follows a line; lines of different sources have no order."""
    first = loss.evidence[0]
    return first.source != line.source or first.order > line.order
