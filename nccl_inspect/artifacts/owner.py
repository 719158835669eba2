"""Which host of the job a file is about, by its name: ``HOST.ibstat``, ``ibstat-HOST.txt``, ``hosts/HOST/lsmod``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath

from nccl_inspect.artifacts.identity import Identity, short, some
from nccl_inspect.artifacts.machine import Item, Report
from nccl_inspect.event_types import NetDevices
from nccl_inspect.model import shown
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job
from nccl_inspect.topology import Topology, bus_number

_FOLDER = "hosts"
"""What lies in a folder of this name lies in folders that are named after hosts."""
_ABOVE = 2
"""Folders above a file that may be named after its host."""
_MAX_NAMES = 3
_CARDS = ("port", "gid", "counter")
"""Parts of a machine that are named after the card."""


def joined(artifacts: Iterable[Artifact], job: Job) -> list[Artifact]:
    """The files with the hosts that they are about; one about a host that the job does not have is not used.

    Args:
        artifacts: as they were read.
        job: whose hosts they may be about.
    """
    hosts = [host.name for host in job.hosts]
    parts = _Parts(job)
    return [_joined(artifact, hosts, shown.most_gpus(job), parts) for artifact in artifacts]


class _Parts:
    """What the log names of each host's machine.

    Args:
        job: by its log.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    @cached_property
    def gpus(self) -> dict[str, set[str]]:
        """The bus ids of the GPUs that its ranks use."""
        found: dict[str, set[str]] = {}
        for host in self._job.hosts:
            own = [gpu.bus_id for rank in host.ranks if (gpu := self._job.gpus.get(rank)) and gpu.bus_id]
            found[host.name] = set(own)
        return found

    @cached_property
    def nics(self) -> dict[str, set[str]]:
        """The InfiniBand and RoCE cards that NCCL lists."""
        found: dict[str, set[str]] = {}
        for notice in self._job.notices:
            if isinstance(notice.event, NetDevices) and notice.event.net == "IB":
                names = {part for device in notice.event.devices for part in "+".join(map(str, device[1:2])).split("+")}
                for host in notice.hosts:
                    found.setdefault(host, set()).update(names - {""})
        return found


def _other_machine(report: Report, host: str, parts: _Parts) -> str | None:
    """What shows that a file is about another machine: none of its GPUs, or of its cards, is one of the log."""
    buses = {str(bus) for item in report.items if (bus := item.values.get("bus_id"))}
    cards = {item.name for item in report.items if item.part in _CARDS and item.name}
    own, mine = parts.gpus.get(host, set()), parts.nics.get(host, set())
    if buses and own and not {bus_number(bus) for bus in buses} & {bus_number(bus) for bus in own}:
        return f"its GPUs ({some(sorted(buses))}) are not those of the log ({some(sorted(own))})"
    if cards and mine and not cards & mine:
        return f"its NICs ({some(sorted(cards))}) are not those of the log ({some(sorted(mine))})"
    return None


def identity(artifact: Artifact, hosts: Iterable[str]) -> Identity | None:
    """The hosts that a file about machines names; None for all others.

    Args:
        artifact: any.
        hosts: of the jobs that it may be about: where all have one, it is about that one.
    """
    if not isinstance(artifact.value, Report | Topology):
        return None
    known = list(hosts)
    named = {item.host for item in artifact.value.items if item.host} if isinstance(artifact.value, Report) else set()
    if not named:
        host = of_path(artifact.name, known) or foreign(artifact.name) or (known[0] if len(known) == 1 else None)
        named = {host} if host else set()
    return Identity(hosts=frozenset(map(short, named)), are_all_hosts=bool(named), is_of_many=True)


def _joined(artifact: Artifact, hosts: Sequence[str], gpus: int, parts: _Parts) -> Artifact:
    value = artifact.value
    if not isinstance(value, Report | Topology):
        return artifact
    if isinstance(value, Report) and any(item.host for item in value.items):
        return _by_lines(artifact, value, hosts)
    host = of_path(artifact.name, hosts)
    if host is None and (other := foreign(artifact.name)):
        return _unused(artifact, [other], hosts)
    host = host or (hosts[0] if len(hosts) == 1 else None)
    if isinstance(value, Report) and host and (other := _other_machine(value, host, parts)):
        return replace(artifact, value=None, problem=other)
    if isinstance(value, Report):
        value = replace(value, items=tuple(replace(item, host=host) for item in value.items))
        return replace(artifact, value=value, host=host)
    if 0 < value.gpus < gpus:
        return replace(artifact, value=None, problem=f"it has {value.gpus} GPUs, and the log shows {gpus} on a host")
    return replace(artifact, value=replace(value, host=host), host=host)


def _by_lines(artifact: Artifact, report: Report, hosts: Sequence[str]) -> Artifact:
    """A file with the host in front of each line."""
    names = {item.host: same(item.host, hosts) for item in report.items if item.host}
    items: list[Item] = [replace(item, host=host) for item in report.items if (host := names.get(item.host or ""))]
    if not items:
        return _unused(artifact, names, hosts)
    known = {host for host in names.values() if host}
    return replace(artifact, value=Report(report.name, tuple(items)), host=known.pop() if len(known) == 1 else None)


def _unused(artifact: Artifact, names: Iterable[str | None], hosts: Sequence[str]) -> Artifact:
    about, known = (", ".join(list(map(str, some))[:_MAX_NAMES]) for some in (names, hosts))
    return replace(artifact, value=None, problem=f"about host {about}, which is not in the log ({known or 'no host'})")


def of_path(path: str, hosts: Iterable[str]) -> str | None:
    """The host that a path names; None where it names none.

    Args:
        path: of a file: its own name may hold that of the host, a folder above it is named so.
        hosts: of the job.
    """
    known = sorted((host for host in hosts if host), key=len, reverse=True)
    parts = PurePath(path).parts[::-1]
    if (folder := foreign(path)) and (host := same(folder, known)):
        return host
    within = next((host for host in known if parts and _is_named(parts[0], host)), None)
    return within or next((host for part in parts[1 : _ABOVE + 1] if (host := same(part, known))), None)


def same(name: str, hosts: Iterable[str]) -> str | None:
    """The host of that name, with or without its domain."""
    return next((host for host in hosts if _short(host).lower() == _short(name).lower()), None)


def foreign(path: str) -> str | None:
    """The host after which the folder of a file is named, below ``hosts``."""
    parts: Sequence[str] = PurePath(path).parts
    places = [place for place, part in enumerate(parts[:-2]) if part == _FOLDER]
    return parts[places[-1] + 1] if places else None


def _is_named(part: str, host: str) -> bool:
    """Whether a part of a path is the name of a host or holds it, and not that of another one."""
    names = {host, _short(host)}
    return any(_whole(name).search(part) for name in names)


def _whole(name: str) -> re.Pattern[str]:
    """``node-1`` in ``node-1.ibstat`` and ``ibstat_node-1``, not in ``node-12`` and ``gpu-node-1-2``."""
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9]|[-_]\d)", re.IGNORECASE)


def _short(host: str) -> str:
    """A host without its domain; an address is no name with a domain."""
    return host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0]
