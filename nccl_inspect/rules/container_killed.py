"""Kubernetes or Docker ended a container of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import ranks_in
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Ended
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="container-killed",
    category="failures",
    layer=Layer.SYSTEM,
    title="Kubernetes or Docker ended a container of the job",
    may_cause=("death", "gone", "ended"),
    local=True,
)
_MEMORY = "OOMKilled"
_REASONS = {
    _MEMORY: "it used more memory than its limit, and the kernel killed it",
    "Evicted": "the node ran out of memory or disk, and the kubelet evicted the pod",
    "DeadlineExceeded": "the job reached its time limit (activeDeadlineSeconds)",
    "NodeLost": "the node no longer responds",
    "NodeShutdown": "the node was shut down",
    "Terminated": "the node was shut down",
    "Preempting": "a pod of higher priority took its place",
    "Preempted": "a pod of higher priority took its place",
    "UnexpectedAdmissionError": "the node refused the pod, for example because one of its devices is broken",
}
_CODES = {
    135: "SIGBUS: often /dev/shm is full, or huge pages are missing",
    137: "SIGKILL: from the kernel because memory ran out, or from somebody who ended the pod",
    139: "SIGSEGV: it crashed",
}
"""Exit codes of the first death; 134 and 143 are usually those of the others after it."""


@frozen
class _Death(Frozen):
    case: Case
    ended: Ended

    @property
    def has_reason(self) -> bool:
        """Whether the status states the reason."""
        return self.ended.reason in _REASONS

    @property
    def is_last(self) -> bool:
        """Whether the container did not restart after it; else the log may be of a later run."""
        return ".lastState." not in self.ended.where


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge how the pods ended if the job lost ranks; the status of a healthy job is old or of another job."""
    faults = [found for found in workloads.faults(RULE, effects) if found.fatal or workloads.shows(found, "ended")]
    deaths = _deaths(facts) if faults else []
    if not deaths or not faults:
        return
    first = deaths[0]
    where = {host for death in deaths for host in workloads.hosts(facts, death.case.pod)}
    dead = {rank for host in facts.job.hosts if host.name in where for rank in host.ranks}
    losses = [effect for effect in faults if workloads.shows(effect, "gone")]
    named = {rank for effect in losses for rank in _lost_ranks(facts, effect)}
    gone = dead & named or dead
    who = f", {ranks_word(gone)}" if gone else ""
    is_other = any(finding.confidence == "certain" and where.isdisjoint(finding.hosts) for finding in losses)
    agrees = not dead or (bool(dead & named) if named else not is_other)
    names = listed((death.case.pod.label for death in deaths), limit=3)
    yield workloads.finding_of(
        RULE,
        facts,
        [death.case for death in deaths],
        faults,
        f"{names}{who}: {_words(first.ended)}",
        cause=_REASONS.get(first.ended.reason) or _CODES[first.ended.code or 0],
        fix=list(_fix(facts, first)),
        evidence=[
            Evidence(death.case.pod.file, death.ended.line, f"{death.ended.where}: {death.ended.text}")
            for death in deaths
        ],
        confidence="certain" if first.has_reason and agrees and (first.is_last or dead & named) else "likely",
        ranks=gone,
    )


def _lost_ranks(facts: Facts, effect: Finding) -> set[int]:
    """The ranks that the finding reports as gone: those that printed its evidence lost a peer."""
    lines = {(line.source, line.line) for line in effect.evidence}
    notices = (notice for notice in facts.job.notices if any((e.source, e.line) in lines for e in notice.evidence))
    return set(effect.ranks) - ranks_in(notices)


def _words(ended: Ended) -> str:
    return ended.reason if ended.code is None or ended.reason == _MEMORY else f"{ended.reason}, exit code {ended.code}"


def _deaths(facts: Facts) -> list[_Death]:
    """The pods whose end explains the loss, in order of time; without stated reasons, none if all ended alike."""
    pods = [pod for pod in workloads.related(facts) if pod.containers]
    ends = [_Death(Case(pod, pod.workers[0]), ended) for pod in pods for ended in _most_informative(pod.ended)]
    sure = [death for death in ends if death.has_reason]
    deaths = sure or (ends if len(ends) < max(len(pods), 2) else [])
    return sorted(deaths, key=lambda death: (death.ended.when or "~", death.case.pod.name))


def _most_informative(ends: list[Ended]) -> list[Ended]:
    """The most informative end of a pod: one with a reason, else one by a signal."""
    reasons = [ended for ended in ends if ended.reason in _REASONS]
    return (reasons or [ended for ended in ends if ended.code in _CODES])[:1]


def _fix(facts: Facts, death: _Death) -> Iterator[str]:
    case = death.case
    if death.ended.reason == _MEMORY:
        limit = case.container.resources.get("memory")
        if case.pod.kind == "container":
            yield "--memory=<more>   # option of docker run"
        else:
            yield from workloads.steps(case, Change(("resources", "limits"), {"memory": _twice(limit)}))
        yield "Use less memory: fewer data loader workers, sharded checkpoints; /dev/shm counts as memory."
    if case.pod.kind == "container":
        yield f"docker logs --tail 50 {case.pod.name}; dmesg -T | tail -50   # on its host"
    else:
        own = workloads.in_namespace(case.pod.namespace)
        yield f"kubectl {own}describe pod {case.pod.name}; kubectl {own}logs --previous {case.pod.name} | tail -50"
        if case.pod.node:
            yield f"kubectl describe node {case.pod.node}   # Conditions and Events: pressure, taints"


def _twice(limit: str | None) -> str:
    """Twice the current limit, if it begins with a number."""
    digits = "".join(sign for sign in limit or "" if sign.isdigit())
    whole = bool(limit) and (limit or "").startswith(digits) and 0 < len(digits) < 12
    return f"{2 * int(digits)}{(limit or '')[len(digits) :]}" if whole else "<more>"
