"""A benchmark measured less bandwidth than the hardware of the job provides."""

from nccl_inspect.bandwidth import VERY_LOW, measure, words
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.impact import Estimate, cited
from nccl_inspect.model.measured import Measured

RULE = Rule(
    name="bandwidth-low",
    category="topology",
    severity="warning",
    title="A benchmark measured less bandwidth than the hardware of the job provides",
    shows=("slow",),
)
_SUSPECTS = {
    "network": (
        "a NIC, cable or switch port that is slow or drops packets",
        "NICs that are not used (NCCL_IB_HCA, pods without all devices)",
        "data through the memory of the host (no GPUDirect RDMA)",
        "congestion between racks",
    ),
    "nvlink": ("NVLinks that are down, so that P2P runs over PCIe", "NVLS that is not used, where it was expected"),
    "pcie": ("P2P through the host bridge (IOMMU, ACS) or through memory", "a GPU or slot with fewer PCIe lanes"),
}
_COMMON = (
    "another program on the same GPUs or links",
    "settings that leave few channels or force a protocol or algorithm",
    "GPUs throttled by heat or power limits",
)
_STEPS = {
    "network": "ibstat; rdma statistic   # on each host: port rates as expected? retransmissions?",
    "nvlink": "nvidia-smi nvlink -s; nvidia-smi topo -m   # all links up, and NV between all pairs?",
    "pcie": "nvidia-smi topo -p2p r; nvidia-smi -q -d PCI   # P2P between all pairs? all lanes?",
}
_ALONE = {
    "network": "all_reduce_perf -b 1G -e 4G -f 2 -g <GPUs>   # on each host alone: which one is slow?",
    "nvlink": "CUDA_VISIBLE_DEVICES=0,1   # and again with -g 2, pair by pair: which GPU is slow?",
    "pcie": "CUDA_VISIBLE_DEVICES=0,1   # and again with -g 2, pair by pair: which GPU is slow?",
}


def judge(facts: Facts) -> Results:
    """Judge the operation that is furthest behind what is expected of it; others are in the same state or better."""
    low = [entry for entry in measure(facts) if entry.is_below]
    worst = min(low, key=_ratio, default=None)
    if worst is None or worst.line is None:
        return
    others = [words.of_what(entry) for entry in low if entry is not worst]
    paths, times = facts.job.paths, 1 / max(_ratio(worst), 1e-3)
    yield RULE.finding(
        words.sentence(worst)
        + (f"; likewise {others[0]}" if len(others) == 1 else f"; likewise {len(others)} others" if others else ""),
        cause=f"what limits is the {_PARTS[worst.part]}. Suspects, if no other finding explains it, likely ones first: "
        + "; ".join((*_SUSPECTS[worst.part], *_COMMON)),
        impact=Estimate(
            f"{times:{'.2g' if times < 100 else '.0f'}} times less bandwidth than the least that such hardware gives",
            (cited(f"{words.band(worst)} GB/s", worst.what, worst.expected_source or ""),),
        ),
        fix=[
            "nvidia-smi; nvidia-smi -q -d PERFORMANCE   # on each host, during the test: other programs? low clocks?",
            _STEPS[worst.part],
            "env | grep NCCL_   # on each host: does a setting limit channels, NICs, protocol or algorithm?",
            _ALONE[worst.part],
        ],
        severity="error" if _ratio(worst) < VERY_LOW else "warning",
        confidence="likely",
        ranks=facts.job.ranks_seen,
        hosts=worst.hosts or facts.hosts(),
        evidence=[worst.line, *first_lines(paths)[:1]],
        open_paths=paths,
    )


_PARTS = {"network": "network between nodes", "nvlink": "NVLink of a node", "pcie": "PCIe of a node"}


def _ratio(entry: Measured) -> float:
    return 1.0 if entry.ratio is None else entry.ratio
