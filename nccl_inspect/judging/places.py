"""Where ranks run: host, process, pod and GPU, as far as the log shows."""

from __future__ import annotations

import re

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.model.finding import Finding, Place
from nccl_inspect.model.job import Job
from nccl_inspect.util.grouping import group_sets

_LABEL = re.compile(r"(?:^|\s)pod/([a-z0-9][a-z0-9.-]*)")
_PARTS = re.compile(r"[\s/›]+")
POD = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*-[a-z0-9]+")
"""The name of a pod: controllers append a number or some letters to the name of their job."""


def pod_of(process: Process) -> str | None:
    """Return the pod of a process according to its collector; None if it names none.

    ``kubectl logs --prefix`` marks pods as such; others put the pod's name before that of the container.
    """
    if match := _LABEL.search(process.apart):
        return match[1]
    *_, pod, _ = ["", "", *_PARTS.split(process.apart)]
    return pod if POD.fullmatch(pod) else None


class Places:
    """The places of the ranks of a job."""

    def __init__(self, job: Job) -> None:
        self._processes: dict[int, Process | None] = {}
        for last in job.last_lines:
            for rank in last.ranks:
                process = self._processes.setdefault(rank, last.process)
                if process is not None and process[:2] != last.process[:2]:
                    self._processes[rank] = None  # restarted, or two ranks of that number
        self._hosts = {rank: host.name for host in job.hosts for rank in host.ranks}
        self._gpus = {rank: gpu.nvml_dev for rank, gpu in job.gpus.items()}
        self.pods = {last.process.host: pod for last in job.last_lines if (pod := pod_of(last.process))}
        likely = {last.likely_rank for last in job.last_lines}
        by_story = ((rank, host) for entry in job.story for rank, host in entry.host_of.items())
        self._told = {rank: host for rank, host in by_story if rank not in likely}

    def locate(self, rank: int) -> Place:
        """Return where a rank runs."""
        process, told = self._processes.get(rank), self._told.get(rank)
        if told and (process is None or process.host != told):
            return Place(rank, told, None, None, None)  # its lines show its rank in a communicator only
        host = process.host if process else self._hosts.get(rank)
        if not is_named(host):
            host = None
        pid = process.pid if process and process.pid >= 0 and host else None
        return Place(rank, host or None, pid, pod_of(process) if process else None, self._gpus.get(rank))

    def list_ranks(self) -> list[int]:
        """Return all ranks with lines."""
        return sorted(self._processes)


def culprit_ranks(finding: Finding) -> list[int]:
    """Return the ranks to look at: the culprits of a finding, else all its ranks."""
    return _culprit_ranks(finding) or finding.ranks


def _culprit_ranks(finding: Finding) -> list[int]:
    return sorted({rank for culprit in finding.culprits if culprit.kind in ("rank", "gpu") for rank in culprit.ranks})


def blamed_ranks(job: Job) -> list[int]:
    """Return the ranks that the verdict of a failed job points at; none if these are all, or only the waiting ones."""
    lead = next((entry for entry in job.findings if entry.root and (entry.fatal or entry.severity == "error")), None)
    if job.verdict != "failed" or lead is None:
        return []
    causes = [entry for entry in job.findings if entry.root and entry.rule in lead.because]
    for finding in (lead, *causes):
        if ranks := _culprit_ranks(finding):
            return ranks
    # Lines of ranks that wait, or that only echo the end of another, say nothing of these.
    tones = group_sets((getattr(notice.event, "tone", ""), rank) for notice in job.notices for rank in notice.ranks)
    blamed = set(lead.ranks) - tones.get("wait", set()).union(job.waiting.waiting if job.waiting else ())
    if lead.confidence != "certain" and blamed <= tones.get("echo", set()):
        return []
    return sorted(blamed) if blamed and not blamed.issuperset(job.ranks_seen) else []
