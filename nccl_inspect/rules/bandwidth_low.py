"""nccl-tests measured far less than the paths of the job give."""

from collections.abc import Iterator

from nccl_inspect import platforms
from nccl_inspect.event.types import NcclTestResult
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, first_said
from nccl_inspect.judging.hardware.machine_type import gpu_names
from nccl_inspect.judging.impact import Rate, compared, estimate, nic, p2p
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, PathKind
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count

RULE = Rule(
    name="bandwidth-low",
    category="topology",
    severity="warning",
    title="nccl-tests measured far less bandwidth than the paths of the job give",
)
_SHARE = 4
"""Only what is below this part of the lowest figure is far below."""
_MIN_BYTES = 64 << 20
_MIN_BYTES_OF_RANK = 16 << 20
"""Smaller messages are ruled by latency, the more so the more ranks there are."""
_TESTS = ("all_reduce_perf", "reduce_scatter_perf")
"""How their names begin: builds with MPI are often called all_reduce_perf_mpi."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the best large all-reduce or reduce-scatter by the slowest kind of path, where its speed is known."""
    best = max(_large(facts), key=_measured, default=None) if _is_of_test(facts) else None
    worth = _worth(facts) if best else None
    if best is None or worth is None or _measured(best) * _SHARE >= worth.low:
        return
    paths = facts.job.paths
    nvlink, network = (bool(facts.paths(transport=transport)) for transport in ("P2P", "NET"))
    size = getattr(best.event, "size", 0) >> 20
    suspects = [
        "another program on the same GPUs or links",
        *(["a NIC, cable or switch port that is slow or loses packets"] if network else []),
        *(["NVLinks that are down, so that P2P runs over PCIe"] if nvlink else []),
        "settings that leave few channels",
        "GPUs that are held down by heat or power",
    ]
    yield RULE.finding(
        f"nccl-tests measured at most {_measured(best):g} GB/s bus bandwidth for large messages (here {size} MiB); "
        f"the slowest of the job's paths gives {worth.low:g} and more",
        cause="unknown from this log: "
        "the connections are good ones, and data moves slowly over them. Suspects, the most "
        f"likely one first: {'; '.join(suspects)}",
        impact=estimate(f"{_lost(_measured(best), worth)} than such paths give", worth),
        fix=[
            "nvidia-smi; nvidia-smi -q -d PERFORMANCE   # on each host, during the test: other programs, slow clocks?",
            *(["ibstat; rdma statistic   # on each host: rate of each port, retransmissions?"] if network else []),
            *(
                ["nvidia-smi nvlink -s; nvidia-smi topo -m   # all links up, and NV between all pairs?"]
                if nvlink
                else []
            ),
            "env | grep NCCL_   # on each host: what limits channels, protocol or algorithm?",
            "all_reduce_perf -b 1G -e 4G -f 2 -g <GPUs>   # on each host alone: which one is slow?"
            if network
            else "CUDA_VISIBLE_DEVICES=0,1   # and again with -g 2, pair by pair: which GPU is slow?",
        ],
        confidence="likely",
        ranks=facts.job.ranks_seen,
        hosts=facts.hosts(),
        evidence=[*first_said([best]), *first_said(facts.with_role("rank-list"))[:1], *first_lines(paths)[:1]],
        open_paths=paths,
    )


def _is_of_test(facts: Facts) -> bool:
    """Whether the job is the one run of nccl-tests in the log, and that is of a test that can be judged.

    A row does not tell its test: sendrecv_perf, which joins pairs of ranks, prints an operation and root -1, too.
    """
    started, listed = facts.notices("nccl-tests/test-starting"), facts.with_role("rank-list")
    if not started or not listed or any(said.count > 1 for said in (*started, *listed)):
        return False
    pids = {value(said, "pid") for said in listed}
    return (
        len(started) == 1
        and str(value(started[0], "program")).startswith(_TESTS)
        and len({value(said, "rank") for said in listed}) == len(listed)
        and all(last.process.pid in pids for last in facts.job.last_lines if last.ranks)
    )


def _large(facts: Facts) -> list[Notice]:
    """Rows of all-reduce and reduce-scatter, whose bus bandwidth is that of the slowest path whatever the ranks.

    Other calls are not told apart from all-to-all, which sends all over the slowest one. Without warm-up the set-up of
    connections is measured, too.
    """
    if any(value(options, "warmup") == 0 for options in facts.notices("nccl-tests/test-options")):
        return []
    least = max(_MIN_BYTES, _MIN_BYTES_OF_RANK * _size(facts))
    (start,) = first_said(facts.notices("nccl-tests/test-starting"))
    connected = list(first_lines(facts.job.paths))
    if any(is_before(line, start) for line in connected):
        return []  # connections of a job that ran before the test
    return [
        row
        for row in facts.said(NcclTestResult)
        if isinstance(row.event, NcclTestResult)
        and (row.event.size >= least and row.event.redop != "none" and row.event.root < 0)
        and _measured(row) > 0
        and not any(is_before(row.evidence[0], line) for line in connected)
    ]


def _measured(row: Notice) -> float:
    """The better one of out-of-place and in-place."""
    return max(getattr(row.event, "busbw", None) or 0.0, getattr(row.event, "in_place_busbw", None) or 0.0)


def _size(facts: Facts) -> int:
    told = [comm.nranks for comm in facts.job.communicators]
    return max([*told, facts.job.world_size or 0, len(facts.with_role("rank-list"))])


def _worth(facts: Facts) -> Rate | None:
    """What the slowest kind of path gives at least; None where that is not known of all of them."""
    listed = {value(notice, "node") for notice in facts.with_role("rank-list")}
    several = facts.several_hosts() or len(listed) > 1
    if several and not facts.paths("inter"):
        return None  # what joins the hosts is not in the log
    rates = [_rate(facts, kind) for kind in facts.paths().kinds]
    known = [rate for rate in rates if rate]
    return min(known) if known and len(known) == len(rates) else None


def _rate(facts: Facts, path: PathKind) -> Rate | None:
    machine = facts.platform
    if path.transport == "P2P" and facts.link(path) != "PCIe":
        joined = _with_such_gpus(facts)
        return p2p(joined) if joined and joined.nvlink else None
    if path.transport == "NET" and path.scope == "inter" and path.gdr is True and machine and machine.nic_gbps:
        one, number = nic(machine.nic_gbps), _nics(facts)
        return Rate(one.low * number, one.high * number, f"{count(number, 'NIC')} of {machine.nic_gbps} Gb/s", one.link)
    return None


def _nics(facts: Facts) -> int:
    """How many NICs each host surely has for the test: all of a machine whose GPUs all take part, else one."""
    machine = facts.platform
    largest = max((comm.nranks for comm in facts.job.communicators), default=0)
    whole = [comm.local_ranks for comm in facts.job.communicators if comm.nranks == largest]
    return machine.nics if machine and machine.nics and whole and set(whole) == {machine.gpus} else 1


def _with_such_gpus(facts: Facts) -> Platform | None:
    """What joins the GPUs, first by their names: they show MIG and virtual GPUs, too."""
    names = gpu_names(facts.job)
    return platforms.of_gpus(names) if names else facts.platform


def _lost(measured: float, worth: Rate) -> str:
    """Only the lower end of a rate counts: two hosts may exceed the line rate of their NICs (NVLS, trees)."""
    return compared(worth._replace(low=measured, high=measured), worth._replace(high=worth.low))
