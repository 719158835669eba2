"""Fills the placeholders of fixes with what the log states: ``<pid>`` becomes the pid of the rank that is to blame.

A placeholder is filled where the log gives it one value. Where there are a few, it stays and the words behind the
command list them. What a placeholder stands for is in :data:`_VALUES`: a new one is a new entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import interfaces
from nccl_inspect.judging.places import POD, Places, culprit_ranks
from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.judging.statements import quoted, value
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.head import Place
from nccl_inspect.model.job import Notice

_PLACEHOLDER = re.compile(r"<([a-z]+)>")
_ALL = re.compile(r"\b(?:on|of|in) (?:every|each|all)\b")
"""Words about a command that is for all ranks, not only for those to blame."""
_ON_RANK = re.compile(r"(?:\bon )?\brank (\d+)\b")
_ITS_HOST = re.compile(r"\b(on|of) (?:its (?:host|node)|the host of (?:this rank|that rank|rank \d+))\b")
"""A place that words about a command leave open."""
_MOST = 4
"""Values that are listed; with more, nobody would read them."""
_DEVICES = ("device", "hca", "name")
"""Fields of messages that name a NIC."""
_OF_A_NODE = re.compile(r"ip-\d|gke-|aks-|oke-|.*\.")
"""Host names that Kubernetes gives its nodes, and names with a domain: no names of pods."""
_TAKEN = {"pod": "pod named after the host", "node": "node named after the host"}
"""What is said where the host name stands for something else."""


class _Value(NamedTuple):
    """What a placeholder may stand for."""

    text: str
    place: Place | None = None
    """Whose it is."""
    note: str = ""
    """What is to be said where it is used."""


class _Scene(NamedTuple):
    """What a finding is about."""

    facts: Facts
    finding: Finding
    places: Places
    ranks: Sequence[int]


def fill(facts: Facts, findings: Iterable[Finding]) -> None:
    """Put what the log states in place of the placeholders of all fixes."""
    for finding in findings:
        if any(_PLACEHOLDER.search(step) or _ITS_HOST.search(step) for step in finding.fix):
            finding.fix = [_filled(step, facts, finding) for step in finding.fix]


def _filled(step: str, facts: Facts, finding: Finding) -> str:
    code, _, words = step.partition(COMMENT)
    places = facts.once(_places)
    ranks = [place.rank or 0 for place in places.all()] if _ALL.search(words) else culprit_ranks(finding)
    scene = _Scene(facts, finding, places, ranks)
    if len(hosts := _its_host(scene)) == 1 and is_named(hosts[0]):
        words = _ITS_HOST.sub(rf"\1 {hosts[0]}", words)
    notes: list[str] = []
    lists: list[str] = []
    for name in dict.fromkeys(_PLACEHOLDER.findall(step)):
        found = _different(_VALUES[name](scene)) if name in _VALUES else []
        if len(found) == 1:
            (one,) = found
            code, words = (text.replace(f"<{name}>", one.text) for text in (code, words))
            words, said = _told(words, one)
            notes += [one.note] if one.note else []
            notes += [_whose(one.place, words)] if one.place and not said else []
        elif 1 < len(found) <= _MOST:
            lists.append(f"<{name}>: {_listed(found)}")
    if is_sentence(step):
        return code
    text = "; ".join(filter(None, (*notes, words, *lists)))
    return f"{code}{COMMENT}{text}" if text else code


def _different(values: Iterable[_Value]) -> list[_Value]:
    """Each value once; processes of different pods may have the same number and are not the same."""
    found: dict[tuple[str, str | None], _Value] = {}
    for one in values:
        found.setdefault((one.text, one.place.host if one.place else None), one)
    return list(found.values())


def _told(words: str, one: _Value) -> tuple[str, bool]:
    """The words about a command with whose value it has, and whether they say so now."""
    if one.place is None:
        return words, True
    whose, rank = _whose(one.place, ""), str(one.place.rank)
    replaced = _ON_RANK.sub(lambda found: whose if found[1] == rank else found[0], words)
    return replaced, replaced != words


def _whose(place: Place, words: str) -> str:
    """A rank, and its host where the words about a command do not have it."""
    return f"rank {place.rank}" + ("" if f"on {place.host}" in words else f", on {place.host}")


def _listed(values: Iterable[_Value]) -> str:
    """Values in a row, those of one host together."""
    by_host: dict[str | None, list[str]] = {}
    for one in values:
        by_host.setdefault(one.place.host if one.place else None, []).append(one.text)
    return "; ".join(", ".join(texts) + (f" on {host}" if host else "") for host, texts in by_host.items())


def _places(facts: Facts) -> Places:
    return Places(facts.job)


def _of_ranks(scene: _Scene) -> list[Place]:
    return [scene.places.of(rank) for rank in scene.ranks] if len(scene.ranks) <= _MOST else []


def _pids(scene: _Scene) -> list[_Value]:
    found = _of_ranks(scene)
    if any(place.pid is None for place in found):
        return []  # a list with gaps looks complete
    return [_Value(str(place.pid), place) for place in found]


def _hosts(scene: _Scene) -> list[str]:
    """The hosts that are to blame."""
    named = [one.name for one in scene.finding.culprits if one.kind == "host"]
    known = [place.host for place in _of_ranks(scene) if place.host]
    if named or known:
        return named or list(dict.fromkeys(known))
    return [] if scene.finding.ranks else scene.finding.hosts  # a rank that is nowhere in the log is on no known host


def _its_host(scene: _Scene) -> list[str]:
    """The hosts of all ranks to blame; where none is known, that of the job, if the log has all of it."""
    if hosts := _hosts(scene):
        return hosts
    if scene.ranks:
        return sorted({scene.places.of(rank).host or "?" for rank in scene.ranks})
    job = scene.facts.job
    return [host.name for host in job.hosts] if len(job.ranks_seen) == job.world_size else []


def _pods(scene: _Scene) -> list[_Value]:
    places = _of_ranks(scene)
    if places and all(place.pod for place in places):
        return [_Value(place.pod or "") for place in places]
    hosts = _hosts(scene)
    if pods := [pod for host in hosts if (pod := scene.places.pod_on(host))]:
        return [_Value(pod) for pod in pods] if len(pods) == len(hosts) else []
    are_pods = all(POD.fullmatch(host) and not _OF_A_NODE.match(host) for host in hosts)
    return [_Value(host, note=_TAKEN["pod"]) for host in hosts] if are_pods else []


def _nodes(scene: _Scene) -> list[_Value]:
    hosts = _hosts(scene)
    if any(map(scene.places.is_pod, hosts)):
        return []  # the log names the pod and not the node
    return [_Value(host, note="" if _OF_A_NODE.match(host) else _TAKEN["node"]) for host in hosts]


def _interface(scene: _Scene) -> list[_Value]:
    """The interface that all the others use for set-up: the one in the finding may be the wrong one."""
    shown = quoted(scene.facts.job.notices, scene.finding)
    bad: set[tuple[object, object]] = {process[:2] for notice in shown for process in notice.processes}
    bad |= {(place.host, place.pid) for place in map(scene.places.of, scene.finding.ranks)}
    good = [
        one
        for one in interfaces.offered(scene.facts)
        if one.for_setup and bad and not (one.is_loopback or one.is_of_one_machine) and not _are(one.said, bad)
    ]
    return [_Value(name) for name in dict.fromkeys(one.name for one in good)]


def _are(notice: Notice, processes: set[tuple[object, object]]) -> bool:
    return processes.issuperset(process[:2] for process in notice.processes)


def _devices(scene: _Scene) -> list[_Value]:
    """The NICs that the finding names."""
    named = [one.name.partition(" ")[2] for one in scene.finding.culprits if one.kind == "nic"]
    said = [
        str(name)
        for notice in quoted(scene.facts.job.notices, scene.finding)
        for field in _DEVICES
        if (name := value(notice, field))
    ]
    return [_Value(name) for name in dict.fromkeys(named or said) if " " not in name]


def _slurm_job(scene: _Scene) -> list[_Value]:
    """The number of the job that Slurm names; a step has one behind it."""
    said = (
        value(notice, "job") for notice in scene.facts.job.notices if notice.production.startswith("launchers/slurm-")
    )
    return [_Value(job) for job in dict.fromkeys(str(job).partition(".")[0] for job in said if job)]


def _host_count(scene: _Scene) -> list[_Value]:
    hosts = len(scene.facts.job.hosts)
    return [_Value(str(hosts))] if hosts else []


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
    "hosts": _host_count,
}
"""Where the values of each placeholder come from."""
NAMES = frozenset(_VALUES)
"""Placeholders that a log may fill."""
