"""Several jobs of one host each where one over all hosts was meant."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="separate-jobs",
    category="environment",
    severity="error",
    title="Every host runs a job of its own instead of one over all",
)

_WITHOUT_MPI = (
    "nccl-tests built without MPI: mpirun or srun then starts as many tests as processes, none of which knows of the "
    "others"
)

"""What a test prints at its end: one that begins behind it is the next."""
_GROUPS = "or groups inside of hosts whose other communicators come later"
_NEEDS = Needs(others=("the launch command of each host", "the log past the first steps"))
_IMPACT = "the network between the hosts is not tested at all, and processes of one host get in each other's way"
_BUILD = "make MPI=1 MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi   # nccl-tests; 'ldd build/all_reduce_perf' shows it"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge communicators that all stay on one host although the log has several.

    Groups inside of hosts, and replicas that serve on their own, look the same: only nccl-tests are certainly meant to
    span all hosts.
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
    jobs = [comm for comm in comms if comm.parent is None and _is_whole(comm)]
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
        f"{count(len(hosts), 'host')}, and no communicator spans them: {count(len(jobs), 'job')} ({sizes}) "
        "each begin with a rank 0 of their own",
        cause=_WITHOUT_MPI,
        impact=_IMPACT,
        fix=[
            _BUILD,
            "torchrun --nnodes=<hosts> --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint=<host>:29500 "
            "<script>   # PyTorch, on every host",
            "A job of its own shows one 'Init COMPLETE' line for each rank, with nranks of all GPUs.",
        ],
        confidence="likely",
        hosts=hosts,
        evidence=[comm.evidence[0] for comm in jobs],
    )


def _clue(jobs: list[CommunicatorInfo]) -> Finding:
    """What is said of communicators of one rank each on several hosts, which talk to nobody."""
    return RULE.clue(
        f"each of {count(len(jobs), 'process')} has a communicator of its own, with one rank",
        cause="each process was started as a job of its own: WORLD_SIZE is 1, or the launcher and the program do not "
        "fit together; replicas that work on their own look the same",
        impact="nothing goes over the network, and each process works on its own",
        fix=[
            "echo $MASTER_ADDR $WORLD_SIZE $RANK   # in every process: the same address and size, another rank?",
            "torchrun --nnodes=<hosts> --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint=<host>:29500 <script>"
            "   # PyTorch, on every host",
        ],
        confirm="Were these processes meant to be one job? Then 'nranks' must be the number of all GPUs.",
        severity="warning",
        confidence="possible",
        hosts={host for comm in jobs for host in comm.hosts},
        evidence=[comm.evidence[0] for comm in jobs],
    )


def _is_whole(comm: CommunicatorInfo) -> bool:
    return len(comm.started) == comm.nranks and len(comm.hosts) == 1


def _of_tests(facts: Facts) -> Iterator[Finding]:
    """Judge what nccl-tests print without lines of NCCL: each test lists its ranks, from 0 on, and has a table."""
    firsts = [notice for notice in facts.with_role("rank-list") if value(notice, "rank") == 0]
    heads = _at_once(facts, [notice.evidence[0] for notice in firsts])
    hosts = {str(value(notice, "node")) for notice in firsts if notice.evidence[0] in heads}
    if len(heads) > 1:
        yield RULE.finding(
            f"{count(len(heads), 'test')} began at once on {count(len(hosts), 'host')}, each with a rank 0 of its own",
            cause=_WITHOUT_MPI,
            impact=_IMPACT,
            fix=[_BUILD],
            confidence="likely",
            hosts=hosts,
            evidence=heads,
        )
        return
    tables = _at_once(facts, [line for notice in facts.notices("nccl-tests/test-units") for line in notice.evidence])
    options = facts.notices("nccl-tests/test-options")
    starts = sum(notice.count for notice in options)
    if len(tables) < 2 and starts > 1 and not (facts.notices("nccl-tests/test-units") or facts.with_role("test-end")):
        yield RULE.clue(
            f"{count(starts, 'test')} began and none printed results: several tests run beside each other",
            cause=_WITHOUT_MPI,
            impact=_IMPACT,
            fix=[_BUILD],
            confirm="Look at the lists of ranks: is there a rank 0 more than once?",
            severity="warning",
            confidence="possible",
            evidence=first_said(options),
        )
    if len(tables) > 1:
        yield RULE.clue(
            f"{count(len(tables), 'table')} of results began before one ended: several tests run beside each other",
            cause=_WITHOUT_MPI,
            impact=_IMPACT,
            fix=[_BUILD],
            confirm="Look at the list of ranks above the tables: is there a rank 0 more than once?",
            severity="warning",
            confidence="possible",
            evidence=tables,
        )


def _at_once(facts: Facts, begins: list[Evidence]) -> list[Evidence]:
    """Those lines with which tests begin that stand before the end of the first test, in the source with the most."""
    ends = first_of_each(line for notice in facts.with_role("test-end") for line in notice.evidence)
    by_source: dict[str, list[Evidence]] = {}
    for line in begins:
        if line.order < ends.get(line.source, line.order + 1):
            by_source.setdefault(line.source, []).append(line)
    return max(by_source.values(), key=len, default=[])
