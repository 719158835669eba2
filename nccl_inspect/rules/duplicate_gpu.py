"""Two ranks of a communicator use the same GPU."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule, value
from nccl_inspect.judging.facts import global_ranks, ranks_concerned
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import listed, ranks_word

RULE = Rule(
    name="duplicate-gpu",
    category="environment",
    title="Two ranks of one communicator use the same GPU",
)


_CAUSE = (
    "the processes of a host do not choose different devices (do all lines show the same [0]?), or two launchers run "
    "on one host, or the processes have MIG instances of one GPU, which NCCL treats as the same GPU"
)
_FIX = (
    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
    "torchrun --nnodes=<nodes> --nproc_per_node=gpu <script>   # one launcher per node, no more processes than GPUs",
    "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # in each pod of a node: does a GPU appear in two of them?",
    "NCCL_MULTI_RANK_GPU_ENABLE=1   # 2.30 and later, if sharing is intended",
)
_SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""With these, several ranks may share a GPU, or host names do not identify hosts."""
_DISTINGUISHES_MIG = (2, 30)
"""The first release that distinguishes MIG instances and supports ranks that share a GPU."""


def judge(facts: Facts) -> Results:
    """Judge NCCL's own check: up to 2.29 it names the ranks, from 2.30 on it does not."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        yield from _from_init_lines(facts)
        return
    pairs = {
        (*sorted((value(notice, "rank"), value(notice, "other_rank"))), value(notice, "bus_id"))
        for notice in errors
        if value(notice, "other_rank") is not None
    }
    words = listed(
        f"ranks {first} and {second} on the GPU with bus id {bus}" for first, second, bus in sorted(pairs, key=str)
    )
    yield RULE.finding(
        f"two ranks use the same GPU{': ' + words if words else ''}",
        cause=_CAUSE,
        impact="NCCL refuses to build the communicator; the job does not start",
        fix=_FIX,
        notices=errors,
        ranks=ranks_concerned(facts, errors, "rank", "other_rank"),
        fatal=True,
    )


def _from_init_lines(facts: Facts) -> Iterator[Finding]:
    """Judge init lines with one host and bus id for two ranks, before NCCL itself compares them.

    If NCCL built the communicator, there is no conflict: two machines have the same name.
    """
    if facts.enabled_settings(*_SHARING) or any(order(text) >= _DISTINGUISHES_MIG for text in facts.job.nccl_versions):
        return
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in facts.job.communicators:
        if not facts.none_initialized([comm]):
            continue
        users: dict[tuple[str | None, str], set[int]] = {}
        for rank in global_ranks(comm, comm.started):
            gpu = facts.job.gpus.get(rank)
            host = host_of.get(rank)  # machines of one type have the same bus ids: a host without a name may be several
            if gpu is not None and gpu.bus_id is not None and (is_named(host) or comm.nnodes == 1):
                users.setdefault((host, gpu.bus_id), set()).add(rank)
        shared = {key: ranks for key, ranks in users.items() if len(ranks) > 1 and not _is_two_machines(facts, key[0])}
        if shared:
            yield _clue(comm, shared)
            return


def _is_two_machines(facts: Facts, host: str | None) -> bool:
    """Whether processes of one host name have several addresses on one interface."""
    by_interface: dict[str, set[str]] = {}
    for notice in facts.with_event(BootstrapInterface):
        event = notice.event
        if isinstance(event, BootstrapInterface) and event.address and host in notice.hosts:
            by_interface.setdefault(event.interface, set()).add(event.address)
    return any(len(addresses) > 1 for addresses in by_interface.values())


def _clue(comm: CommunicatorInfo, shared: dict[tuple[str | None, str], set[int]]) -> Finding:
    words = listed(
        f"{ranks_word(ranks)} on the GPU with bus id {bus}" for (_, bus), ranks in sorted(shared.items(), key=str)
    )
    return RULE.clue(
        f"init lines of one host give several ranks the same GPU: {words}",
        cause=f"{_CAUSE}; or two machines have the same host name, which these lines do not show",
        impact="NCCL refuses to build the communicator as soon as it has compared the ranks",
        fix=_FIX,
        confirm="Look for 'Duplicate GPU detected' once all ranks have started, or compare UUIDs: nvidia-smi -L",
        ranks={rank for ranks in shared.values() for rank in ranks},
        hosts=[host for host, _ in shared],
        evidence=comm.evidence,
    )
