"""Where ranks run: host, process, pod and GPU; and the placeholders of fixes that such values fill."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging import networks
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.judging.statements import NIC_FIELDS, notices_shown, value
from nccl_inspect.model.finding import Finding, Place
from nccl_inspect.model.job import Job
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import ranks_word

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


_PLACEHOLDER = re.compile(r"<([a-z]+)>")
_ALL = re.compile(r"\b(?:on|of|in) (?:every|each|all)\b")
"""Marks the comment of a command for all ranks, not only for the culprits."""
_ON_RANK = compile_later(r"(?:\bon )?\brank (\d+)\b")
_ITS_HOST = re.compile(r"\b(on|of) (?:its (?:host|node)|the host of (?:this rank|that rank|rank \d+))\b")
"""A host that the comment of a command leaves open."""
_MOST = 4  # the most values to list; nobody would read more
_OF_A_NODE = compile_later(r"ip-\d|gke-|aks-|oke-|.*\.")
"""Names of Kubernetes nodes, and names with a domain, which pods do not have."""
_ASSUMED = {"pod": "pod named after the host", "node": "node named after the host"}
"""Notes for values that are taken from the host name."""


class _Value(Frozen):
    """A value of a placeholder."""

    text: str
    place: Place | None = None  # the place of its rank
    note: str = ""  # a note for the comment of the command


class _Scene(Frozen):
    """A finding with the places of its ranks."""

    facts: Facts
    finding: Finding
    places: Places
    ranks: Sequence[int]


def fill(facts: Facts, findings: Iterable[Finding]) -> None:
    """Fill the placeholders of all fixes with values from the log."""
    job = facts.job
    ends = facts.with_event(ProcessEnded, lambda event: event.ends_others)
    has_ended = bool(job.ended_by or facts.with_role("forced-end") or ends)
    open_ones = [one for one in findings if any(_PLACEHOLDER.search(s) or _ITS_HOST.search(s) for s in one.fix)]
    places = Places(job)
    for finding in open_ones:
        finding.fix = [_fill_step(step, facts, finding, places, has_ended) for step in finding.fix]


def _fill_step(step: str, facts: Facts, finding: Finding, places: Places, has_ended: bool) -> str:
    code, _, words = step.partition(COMMENT)
    if has_ended and step.startswith("py-spy "):  # it needs a running process
        words = words.replace(" now?", " then?")
        who = f", on {ranks_word(finding.ranks)}" if len(finding.ranks) == 1 and "rank " not in words else ""
        return f"{code}{COMMENT}next time, before the job ends{who}" + (f": {words}" if words else "")
    ranks = places.list_ranks() if _ALL.search(words) else culprit_ranks(finding)
    scene = _Scene(facts, finding, places, ranks)
    if len(hosts := _its_host(scene)) == 1 and is_named(hosts[0]):
        words = _ITS_HOST.sub(rf"\1 {hosts[0]}", words)
    notes: list[str] = []
    lists: list[str] = []
    for name in dict.fromkeys(_PLACEHOLDER.findall(step)):
        values: dict[tuple[str | None, str], _Value] = {}  # processes of different pods may share a pid
        for one in _VALUES[name](scene) if name in _VALUES else ():
            values.setdefault((one.place.host if one.place else None, one.text), one)
        if len(values) == 1:
            (single,) = values.values()
            code, words = (text.replace(f"<{name}>", single.text) for text in (code, words))
            notes += [single.note] if single.note else []
            if single.place:
                rank, whose = str(single.place.rank), f"rank {single.place.rank}, on {single.place.host}"
                named = [match for match in _ON_RANK.finditer(words) if match[1] == rank]
                for match in reversed(named):
                    words = words[: match.start()] + whose + words[match.end() :]
                if not named:
                    notes.append(f"rank {rank}" if f"on {single.place.host}" in words else whose)
        elif 1 < len(values) <= _MOST:
            by_host = group_values(values)
            listed = (", ".join(texts) + (f" on {host}" if host else "") for host, texts in by_host.items())
            lists.append(f"<{name}>: {'; '.join(listed)}")
    if is_sentence(step):
        return code
    text = "; ".join(filter(None, (*notes, words, *lists)))
    return f"{code}{COMMENT}{text}" if text else code


def _places_of_ranks(scene: _Scene) -> list[Place]:
    return [scene.places.locate(rank) for rank in scene.ranks] if len(scene.ranks) <= _MOST else []


def _pids(scene: _Scene) -> list[_Value]:
    places = _places_of_ranks(scene)
    if any(place.pid is None for place in places):
        return []  # a list with gaps looks complete
    return [_Value(str(place.pid), place) for place in places]


def _hosts(scene: _Scene) -> list[str]:
    named = [culprit.name for culprit in scene.finding.culprits if culprit.kind == "host"]
    of_ranks = [place.host for place in _places_of_ranks(scene) if place.host]
    if named or of_ranks:
        return named or list(dict.fromkeys(of_ranks))
    return [] if scene.finding.ranks else scene.finding.hosts  # a rank missing from the log has no known host


def _its_host(scene: _Scene) -> list[str]:
    """Return the hosts of the culprits; if none is known, those of the job, if the log is complete."""
    if hosts := _hosts(scene):
        return hosts
    if scene.ranks:
        return sorted({scene.places.locate(rank).host or "?" for rank in scene.ranks})
    job = scene.facts.job
    return [host.name for host in job.hosts] if len(job.ranks_seen) == job.world_size else []


def _pods(scene: _Scene) -> list[_Value]:
    places = _places_of_ranks(scene)
    if places and all(place.pod for place in places):
        return [_Value(place.pod or "") for place in places]
    hosts = _hosts(scene)
    if pods := [pod for host in hosts if (pod := scene.places.pods.get(host))]:
        return [_Value(pod) for pod in pods] if len(pods) == len(hosts) else []
    are_pods = all(POD.fullmatch(host) and not _OF_A_NODE.match(host) for host in hosts)
    return [_Value(host, note=_ASSUMED["pod"]) for host in hosts] if are_pods else []


def _nodes(scene: _Scene) -> list[_Value]:
    hosts = _hosts(scene)
    if not scene.places.pods.keys().isdisjoint(hosts):
        return []  # the log names the pod and not the node
    return [_Value(host, note="" if _OF_A_NODE.match(host) else _ASSUMED["node"]) for host in hosts]


def _interface(scene: _Scene) -> list[_Value]:
    """Return the interface that all others use for bootstrap: the one in the finding may be wrong."""
    shown = notices_shown(scene.facts.job.notices, scene.finding)
    bad: set[tuple[object, object]] = {process[:2] for notice in shown for process in notice.processes}
    bad |= {(place.host, place.pid) for place in map(scene.places.locate, scene.finding.ranks)}
    good = [
        interface
        for interface in networks.listed_interfaces(scene.facts)
        if interface.for_setup
        and bad
        and not (interface.is_loopback or interface.is_of_one_machine)
        and not bad.issuperset(process[:2] for process in interface.notice.processes)
    ]
    return [_Value(name) for name in dict.fromkeys(interface.name for interface in good)]


def _devices(scene: _Scene) -> list[_Value]:
    named = [culprit.name.partition(" ")[2] for culprit in scene.finding.culprits if culprit.kind == "nic"]
    stated = [
        str(name)
        for notice in notices_shown(scene.facts.job.notices, scene.finding)
        for field in NIC_FIELDS
        if (name := value(notice, field))
    ]
    return [_Value(name) for name in dict.fromkeys(named or stated) if " " not in name]


def _slurm_job(scene: _Scene) -> list[_Value]:
    notices = (one for one in scene.facts.job.notices if one.production.startswith("launchers/"))
    jobs = filter(None, (value(notice, "job") for notice in notices))
    return [_Value(job) for job in dict.fromkeys(str(job).partition(".")[0] for job in jobs)]


_VALUES: dict[str, Callable[[_Scene], list[_Value]]] = {
    "pid": _pids,
    "pod": _pods,
    "host": lambda scene: [_Value(host) for host in _hosts(scene)],
    "node": _nodes,
    "interface": _interface,
    "device": _devices,
    "hca": _devices,
    "nic": _devices,
    "job": _slurm_job,
    "hosts": lambda scene: [_Value(str(number))] if (number := len(scene.facts.job.hosts)) else [],
}
"""The source of each placeholder's values."""
NAMES = frozenset(_VALUES)  # placeholders that a log may fill
