"""Several jobs of one host each where one over all hosts was meant."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, listed

RULE = Rule(
    name="separate-jobs",
    category="environment",
    severity="error",
    title="Every host runs a job of its own instead of one over all",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge communicators that all stay on one host although the log has several.

    Groups inside of hosts, and replicas that serve on their own, look the same: only nccl-tests are certainly meant to
    span all hosts.
    """
    comms = facts.job.communicators
    jobs = [comm for comm in comms if comm.parent is None and _is_whole(comm)]
    hosts = {host for comm in jobs for host in comm.hosts}
    if len(jobs) < 2 or len(hosts) < 2 or any(len(comm.hosts) > 1 for comm in comms):
        return
    if len({comm.hosts[0] for comm in jobs if 0 in comm.started}) < len(hosts):
        return
    if "nccl-tests" not in facts.job.dialects:
        yield RULE.undecided(
            f"each of {count(len(jobs), 'communicator')} stays on one of {count(len(hosts), 'host')}: separate jobs, "
            "replicas, or groups inside of hosts whose other communicators come later",
            "the launch command of each host; the log past the first steps",
        )
        return
    sizes = listed(count(size, "rank") for size in sorted({comm.nranks for comm in jobs}))
    yield RULE.finding(
        f"{count(len(hosts), 'host')}, and no communicator spans them: {count(len(jobs), 'job')} ({sizes}) "
        "each begin with a rank 0 of their own",
        cause="nccl-tests built without MPI: mpirun or srun then starts as many tests as processes, none of which "
        "knows of the others",
        impact="the network between the hosts is not tested at all, and processes of one host get in each other's way",
        fix=[
            "make MPI=1 MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi   # nccl-tests; then 'ldd "
            "build/all_reduce_perf' shows libmpi",
            "torchrun --nnodes=<hosts> --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint=<host>:29500 "
            "<script>   # PyTorch, on every host",
            "A job of its own shows one 'Init COMPLETE' line for each rank, with nranks of all GPUs.",
        ],
        confidence="likely",
        hosts=hosts,
        evidence=[comm.evidence[0] for comm in jobs],
    )


def _is_whole(comm: CommunicatorInfo) -> bool:
    return len(comm.started) == comm.nranks and len(comm.hosts) == 1
