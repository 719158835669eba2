"""nccl-tests measured far less bandwidth than the paths of the job provide."""

from nccl_inspect import platforms
from nccl_inspect.event.types import NcclTestResult
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.hardware.machine_type import gpu_names
from nccl_inspect.judging.impact import Rate, compared, estimate, nic, p2p
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.model.job import PathKind
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count

RULE = Rule(
    name="bandwidth-low",
    category="topology",
    severity="warning",
    title="nccl-tests measured far less bandwidth than the paths of the job provide",
    shows=("slow",),
)
_SHARE = 4
"""Far below: less than this fraction of the lowest published figure."""
_MIN_BYTES = 64 << 20
_MIN_BYTES_OF_RANK = 16 << 20
"""Latency dominates smaller messages, the more so the more ranks there are."""
_TESTS = ("all_reduce_perf", "reduce_scatter_perf")
"""Prefixes: builds with MPI are often called all_reduce_perf_mpi."""


def judge(facts: Facts) -> Results:
    """Compare the best large all-reduce or reduce-scatter with the slowest kind of path, where its speed is known."""
    best = max(_large_rows(facts), key=_bus_bandwidth, default=None) if _is_single_test(facts) else None
    expected = _expected_rate(facts) if best else None
    if best is None or expected is None or _bus_bandwidth(best) * _SHARE >= expected.low:
        return
    paths = facts.job.paths
    nvlink, network = (bool(facts.paths(transport=transport)) for transport in ("P2P", "NET"))
    size = getattr(best.event, "size", 0) >> 20
    suspects = [
        "another program on the same GPUs or links",
        *(["a NIC, cable or switch port that is slow or drops packets"] if network else []),
        *(["NVLinks that are down, so that P2P runs over PCIe"] if nvlink else []),
        "settings that leave few channels",
        "GPUs throttled by heat or power limits",
    ]
    yield RULE.finding(
        f"nccl-tests measured at most {_bus_bandwidth(best):g} GB/s bus bandwidth for large messages (here {size} "
        f"MiB); the slowest of the job's paths provides {expected.low:g} or more",
        cause="unknown from this log: the connections are as expected, but data moves slowly over them. Suspects, most "
        f"likely first: {'; '.join(suspects)}",
        impact=estimate(f"{_shortfall(_bus_bandwidth(best), expected)} than such paths provide", expected),
        fix=[
            "nvidia-smi; nvidia-smi -q -d PERFORMANCE   # on each host, during the test: other programs? low clocks?",
            *(["ibstat; rdma statistic   # on each host: port rates as expected? retransmissions?"] if network else []),
            *(
                ["nvidia-smi nvlink -s; nvidia-smi topo -m   # all links up, and NV between all pairs?"]
                if nvlink
                else []
            ),
            "env | grep NCCL_   # on each host: does a setting limit channels, protocol or algorithm?",
            "all_reduce_perf -b 1G -e 4G -f 2 -g <GPUs>   # on each host alone: which one is slow?"
            if network
            else "CUDA_VISIBLE_DEVICES=0,1   # and again with -g 2, pair by pair: which GPU is slow?",
        ],
        confidence="likely",
        ranks=facts.job.ranks_seen,
        hosts=facts.hosts(),
        evidence=[*first_evidence([best]), *first_evidence(facts.with_role("rank-list"))[:1], *first_lines(paths)[:1]],
        open_paths=paths,
    )


def _is_single_test(facts: Facts) -> bool:
    """Whether the log has exactly one run of nccl-tests, of this job, and its test can be judged.

    A row does not name its test: sendrecv_perf, which connects pairs of ranks, also prints an operation and root -1.
    """
    starts, rank_list = facts.notices("nccl-tests/test-starting"), facts.with_role("rank-list")
    if not starts or not rank_list or any(notice.count > 1 for notice in (*starts, *rank_list)):
        return False
    pids = {value(notice, "pid") for notice in rank_list}
    return (
        len(starts) == 1
        and str(value(starts[0], "program")).startswith(_TESTS)
        and len({value(notice, "rank") for notice in rank_list}) == len(rank_list)
        and all(last.process.pid in pids for last in facts.job.last_lines if last.ranks)
    )


def _large_rows(facts: Facts) -> list[Notice]:
    """Rows of all-reduce and reduce-scatter, whose bus bandwidth is that of the slowest path for any number of ranks.

    Other calls look like all-to-all, which sends everything over the slowest path. Without warm-up the time includes
    the set-up of connections.
    """
    if any(value(options, "warmup") == 0 for options in facts.notices("nccl-tests/test-options")):
        return []
    least = max(_MIN_BYTES, _MIN_BYTES_OF_RANK * _rank_count(facts))
    (start,) = first_evidence(facts.notices("nccl-tests/test-starting"))
    connected = list(first_lines(facts.job.paths))
    if any(is_before(line, start) for line in connected):
        return []  # connections of a job before the test
    return [
        row
        for row in facts.with_event(NcclTestResult)
        if isinstance(row.event, NcclTestResult)
        and (row.event.size >= least and row.event.redop != "none" and row.event.root < 0)
        and _bus_bandwidth(row) > 0
        and not any(is_before(row.evidence[0], line) for line in connected)
    ]


def _bus_bandwidth(row: Notice) -> float:
    """The better of out-of-place and in-place."""
    return max(getattr(row.event, "busbw", None) or 0.0, getattr(row.event, "in_place_busbw", None) or 0.0)


def _rank_count(facts: Facts) -> int:
    sizes = [comm.nranks for comm in facts.job.communicators]
    return max([*sizes, facts.job.world_size or 0, len(facts.with_role("rank-list"))])


def _expected_rate(facts: Facts) -> Rate | None:
    """What the slowest kind of path provides at least; None unless it is known for all of them."""
    nodes = {value(notice, "node") for notice in facts.with_role("rank-list")}
    several = facts.spans_hosts() or len(nodes) > 1
    if several and not facts.paths("inter"):
        return None  # the log does not show what connects the hosts
    rates = [_rate(facts, kind) for kind in facts.paths().kinds]
    figures = [rate for rate in rates if rate]
    return min(figures) if figures and len(figures) == len(rates) else None


def _rate(facts: Facts, path: PathKind) -> Rate | None:
    machine = facts.platform
    if path.transport == "P2P" and facts.link(path) != "PCIe":
        platform = _gpu_platform(facts)
        return p2p(platform) if platform and platform.nvlink else None
    if path.transport == "NET" and path.scope == "inter" and path.gdr is True and machine and machine.nic_gbps:
        per_nic, number = nic(machine.nic_gbps), _nics_per_host(facts)
        return Rate(
            per_nic.low * number,
            per_nic.high * number,
            f"{count(number, 'NIC')} of {machine.nic_gbps} Gb/s",
            per_nic.link,
        )
    return None


def _nics_per_host(facts: Facts) -> int:
    """The NICs that each host certainly has for the test: all of a machine whose GPUs all take part, else one."""
    machine = facts.platform
    largest = max((comm.nranks for comm in facts.job.communicators), default=0)
    whole = [comm.local_ranks for comm in facts.job.communicators if comm.nranks == largest]
    return machine.nics if machine and machine.nics and whole and set(whole) == {machine.gpus} else 1


def _gpu_platform(facts: Facts) -> Platform | None:
    """The platform, first by the names of the GPUs: these also show MIG and virtual GPUs."""
    names = gpu_names(facts.job)
    return platforms.of_gpus(names) if names else facts.platform


def _shortfall(measured: float, expected: Rate) -> str:
    """Only the lower end of a rate counts: two hosts may exceed the line rate of their NICs (NVLS, trees)."""
    return compared(expected._replace(low=measured, high=measured), expected._replace(high=expected.low))
