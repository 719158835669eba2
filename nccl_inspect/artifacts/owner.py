"""Which host of the job a file is about, by its name: ``HOST.ibstat``, ``ibstat-HOST.txt``, ``hosts/HOST/lsmod``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath

from nccl_inspect.artifacts.identity import Identity, short, some
from nccl_inspect.artifacts.machine import Report
from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.topology import Topology, bus_number
from nccl_inspect.util.grouping import group_sets

_FOLDER = "hosts"  # what lies in a folder of this name lies in folders that are named after hosts
_ABOVE = 2  # folders above a file that may be named after its host
_MAX_NAMES = 3
_CARDS = ("port", "gid", "counter")  # parts of a machine that are named after the card
_MAX_PART = 255  # letters of the name of a file, as file systems have it
_START = re.compile(r"(?<![a-z0-9])")
_END = re.compile(r"(?![a-z0-9]|[-_]\d)")
"""Where a name may begin and end: ``node-1`` in ``node-1.ibstat`` and ``ibstat_node-1``, not in ``node-12``."""


class Hosts:
    """The hosts of a job, found by their names without going through all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [name for name in names if name]
        self.only = self.names[0] if len(self.names) == 1 else None
        ordered = sorted(self.names, key=len, reverse=True)
        self._place = {name: place for place, name in enumerate(ordered)}
        self._by_name: dict[str, str] = {}
        for shape in (str.lower, short):
            for name in ordered:
                self._by_name.setdefault(shape(name), name)
        self._longest = max(map(len, self._by_name), default=0)

    def match_host(self, name: str) -> str | None:
        """Return the host of that name, with or without its domain."""
        return self._by_name.get(name.lower()) or self._by_name.get(short(name))

    def find_host(self, path: str) -> str | None:
        """Return the host that a path names; None where it names none.

        Args:
            path: of a file: its own name may hold that of the host, a folder above it is named so.
        """
        parts = PurePath(path).parts[::-1]
        if (folder := foreign(path)) and (host := self.match_host(folder)):
            return host
        text = parts[0][:_MAX_PART].lower() if parts else ""
        starts, ends = ([match.start() for match in border.finditer(text)] for border in (_START, _END))
        words = (text[start:end] for start in starts for end in ends if start < end <= start + self._longest)
        inside = {host for word in words if (host := self._by_name.get(word))}
        longest = min(inside, key=self._place.__getitem__, default=None)
        return longest or next((host for part in parts[1 : _ABOVE + 1] if (host := self.match_host(part))), None)


hosts_of = lru_cache(maxsize=8)(Hosts)  # the same for the same names: rules ask line by line


def join_hosts(artifacts: Iterable[Artifact], job: Job) -> list[Artifact]:
    """Return the files with the hosts that they are about; one about a host that the job does not have is not used."""
    entries = list(artifacts)
    if not any(isinstance(entry.value, Report | Topology) for entry in entries):
        return entries
    hosts = Hosts(host.name for host in job.hosts)
    used = ((host, job.gpus.get(rank)) for host in job.hosts for rank in host.ranks)
    gpus = group_sets((host.name, gpu.bus_id) for host, gpu in used if gpu and gpu.bus_id)
    listed = [
        (host, device)
        for notice in job.notices
        if isinstance(notice.event, NetDevices) and notice.event.net == "IB"
        for device in notice.event.devices
        for host in notice.hosts
    ]
    cards = group_sets((host, card) for host, device in listed for card in str(device[1]).split("+") if card)
    most = nvidia_smi.most_gpus(job)
    return [_join_host(entry, hosts, most, gpus, cards) for entry in entries]


def identify(artifact: Artifact, hosts: Hosts | None = None) -> Identity:
    """Return what a file names of its job.

    Args:
        hosts: of the jobs that it may be about, for files about machines: where all have one, it is about that one.
    """
    value = artifact.value
    if hosts is None or not isinstance(value, Report | Topology):
        identity = getattr(value, "identity", None)
        named: Identity = identity() if identity else Identity()
        return named
    names = {item.host for item in value.items} if isinstance(value, Report) else set()
    if not any(names):
        names = {hosts.find_host(artifact.name) or foreign(artifact.name) or hosts.only}
    known = frozenset(short(name) for name in names if name)
    return Identity(hosts=known, are_all_hosts=bool(known), is_of_many=True)


def _join_host(
    artifact: Artifact, hosts: Hosts, most: int, gpus: Mapping[str, set[str]], nics: Mapping[str, set[str]]
) -> Artifact:
    value = artifact.value
    if not isinstance(value, Report | Topology):
        return artifact
    host = hosts.find_host(artifact.name)
    in_lines = [item.host for item in value.items if item.host] if isinstance(value, Report) else []
    names = {name: hosts.match_host(name) for name in in_lines}
    other = foreign(artifact.name) if host is None and not names else None
    if other or (names and not any(names.values())):
        about, in_log = (", ".join([*some][:_MAX_NAMES]) for some in (names or [other or ""], hosts.names))
        return set_aside(artifact, f"about host {about}, which is not in the log ({in_log or 'no host'})")
    if isinstance(value, Report) and names:
        items = [replace(item, host=own) for item in value.items if (own := names.get(item.host or ""))]
        first, *others = {own for own in names.values() if own}
        return replace(artifact, value=Report(value.name, tuple(items)), host=None if others else first)
    host = host or hosts.only
    if isinstance(value, Topology):
        if 0 < value.gpus < most:
            return set_aside(artifact, f"it has {value.gpus} GPUs, and the log shows {most} on a host")
        return replace(artifact, value=replace(value, host=host), host=host)
    # It is about another machine where none of its GPUs, or of its cards, is one of the log.
    buses = {str(bus) for item in value.items if (bus := item.values.get("bus_id"))}
    cards = {item.name for item in value.items if item.part in _CARDS and item.name}
    key: Callable[[str], object]
    for what, named, of_log, key in (("GPUs", buses, gpus, bus_number), ("NICs", cards, nics, str)):
        there = of_log.get(host or "", set())
        if named and there and not {*map(key, named)} & {*map(key, there)}:
            why = f"its {what} ({some(sorted(named))}) are not those of the log ({some(sorted(there))})"
            return set_aside(artifact, why)
    return replace(
        artifact, value=replace(value, items=tuple(replace(item, host=host) for item in value.items)), host=host
    )


def set_aside(artifact: Artifact, why: str) -> Artifact:
    """Return a file with the reason why it is not used."""
    return replace(artifact, value=None, problem=why)


def foreign(path: str) -> str | None:
    """Return the host after which the folder of a file is named, below ``hosts``."""
    parts: Sequence[str] = PurePath(path).parts
    places = [place for place, part in enumerate(parts[:-2]) if part == _FOLDER]
    return parts[places[-1] + 1] if places else None
