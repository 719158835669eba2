"""Each rank has its own host (pod) although the machines have several GPUs."""

from __future__ import annotations

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.facts import first_lines, global_ranks, ranks_of_paths
from nccl_inspect.judging.impact import MEASURED, Estimate, cited, compared, in_use, p2p
from nccl_inspect.judging.remedies import GPUS_IN_POD
from nccl_inspect.model.job import CommunicatorInfo, Selection
from nccl_inspect.platforms import Platform
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="one-gpu-per-pod",
    category="topology",
    title="One GPU per pod: ranks of one machine use the network and NVLink is idle",
    may_cause=("group-spans-nodes", "slow"),
    shows=("one-gpu-pods",),
    supersedes=("few-channels",),
)

_FOUR_PODS = cited("39:32 against 16:21 min", "4 GPUs of p4d.24xlarge in four pods and in one", MEASURED)
"""The cost for a whole job: 2.4 times the time."""


@frozen
class _Pods(Frozen):
    """Ranks with a host each, which may be pods of one machine."""

    comms: list[CommunicatorInfo]
    paths: Selection
    machine: Platform | None
    shared_node: str | None
    """A node that the manifest has several of them on."""
    hints: str
    """What suggests machines with several GPUs, in words."""

    @property
    def ranks(self) -> set[int]:
        """All ranks of their communicators, else those of the paths."""
        members = {rank for comm in self.comms for rank in global_ranks(comm, range(comm.nranks))}
        return members or ranks_of_paths(self.paths)


def judge(facts: Facts) -> Results:
    """Judge communicators with as many nodes as ranks whose paths all use the network.

    NCCL identifies hosts by name and boot id, so pods of one machine are separate nodes.
    """
    pods = _pods(facts)
    if pods is None:
        return
    gpus = pods.machine.gpus if pods.machine else None
    if gpus is None and not pods.hints:
        yield RULE.undecided(
            "every rank has its own host; the log does not show whether these are pods of one machine with several "
            "GPUs",
            Needs(platform=True, others=("kubectl get pod -o wide shows which pods share a node",)),
        )
    elif gpus != 1:
        yield _finding(pods)


def _pods(facts: Facts) -> _Pods | None:
    """The ranks, unless something shows that each has a machine of its own, or that some share a host."""
    alone = [comm for comm in facts.job.communicators if comm.nranks > 1 and _is_spread(comm)]
    names = {comm.id for comm in alone}
    paths = facts.inter_host_net_paths().only(("communicators",), lambda comms: names.intersection(comms))
    if not paths or facts.paths("intra") or _shares_a_host(facts) or _are_machines(facts):
        return None
    nodes = list(workloads.nodes(facts).values())
    if len(nodes) > 1 and len(set(nodes)) == len(nodes):
        return None  # the manifest has each pod on a node of its own
    of_pods = filter(None, (workloads.machine(facts, pod) for pod in workloads.pods(facts)))
    shared = next((node for node in nodes if nodes.count(node) > 1), None)
    hints = f"the manifest has several of these pods on {shared}" if shared else _hints(facts)
    return _Pods(alone, paths, facts.platform or next(of_pods, None), shared, hints)


def _finding(pods: _Pods) -> Finding:
    first, machine = pods.comms[0], pods.machine
    return RULE.finding(
        f"every rank has its own host ({count(first.nranks, 'rank')}, {count(first.nnodes or 0, 'node')}): all "
        f"{count(len(pods.paths), 'path')} use {listed(kind.detail for kind in pods.paths.kinds)}",
        cause=_cause(pods),
        impact=_impact(pods),
        fix=[
            "kubectl get pod -o wide   # first: do the pods share a node?",
            GPUS_IN_POD,
            "torchrun --nnodes=<nodes> --nproc_per_node=gpu <script>   # trainer API: numNodes: <nodes>, "
            "numProcPerNode: <GPUs of the node>",
        ],
        severity="error" if machine and machine.nvlink else "warning",
        confidence="certain" if pods.shared_node else "likely",
        ranks=pods.ranks,
        evidence=[*(comm.evidence[0] for comm in pods.comms[:2]), *first_lines(pods.paths)[:3]],
        paths=pods.paths,
    )


def _cause(pods: _Pods) -> str:
    machine = pods.machine
    name, gpus = (machine.name, machine.gpus) if machine else ("the machine", None)
    fabric = "connected by NVLink" if machine and machine.nvlink else "that could communicate directly"
    hints = f" ({pods.hints})" if pods.hints else ""
    return f"one GPU per pod; {name} has {gpus or 'several'} GPUs {fabric}, but separate pods cannot use that{hints}"


def _impact(pods: _Pods) -> Estimate:
    """The cost of the network that they use, which need not be the best one of the machine."""
    net = in_use(pods.paths, pods.machine)
    fast = p2p(pods.machine) if pods.machine and pods.machine.nvlink else None
    text = f"about {net} per rank" if net else "all traffic between GPUs of a machine goes through its NICs"
    if fast:
        text = f"NVLink idle: {text}, instead of {fast}" + (f": {compared(net, fast)}" if net else "")
    return Estimate(text, (*(rate.reference for rate in (net, fast) if rate), _FOUR_PODS))


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
