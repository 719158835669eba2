"""Which host of the job a file is about, by its name: ``HOST.ibstat``, ``ibstat-HOST.txt``, ``hosts/HOST/lsmod``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import PurePath

from nccl_inspect.artifacts.identity import Identity, short, some
from nccl_inspect.artifacts.machine import Item, Report
from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.topology import Topology, bus_number

_FOLDER = "hosts"
"""What lies in a folder of this name lies in folders that are named after hosts."""
_ABOVE = 2
"""Folders above a file that may be named after its host."""
_MAX_NAMES = 3
_CARDS = ("port", "gid", "counter")
"""Parts of a machine that are named after the card."""
_MAX_PART = 255
"""Letters of the name of a file, as file systems have it."""
_START = re.compile(r"(?<![a-z0-9])")
_END = re.compile(r"(?![a-z0-9]|[-_]\d)")
"""Where a name may begin and end: ``node-1`` in ``node-1.ibstat`` and ``ibstat_node-1``, not in ``node-12``."""


class Hosts:
    """The hosts of a job, found by their names without going through all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [name for name in names if name]
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


@lru_cache(maxsize=8)
def hosts_of(names: tuple[str, ...]) -> Hosts:
    """Return the same for the same names: rules ask line by line."""
    return Hosts(names)


def join_hosts(artifacts: Iterable[Artifact], job: Job) -> list[Artifact]:
    """Return the files with the hosts that they are about; one about a host that the job does not have is not used."""
    hosts, gpus, parts = Hosts(host.name for host in job.hosts), nvidia_smi.most_gpus(job), _Parts(job)
    return [_join_host(artifact, hosts, gpus, parts) for artifact in artifacts]


class _Parts:
    """Holds what the log names of each host's machine."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @cached_property
    def gpus(self) -> dict[str, set[str]]:
        """Return the bus ids of the GPUs that its ranks use."""
        bus_ids: dict[str, set[str]] = {}
        for host in self._job.hosts:
            own = [gpu.bus_id for rank in host.ranks if (gpu := self._job.gpus.get(rank)) and gpu.bus_id]
            bus_ids[host.name] = set(own)
        return bus_ids

    @cached_property
    def nics(self) -> dict[str, set[str]]:
        """Return the InfiniBand and RoCE cards that NCCL lists."""
        cards: dict[str, set[str]] = {}
        for notice in self._job.notices:
            if isinstance(notice.event, NetDevices) and notice.event.net == "IB":
                names = {part for device in notice.event.devices for part in "+".join(map(str, device[1:2])).split("+")}
                for host in notice.hosts:
                    cards.setdefault(host, set()).update(names - {""})
        return cards


def identity(artifact: Artifact, hosts: Hosts) -> Identity | None:
    """Return the hosts that a file about machines names; None for all others.

    Args:
        hosts: of the jobs that it may be about: where all have one, it is about that one.
    """
    if not isinstance(artifact.value, Report | Topology):
        return None
    named = {item.host for item in artifact.value.items if item.host} if isinstance(artifact.value, Report) else set()
    if not named:
        host = hosts.find_host(artifact.name) or foreign(artifact.name) or _only_host(hosts)
        named = {host} if host else set()
    return Identity(hosts=frozenset(map(short, named)), are_all_hosts=bool(named), is_of_many=True)


def _only_host(hosts: Hosts) -> str | None:
    return hosts.names[0] if len(hosts.names) == 1 else None


def _join_host(artifact: Artifact, hosts: Hosts, gpus: int, parts: _Parts) -> Artifact:
    value = artifact.value
    if not isinstance(value, Report | Topology):
        return artifact
    if isinstance(value, Report) and any(item.host for item in value.items):
        return _by_lines(artifact, value, hosts)
    host = hosts.find_host(artifact.name)
    if host is None and (other := foreign(artifact.name)):
        return _reject_host(artifact, [other], hosts)
    host = host or _only_host(hosts)
    if isinstance(value, Report):
        # It is about another machine where none of its GPUs, or of its cards, is one of the log.
        buses = {str(bus) for item in value.items if (bus := item.values.get("bus_id"))}
        cards = {item.name for item in value.items if item.part in _CARDS and item.name}
        own, mine = parts.gpus.get(host or "", set()), parts.nics.get(host or "", set())
        if buses and own and not {bus_number(bus) for bus in buses} & {bus_number(bus) for bus in own}:
            return set_aside(
                artifact, f"its GPUs ({some(sorted(buses))}) are not those of the log ({some(sorted(own))})"
            )
        if cards and mine and not cards & mine:
            return set_aside(
                artifact, f"its NICs ({some(sorted(cards))}) are not those of the log ({some(sorted(mine))})"
            )
        value = replace(value, items=tuple(replace(item, host=host) for item in value.items))
        return replace(artifact, value=value, host=host)
    if 0 < value.gpus < gpus:
        return set_aside(artifact, f"it has {value.gpus} GPUs, and the log shows {gpus} on a host")
    return replace(artifact, value=replace(value, host=host), host=host)


def _by_lines(artifact: Artifact, report: Report, hosts: Hosts) -> Artifact:
    """Return a file with the host in front of each line."""
    names = {item.host: hosts.match_host(item.host) for item in report.items if item.host}
    items: list[Item] = [replace(item, host=host) for item in report.items if (host := names.get(item.host or ""))]
    if not items:
        return _reject_host(artifact, names, hosts)
    hosts_named = {host for host in names.values() if host}
    return replace(
        artifact, value=Report(report.name, tuple(items)), host=hosts_named.pop() if len(hosts_named) == 1 else None
    )


def _reject_host(artifact: Artifact, names: Iterable[str | None], hosts: Hosts) -> Artifact:
    about, hosts_in_log = (", ".join(list(map(str, some))[:_MAX_NAMES]) for some in (names, hosts.names))
    return set_aside(artifact, f"about host {about}, which is not in the log ({hosts_in_log or 'no host'})")


def set_aside(artifact: Artifact, why: str) -> Artifact:
    """Return a file with the reason why it is not used."""
    return replace(artifact, value=None, problem=why)


def foreign(path: str) -> str | None:
    """Return the host after which the folder of a file is named, below ``hosts``."""
    parts: Sequence[str] = PurePath(path).parts
    places = [place for place, part in enumerate(parts[:-2]) if part == _FOLDER]
    return parts[places[-1] + 1] if places else None
