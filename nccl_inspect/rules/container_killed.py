"""Kubernetes or Docker ended a container of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.check import Evidence, Facts, Finding, Hit
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import ranks_in
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Ended

_MEMORY = "OOMKilled"
_REASONS = (
    *(_MEMORY, "Evicted", "DeadlineExceeded", "NodeLost", "NodeShutdown", "Terminated", "Preempting", "Preempted"),
    "UnexpectedAdmissionError",
)
_CODES = (135, 137, 139)
"""Exit codes of the first death; 134 and 143 are usually those of the others after it."""


@frozen
class _Death(Frozen):
    case: Case
    ended: Ended

    @property
    def has_reason(self) -> bool:
        """Return whether the status states the reason."""
        return self.ended.reason in _REASONS

    @property
    def is_last(self) -> bool:
        """Return whether the container did not restart after it; else the log may be of a later run."""
        return ".lastState." not in self.ended.where


def find(facts: Facts, effects: Sequence[Finding]) -> Iterator[Hit]:
    """Find how the pods ended if the job lost ranks; the status of a healthy job is old or of another job."""
    faults = [
        found
        for found in workloads.faults("container-killed", effects)
        if found.fatal or workloads.shows(found, "ended")
    ]
    deaths = _deaths(facts) if faults else []
    if not deaths or not faults:
        return
    first = deaths[0]
    where = {host for death in deaths for host in workloads.hosts(facts, death.case.pod)}
    dead = {rank for host in facts.job.hosts if host.name in where for rank in host.ranks}
    losses = [effect for effect in faults if workloads.shows(effect, "gone")]
    named = {rank for effect in losses for rank in _lost_ranks(facts, effect)}
    gone = dead & named or dead
    is_other = any(finding.confidence == "certain" and where.isdisjoint(finding.hosts) for finding in losses)
    agrees = not dead or (bool(dead & named) if named else not is_other)
    pod, ended = first.case.pod, first.ended
    is_container, is_memory = pod.kind == "container", ended.reason == _MEMORY
    more = {"memory": _twice(first.case.container.resources.get("memory"))}
    limit = workloads.steps(first.case, Change(("resources", "limits"), more)) if is_memory and not is_container else ()
    yield Hit(
        named={
            "pods": list_words((death.case.pod.label for death in deaths), limit=3),
            "gone": gone,
            "reason": ended.reason,
            "code": "" if is_memory else ended.code,
            "signal": "" if first.has_reason else ended.code,
            "limit": list(limit),
            "pod": pod.name,
            "own": workloads.namespace_option(pod.namespace),
            "node": "" if is_container else pod.node,
        },
        known=(*(("container",) if is_container else ()), *(("memory",) if is_memory else ())),
        evidence=[
            Evidence(death.case.pod.file, death.ended.line, f"{death.ended.where}: {death.ended.text}")
            for death in deaths
        ],
        confidence="certain" if first.has_reason and agrees and (first.is_last or dead & named) else "likely",
        ranks=gone,
        effects=faults,
        cases=[death.case for death in deaths],
    )


def _lost_ranks(facts: Facts, effect: Finding) -> set[int]:
    """Return the ranks that the finding reports as gone: those that printed its evidence lost a peer."""
    lines = {(line.source, line.line) for line in effect.evidence}
    notices = (notice for notice in facts.job.notices if any((e.source, e.line) in lines for e in notice.evidence))
    return set(effect.ranks) - ranks_in(notices)


def _deaths(facts: Facts) -> list[_Death]:
    """Return the pods whose end explains the loss, in order of time; without reasons, none if all ended alike."""
    pods = [pod for pod in workloads.related_pods(facts) if pod.containers]
    ends = [_Death(Case(pod, pod.workers[0]), ended) for pod in pods for ended in _most_informative(pod.ended)]
    sure = [death for death in ends if death.has_reason]
    deaths = sure or (ends if len(ends) < max(len(pods), 2) else [])
    return sorted(deaths, key=lambda death: (death.ended.when or "~", death.case.pod.name))


def _most_informative(ends: list[Ended]) -> list[Ended]:
    """Return the most informative end of a pod: one with a reason, else one by a signal."""
    reasons = [ended for ended in ends if ended.reason in _REASONS]
    return (reasons or [ended for ended in ends if ended.code in _CODES])[:1]


def _twice(limit: str | None) -> str:
    """Twice the current limit, if it begins with a number."""
    digits = "".join(sign for sign in limit or "" if sign.isdigit())
    whole = bool(limit) and (limit or "").startswith(digits) and 0 < len(digits) < 12
    return f"{2 * int(digits)}{(limit or '')[len(digits) :]}" if whole else "<more>"
