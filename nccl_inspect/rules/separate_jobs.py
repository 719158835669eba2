"""Each host runs its own job although one job across all hosts was intended."""

from collections.abc import Iterator
from functools import partial

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Needs, Results, Rule, first_evidence, value
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="separate-jobs",
    category="environment",
    title="Every host runs its own job instead of one job across all hosts",
)

_WITHOUT_MPI = "nccl-tests was built without MPI: mpirun or srun then starts one separate test per process"
_GROUPS = "or groups within hosts whose other communicators come later"
_NEEDS = Needs(others=("the launch command of each host", "the log past the first steps"))
_IMPACT = "the network between the hosts is not tested, and processes of one host compete with each other"
_BUILD = "make MPI=1 MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi   # nccl-tests; check with 'ldd build/all_reduce_perf'"


def judge(facts: Facts) -> Results:
    """Judge communicators that all stay on one host although the log has several.

    Groups within hosts and independent replicas look the same: only nccl-tests are certainly meant to span all hosts.
    """
    comms = facts.job.communicators
    if not comms:
        yield from _of_tests(facts)
        return
    if facts.job.alongside:
        yield RULE.undecided(
            f"{count(facts.job.alongside + 1, 'job')} of one size ran at once, each on its own host: separate jobs, "
            f"replicas, {_GROUPS}",
            _NEEDS,
        )
    jobs = [comm for comm in comms if comm.parent is None and len(comm.started) == comm.nranks and len(comm.hosts) == 1]
    hosts = {host for comm in jobs for host in comm.hosts if is_named(host)}
    if len(jobs) < 2 or len(hosts) < 2 or any(len(comm.hosts) > 1 for comm in comms):
        return
    if len({comm.hosts[0] for comm in jobs if 0 in comm.started}) < len(hosts):
        return
    if "nccl-tests" not in facts.job.dialects and all(comm.nranks == 1 for comm in comms):
        yield _clue(jobs)
        return
    if "nccl-tests" not in facts.job.dialects:
        yield RULE.undecided(
            f"each of {count(len(jobs), 'communicator')} stays on one of {count(len(hosts), 'host')}: separate jobs, "
            f"replicas, {_GROUPS}",
            _NEEDS,
        )
        return
    sizes = listed(count(size, "rank") for size in sorted({comm.nranks for comm in jobs}))
    yield RULE.finding(
        f"no communicator spans the {count(len(hosts), 'host')}: {count(len(jobs), 'job')} ({sizes}) each have their "
        "own rank 0",
        cause=_WITHOUT_MPI,
        impact=_IMPACT,
        fix=[
            _BUILD,
            "torchrun --nnodes=<hosts> --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint=<host>:29500 "
            "<script>   # PyTorch, on every host",
            "A single job shows one 'Init COMPLETE' line per rank, and its nranks counts all GPUs.",
        ],
        confidence="likely",
        hosts=hosts,
        evidence=[comm.evidence[0] for comm in jobs],
    )


def _clue(jobs: list[CommunicatorInfo]) -> Finding:
    """The clue for communicators of a single rank on several hosts."""
    return RULE.clue(
        f"each of {count(len(jobs), 'process', 'es')} has its own communicator, with one rank",
        cause="each process was started as a separate job: WORLD_SIZE is 1, or the launcher and the program do not "
        "match; independent replicas look the same",
        impact="nothing goes over the network, and each process works alone",
        fix=[
            "echo $MASTER_ADDR $WORLD_SIZE $RANK   # in every process: the same address and size, a different rank?",
            "torchrun --nnodes=<hosts> --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint=<host>:29500 <script>"
            "   # PyTorch, on every host",
        ],
        confirm="If these processes were meant to be one job, 'nranks' must be the number of all GPUs.",
        confidence="possible",
        hosts={host for comm in jobs for host in comm.hosts},
        evidence=[comm.evidence[0] for comm in jobs],
    )


def _of_tests(facts: Facts) -> Iterator[Finding]:
    """Judge the output of nccl-tests without lines of NCCL: each test lists its ranks from 0, and prints a table."""
    firsts = [notice for notice in facts.with_role("rank-list") if value(notice, "rank") == 0]
    heads = _at_once(facts, [notice.evidence[0] for notice in firsts])
    hosts = {str(value(notice, "node")) for notice in firsts if notice.evidence[0] in heads}
    apart = partial(RULE.finding, cause=_WITHOUT_MPI, impact=_IMPACT, fix=[_BUILD])
    if len(heads) > 1:
        summary = (
            f"{count(len(heads), 'test')} started together on {count(len(hosts), 'host')}, each with its own rank 0"
        )
        yield apart(summary, confidence="likely", hosts=hosts, evidence=heads)
        return
    maybe = partial(apart, severity="warning", confidence="possible")
    tables = _at_once(facts, [line for notice in facts.notices("nccl-tests/test-units") for line in notice.evidence])
    options = facts.notices("nccl-tests/test-options")
    starts = sum(notice.count for notice in options)
    if len(tables) < 2 and starts > 1 and not (facts.notices("nccl-tests/test-units") or facts.with_role("test-end")):
        yield maybe(
            f"{count(starts, 'test')} started and none printed results: several tests run in parallel",
            confirm="Look at the lists of ranks: does rank 0 appear more than once?",
            evidence=first_evidence(options),
        )
    if len(tables) > 1:
        yield maybe(
            f"{count(len(tables), 'table')} of results started before the first ended: several tests run in parallel",
            confirm="Look at the list of ranks above the tables: does rank 0 appear more than once?",
            evidence=tables,
        )


def _at_once(facts: Facts, begins: list[Evidence]) -> list[Evidence]:
    """The first lines of tests that precede the end of the first test, in the source with the most of them."""
    ends = first_of_each(line for notice in facts.with_role("test-end") for line in notice.evidence)
    by_source: dict[str, list[Evidence]] = {}
    for line in begins:
        if line.order < ends.get(line.source, line.order + 1):
            by_source.setdefault(line.source, []).append(line)
    return max(by_source.values(), key=len, default=[])
