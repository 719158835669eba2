"""Each rank has its own host (pod) although the machines have several GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.facts import first_lines, global_ranks, ranks_of_paths
from nccl_inspect.judging.impact import MEASURED, Estimate, cited, compared, in_use, p2p
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import CommunicatorInfo

_COST = Estimate("", (cited("39:32 against 16:21 min", "4 GPUs of p4d.24xlarge in four pods and in one", MEASURED),))
"""For a whole job: 2.4 times the time."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators with as many nodes as ranks whose paths all use the network.

    NCCL identifies hosts by name and boot id, so pods of one machine are separate nodes.
    """
    alone = [comm for comm in facts.job.communicators if comm.nranks > 1 and _is_spread(comm)]
    names = {comm.id for comm in alone}
    paths = facts.inter_host_net_paths().only(("communicators",), lambda comms: names.intersection(comms))
    nodes = list(workloads.nodes(facts).values())
    is_apart = len(nodes) > 1 and len(set(nodes)) == len(nodes)  # by the manifest
    if not paths or facts.paths("intra") or _shares_a_host(facts) or _are_machines(facts) or is_apart:
        return
    machines = (workloads.machine(facts, pod) for pod in workloads.pods(facts))
    machine = facts.platform or next(filter(None, machines), None)
    shared = next((node for node in nodes if nodes.count(node) > 1), None)
    hints = f"the manifest has several of these pods on {shared}" if shared else _hints(facts)
    gpus = machine.gpus if machine else None
    if gpus is None and not hints:
        yield Hit(named={"unknown": True})
    elif gpus != 1:
        net, fast = in_use(paths, machine), p2p(machine) if machine and machine.nvlink else None
        members = {rank for comm in alone for rank in global_ranks(comm, range(comm.nranks))}
        yield Hit(
            named={
                "nranks": alone[0].nranks,
                "nnodes": alone[0].nnodes or 0,
                "machine": machine.name if machine else "the machine",
                "gpus": gpus or "several",
                "nvlink": machine and machine.nvlink,
                "hints": hints,
                "shared": shared,
                "net": net,
                "fast": fast,
                "less": compared(net, fast) if net and fast else "",
                "cost": _COST,
            },
            ranks=members or ranks_of_paths(paths),
            evidence=[*(comm.evidence[0] for comm in alone[:2]), *first_lines(paths)[:3]],
            paths=paths,
        )


def _shares_a_host(facts: Facts) -> bool:
    """Whether ranks share a host; then a communicator with one rank per host is just a data-parallel group."""
    several = any(len(host.ranks) > 1 or host.gpus > 1 for host in facts.job.hosts)
    return several or any(comm.local_ranks is not None and comm.local_ranks > 1 for comm in facts.job.communicators)


def _are_machines(facts: Facts) -> bool:
    """Whether the GPUs prove that each host is a machine: no two GPUs of one have the same PCI address."""
    bus_ids = _bus_ids(facts)
    return len(bus_ids) > 1 and len(set(bus_ids)) == 1


def _bus_ids(facts: Facts) -> list[str]:
    return [gpu.bus_id for gpu in facts.job.gpus.values() if gpu.bus_id]


def _is_spread(comm: CommunicatorInfo) -> bool:
    if comm.nnodes is not None:
        return comm.nnodes == comm.nranks
    return len(set(filter(is_named, comm.hosts))) == comm.nranks  # before 2.20 NCCL does not print the number of nodes


def _hints(facts: Facts) -> str:
    """Return what suggests machines with several GPUs: device indices above 0 although each host shows only one GPU."""
    if len(_bus_ids(facts)) < 2:
        return ""  # all hosts may use the same GPU of a machine
    ends = {*facts.job.paths.distinct("src", "src_gpu"), *facts.job.paths.distinct("dst", "dst_gpu")}
    indices = [index for end in ends if (index := facts.gpu(*end).nvml_dev) is not None]
    highest = max(indices, default=0)
    return f"a host with one rank has GPU index {highest}" if highest else ""
