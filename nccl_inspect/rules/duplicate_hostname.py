"""Two machines have the same host name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from operator import eq

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import first_lines, ranks_in
from nccl_inspect.judging.networks.interfaces import Interface, listed_interfaces
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Selection
from nccl_inspect.util.wording import listed

_FAR, _NEAR = 10_000, 2_000
"""Distances between pids of two machines, and of one."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find a host name whose processes have different addresses on the same interface.

    NCCL identifies machines by host name and, from 2.5 on, boot id. The log shows only the name.
    """
    unshared, by_host = _find_unshared(facts), _find_addresses(facts)
    for host in facts.hosts():
        used = next((list(found.values()) for found in by_host.get(host, {}).values() if len(found) > 1), [])
        notices = [interface.notice for interface in used]
        addresses = listed(interface.address for interface in used)
        named = {"host": host, "number": len(used), "addresses": addresses}
        hit = Hit([], named, ranks=ranks_in(notices), hosts=[host], evidence=first_evidence(notices[:2]))
        if not facts.job.paths and unshared and (used or _are_pids_apart(facts, host)):
            lines = first_evidence([*notices[:2], *unshared])
            yield replace(hit, known=("not shared",), ranks=ranks_in([*notices, *unshared]), evidence=lines)
            return
        if not used:
            continue
        if not facts.job.paths:
            yield replace(hit, known=("unconnected",))
            return
        paths = _find_paths(facts, used)
        local = paths.where(lambda kind: kind.transport in ("P2P", "SHM"))
        if not paths or (local and not facts.job.failed and not unshared):
            continue  # they share memory: containers or addresses of one machine
        lines = [*first_evidence([*notices[:2], *unshared[:1]]), *first_lines(local or paths)[:2]]
        if local:  # the others are counted as paths within a host
            hit = replace(hit, known=("collision",), paths=local, open_paths=paths.without(local))
        yield replace(hit if local else replace(hit, open_paths=paths), evidence=lines)
        return


def _find_addresses(facts: Facts) -> dict[str, dict[str, dict[str, Interface]]]:
    """Return the interfaces in use, by host, name and address."""
    by_host: dict[str, dict[str, dict[str, Interface]]] = {}
    for one in listed_interfaces(facts):
        if one.address and not one.is_of_one_machine and not one.is_loopback:
            for host in one.notice.hosts:
                by_host.setdefault(host, {}).setdefault(one.name, {}).setdefault(one.address, one)
    return by_host


def _find_paths(facts: Facts, used: list[Interface]) -> Selection:
    """Return the paths within that host name between ranks with different addresses."""
    address = {rank: index for index, interface in enumerate(used) for rank in interface.notice.ranks}
    near = facts.job.paths.only(("src_host", "dst_host"), eq)
    return near.only(
        ("src", "dst"), lambda src, dst: src in address and dst in address and address[src] != address[dst]
    )


def _find_unshared(facts: Facts) -> list[Notice]:
    """Return failures to share memory; a segment that could not be created has other causes."""
    attaching = [notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") != "creating"]
    return [*attaching, *facts.notices("nccl/shm-register-failed-old", "nccl/p2p-ipc-handle-failed")]


def _are_pids_apart(facts: Facts, host: str) -> bool:
    """Whether the processes of a host fall into two groups of pids that are far from each other.

    A launcher starts the ranks of a machine one after another: two such groups are hardly on one machine.
    """
    pids = sorted({last.process.pid for last in facts.job.last_lines if last.process.host == host})
    gaps = [(later - pid, later) for pid, later in pairwise(pids)]
    if not gaps:
        return False
    widest, begin = max(gaps)
    groups = [pid for pid in pids if pid < begin], [pid for pid in pids if pid >= begin]
    return widest > _FAR and all(group[-1] - group[0] < _NEAR for group in groups)
