"""The order of ranks and machines: topologies, rings, groups and host names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from operator import eq

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.check import Evidence, Facts, Hit, first_evidence, value
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.facts import ranks_in
from nccl_inspect.judging.impact import MEASURED, Estimate, cite, compare_rates, current_rate, p2p
from nccl_inspect.judging.networks import Interface, listed_interfaces
from nccl_inspect.judging.watchdog import Wait, communicator_of, group_of, job_rank
from nccl_inspect.model.communicators.rings_and_trees import crossings, is_closed
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import list_words

_FAR, _NEAR = 10_000, 2_000  # distances between pids of two machines, and of one


def duplicate_hostname(facts: Facts) -> Iterator[Hit]:
    """Find a host name whose processes have different addresses on the same interface.

    NCCL identifies machines by host name and, from 2.5 on, boot id. The log shows only the name.
    """
    unshared = facts.notices("nccl/shm-attach-failed", "nccl/shm-register-failed-old", "nccl/p2p-ipc-handle-failed")
    # The interfaces in use, by host, name and address.
    by_host: dict[str, dict[str, dict[str, Interface]]] = {}
    for one in listed_interfaces(facts):
        for host in one.notice.hosts if one.address and not (one.is_of_one_machine or one.is_loopback) else ():
            by_host.setdefault(host, {}).setdefault(one.name, {}).setdefault(one.address, one)
    for host in facts.hosts():
        used = next((list(found.values()) for found in by_host.get(host, {}).values() if len(found) > 1), [])
        notices = [interface.notice for interface in used]
        addresses = list_words(interface.address for interface in used)
        named = {"host": host, "number": len(used), "addresses": addresses}
        hit = Hit([], named, ranks=ranks_in(notices), hosts=[host], evidence=notices[:2])
        if not facts.job.paths and unshared and (used or _are_pids_apart(facts, host)):
            ranks = ranks_in([*notices, *unshared])
            yield replace(hit, named=named | {"not shared": True}, ranks=ranks, evidence=[*notices[:2], *unshared])
            return
        if not used:
            continue
        if not facts.job.paths:
            yield replace(hit, named=named | {"unconnected": True})
            return
        address = {rank: index for index, interface in enumerate(used) for rank in interface.notice.ranks}
        paths = facts.job.paths.filter_values(("src_host", "dst_host"), eq).filter_values(
            ("src", "dst"), lambda src, dst, of=address: src in of and dst in of and of[src] != of[dst]
        )
        local = paths.where(lambda kind: kind.transport in ("P2P", "SHM"))
        if not paths or (local and not facts.job.failed and not unshared):
            continue  # they share memory: containers or addresses of one machine
        lines = [*first_evidence([*notices[:2], *unshared[:1]]), *(local or paths).first_lines()[:2]]
        if local:  # the others are counted as paths within a host
            hit = replace(hit, named=named | {"collision": True}, paths=local, open_paths=paths.exclude(local))
        yield replace(hit if local else replace(hit, open_paths=paths), evidence=lines)
        return


def _are_pids_apart(facts: Facts, host: str) -> bool:
    """Return whether the processes of a host fall into two groups of pids that are far from each other.

    A launcher starts the ranks of a machine one after another: two such groups are hardly on one machine.
    """
    pids = sorted({last.process.pid for last in facts.job.last_lines if last.process.host == host})
    gaps = [(later - pid, later) for pid, later in pairwise(pids)]
    if not gaps:
        return False
    widest, begin = max(gaps)
    groups = [pid for pid in pids if pid < begin], [pid for pid in pids if pid >= begin]
    return widest > _FAR and all(group[-1] - group[0] < _NEAR for group in groups)


def one_gpu_per_pod(facts: Facts) -> Iterator[Hit]:
    """Find communicators with as many nodes as ranks whose paths all use the network.

    NCCL identifies hosts by name and boot id, so pods of one machine are separate nodes.
    """
    sizes = ((comm, comm.nnodes) for comm in facts.job.communicators if comm.nranks > 1)
    # Before 2.20 NCCL does not print the number of nodes.
    nnodes = ((comm, len(set(filter(is_named, comm.hosts))) if size is None else size) for comm, size in sizes)
    alone = [comm for comm, size in nnodes if size == comm.nranks]
    names = {comm.id for comm in alone}
    paths = facts.inter_host_net_paths().filter_values(("communicators",), lambda comms: names.intersection(comms))
    nodes = list(workloads.nodes(facts).values())
    is_apart = len(nodes) > 1 and len(set(nodes)) == len(nodes)  # by the manifest
    # With ranks that share a host, a communicator with one rank per host is just a data-parallel group.
    is_shared = any(len(host.ranks) > 1 or host.gpus > 1 for host in facts.job.hosts)
    is_shared |= any((comm.local_ranks or 0) > 1 for comm in facts.job.communicators)
    bus_ids = [gpu.bus_id for gpu in facts.job.gpus.values() if gpu.bus_id]
    are_machines = len(bus_ids) > 1 and len(set(bus_ids)) == 1  # no two GPUs of one have the same PCI address
    if not paths or facts.paths("intra") or is_shared or are_machines or is_apart:
        return
    machines = (workloads.machine(facts, pod) for pod in workloads.pods(facts))
    machine = facts.platform or next(filter(None, machines), None)
    shared = next((node for node in nodes if nodes.count(node) > 1), None)
    # The highest index of a GPU: above 0, a machine has several, although each host shows only one GPU. With one bus
    # id, all hosts may use the same GPU of a machine.
    ends = {*facts.job.paths.distinct("src", "src_gpu"), *facts.job.paths.distinct("dst", "dst_gpu")}
    is_known = not shared and len(bus_ids) > 1
    index = max((facts.gpu(*end).nvml_dev or 0 for end in ends if is_known), default=0)
    gpus = machine.gpus if machine else None
    if gpus is None and not shared and not index:
        yield Hit(named={"unknown": True})
    elif gpus != 1:
        net = current_rate(paths, machine)
        fast = p2p(machine) if machine and machine.nvlink else None
        cost = cite("39:32 against 16:21 min", "4 GPUs of p4d.24xlarge in four pods and in one", MEASURED)
        members = {rank for comm in alone for rank in comm.known_ranks}
        named: dict[str, object] = {
            "nranks": alone[0].nranks,
            "nnodes": alone[0].nnodes or 0,
            "shared": shared,
            "machine": machine.name if machine else "the machine",
            "nvlink": machine and machine.nvlink,
            "index": index,
            "gpus": gpus or "several",
            "net": net,
            "fast": fast,
            "less": compare_rates(net, fast) if net and fast else "",
            "cost": Estimate("", (cost,)),  # for a whole job: 2.4 times the time
        }
        lines = [*(comm.evidence[0] for comm in alone[:2]), *paths.first_lines()[:3]]
        yield Hit([], named, members or paths.ends(), None, lines, paths)


def ring_crosses_nodes_too_often(facts: Facts) -> Iterator[Hit]:
    """Find complete rings whose ranks all have a known host, if the hosts are NCCL's nodes."""
    if facts.job.rank_space != "global" or any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # ranks of several numberings have no host; nodes connected by NVLink are one node to NCCL
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in facts.job.communicators:
        ranks = comm.known_ranks
        # A rank whose line in the communicator was lost has a host by its connections.
        least = len({*comm.hosts, *(host_of[rank] for rank in ranks if rank in host_of)})
        if comm.nnodes not in (None, least) or not 1 < least < comm.nranks or not all(map(is_named, comm.hosts)):
            continue
        whole = ((place, ring) for place, ring in enumerate(comm.rings) if is_closed(ring, comm.nranks))
        rings = [(crossings(ring, host_of) or 0, place) for place, ring in whole]  # NCCL cuts long lines
        worst, place = max(rings, key=lambda ring: ring[0], default=(0, 0))
        if worst > least:
            crossing = facts.paths_of(comm).where(lambda kind: kind.scope == "inter")
            named = {
                "bad": sum(number > least for number, _ in rings),
                "rings": rings,
                "comm": comm.id,
                "worst": worst,
                "least": least,
                "left": f"{least / worst:.0%}",
            }
            lines = [*comm.layout.ring(place), *comm.evidence[:2], *crossing.first_lines()[:2]]
            yield Hit([], named, ranks, comm.hosts, lines)
            return  # other communicators of the job have the same order


def rings_disagree(facts: Facts) -> Iterator[Hit]:
    """Find the first communicator whose ranks contradict each other; if it worked, the log is at fault."""
    odd = [comm for comm in facts.job.communicators if comm.inconsistent]
    for comm in odd[:1]:
        first, *more = comm.inconsistent
        works = comm.state in ("connected", "destroyed") and not comm.unconnected
        named = {"comm": comm.id, "contradiction": first, "more": more, "also": odd[1:], "worked": works}
        lines = [*comm.layout.contradiction()[:3], *comm.evidence[:2]]
        yield Hit([], named, comm.known_ranks, comm.hosts, lines)


_IS_TP = compile_later(r"(?i)\((?!.*_and_)(?:.*[_-])?(?:tp|tensor)[_)-]")
"""The description of a process group: ``mesh_tp``, ``TENSOR_MODEL_PARALLEL_GROUP``; not of a joint group."""


def tp_group_spans_nodes(facts: Facts) -> Iterator[Hit]:
    """Find groups that a framework's size or PyTorch's name for them shows to be tensor-parallel.

    A group with more ranks than any node has is certain.
    """
    if any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # NVLink connects these nodes
    sizes = facts.with_role("parallel-sizes")
    size, *others = {int(value(notice, "tp") or 0) for notice in sizes} or {0}
    local, world = None, facts.job.world_size or 0
    for comm in (one for one in facts.job.communicators if one.id == "world"):
        local = comm.local_ranks
        if local is None and len(comm.started) == comm.nranks:  # else ranks may be missing from the log
            local = max(len(host.ranks) for host in facts.job.hosts)
    if not others and local is not None and facts.spans_hosts() and local < size <= world:
        groups = [comm for comm in facts.job.communicators if comm.nranks == size and len(comm.hosts) > 1]
        yield _hit(facts, groups, {"size": size, "local": local}, first_evidence(sizes))
        return
    comms, lines = _by_name(facts)
    spanning = [comm for comm in comms if len(comm.hosts) > 1]
    groups = [comm for comm in facts.job.communicators if 1 < comm.nranks < world]
    several = any(len(host.ranks) > 1 for host in facts.job.hosts)
    if spanning:
        first = spanning[0]
        yield _hit(facts, spanning, {"comm": first.id, "nranks": first.nranks, "nhosts": len(first.hosts)}, lines)
    elif not comms and not sizes and groups and several and all(len(comm.hosts) > 1 for comm in groups):
        yield Hit(named={"unknown": True})


def _hit(facts: Facts, comms: list[CommunicatorInfo], named: dict[str, object], lines: list[Evidence]) -> Hit:
    names = {comm.id for comm in comms}
    paths = facts.inter_host_net_paths().filter_values(("communicators",), lambda comms: names.intersection(comms))
    ranks = {rank for comm in comms for rank in comm.known_ranks}
    hosts = {host for comm in comms for host in comm.hosts} or set(facts.hosts())
    return Hit([], named, ranks, hosts, [*lines[:2], *paths.first_lines()[:2]], paths)


def _by_name(facts: Facts) -> tuple[list[CommunicatorInfo], list[Evidence]]:
    """Return the communicators of process groups with a tensor-parallel name, with lines that name them."""
    members: dict[str, list[Wait]] = {}
    for notice in facts.job.notices:
        event = notice.event
        group = group_of(notice.message) if event and event.dialect == "torch" else None
        if group is not None and _IS_TP.search(group):
            member, rank = value(notice, "rank"), value(notice, "global_rank")
            if isinstance(event, CollectiveTimeout):
                member, rank = event.rank, event.global_rank
            place = Wait(group, job_rank(rank, member, group), member, 0, "", None, 0, notice)
            members.setdefault(group, []).append(place)
    groups = [(communicator_of(facts, group, places), places[0]) for group, places in members.items()]
    matched = [(comm, place) for comm, place in groups if comm is not None]
    return [comm for comm, _ in matched], [place.notice.evidence[0] for _, place in matched]
