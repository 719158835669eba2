"""Where ranks run: host, process, pod and GPU, as far as the log tells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.head import Place
from nccl_inspect.model.job import Job

_LABEL = re.compile(r"(?:^|\s)pod/([a-z0-9][a-z0-9.-]*)")
_PARTS = re.compile(r"[\s/›]+")
POD = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*-[a-z0-9]+")
"""The name of a pod: what makes pods gives them a number or some letters behind their job's name."""
_POINTING = ("rank", "gpu")
"""Kinds of culprits that are ranks."""


def pod_of(process: Process) -> str | None:
    """The pod of a process as its collector names it; None where none does.

    ``kubectl logs --prefix`` says that it is a pod; others put its name before that of its container.
    """
    if found := _LABEL.search(process.apart):
        return found[1]
    *_, pod, _ = ["", "", *_PARTS.split(process.apart)]
    return pod if POD.fullmatch(pod) else None


class Places:
    """The places of the ranks of a job.

    Args:
        job: whose processes are known.
    """

    def __init__(self, job: Job) -> None:
        self._processes: dict[int, Process | None] = {}
        for last in job.last_lines:
            for rank in last.ranks:
                known = self._processes.setdefault(rank, last.process)
                if known is not None and known[:2] != last.process[:2]:
                    self._processes[rank] = None  # restarted, or two ranks of that number
        self._hosts = {rank: host.name for host in job.hosts for rank in host.ranks}
        self._gpus = {rank: gpu.nvml_dev for rank, gpu in job.gpus.items()}
        self._pods = {last.process.host: pod for last in job.last_lines if (pod := pod_of(last.process))}

    def of(self, rank: int) -> Place:
        """Where a rank runs."""
        process = self._processes.get(rank)
        host = process.host if process else self._hosts.get(rank)
        if not is_named(host):
            host = None
        pid = process.pid if process and process.pid >= 0 and host else None
        return Place(rank, host or None, pid, pod_of(process) if process else None, self._gpus.get(rank))

    def all(self) -> list[Place]:
        """Those of all ranks."""
        return [self.of(rank) for rank in sorted(self._processes)]

    def is_pod(self, host: str) -> bool:
        """Whether a collector says that a host is a pod, or that it runs in one."""
        return host in self._pods

    def pod_on(self, host: str) -> str | None:
        """The pod that has the name of a host."""
        return self._pods.get(host)


def culprit_ranks(finding: Finding) -> list[int]:
    """The ranks to look at: those that the bad ones have in common, else all that the finding names."""
    return _pointed_at(finding) or finding.ranks


def _by_tone(job: Job, tone: str) -> set[int]:
    """The ranks whose lines have a tone: they wait, or tell that another one is gone."""
    return {rank for one in job.notices if getattr(one.event, "tone", "") == tone for rank in one.ranks}


def _pointed_at(finding: Finding) -> list[int]:
    named: Iterable[int] = (rank for one in finding.culprits if one.kind in _POINTING for rank in one.ranks)
    return sorted(set(named))


def blamed_ranks(job: Job) -> list[int]:
    """The ranks of a failed job that its verdict points at; none where these are all, or only those that wait."""
    lead = next((one for one in job.findings if one.root and one.fatal), None)
    if job.verdict != "failed" or lead is None:
        return []
    causes = [one for one in job.findings if one.root and one.rule in lead.because]
    for finding in (lead, *causes):
        if pointed := _pointed_at(finding):
            return pointed
    waiting = _by_tone(job, "wait")
    if job.waiting:
        waiting.update(job.waiting.waiting)
    blamed = set(lead.ranks) - waiting
    if lead.confidence != "certain" and blamed <= _by_tone(job, "echo"):
        return []
    return sorted(blamed) if blamed and not blamed.issuperset(job.ranks_seen) else []
