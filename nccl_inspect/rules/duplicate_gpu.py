"""Two ranks of a communicator use the same GPU."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import listed, ranks_word

RULE = Rule(
    name="duplicate-gpu",
    category="environment",
    severity="error",
    title="Two ranks of one communicator use the same GPU",
    echoes=("bootstrap-connect-refused",),
)


_CAUSE = (
    "the processes of a host do not choose different devices (all lines show the same [0]?), or two launchers run on "
    "one host, or they have MIG instances of one GPU, which NCCL takes for the same"
)
_FIX = (
    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
    "torchrun --nnodes=<nodes> --nproc_per_node=gpu <script>   # one launcher a node, no more processes than GPUs",
    "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # in each pod of a node: no GPU in two of them",
    "NCCL_MULTI_RANK_GPU_ENABLE=1   # 2.30 and later, if it is wanted",
)
_SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""With these several ranks may have one GPU, or hosts are not what their names say."""
_TELLS_PARTS_APART = (2, 30)
"""The first release that knows MIG instances from each other, and ranks that are to share a GPU."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NCCL's own check: up to 2.29 it names the ranks, from 2.30 on it only says that it is so."""
    refused = facts.leading_to(RULE.name)
    if not refused:
        yield from _listed_twice(facts)
        return
    pairs = {
        (*sorted((value(notice, "rank"), value(notice, "other_rank"))), value(notice, "bus_id"))
        for notice in refused
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
        notices=refused,
        fatal=True,
    )


def _listed_twice(facts: Facts) -> Iterator[Finding]:
    """Judge init lines with one host and bus id for two ranks, before NCCL compares them itself.

    What NCCL built is right: then two machines have one name.
    """
    if facts.switched_on(*_SHARING) or any(order(text) >= _TELLS_PARTS_APART for text in facts.job.nccl_versions):
        return
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in facts.job.communicators:
        if not facts.unfinished([comm]):
            continue
        users: dict[tuple[str | None, str], set[int]] = {}
        for rank in global_ranks(comm, comm.started):
            gpu = facts.job.gpus.get(rank)
            host = host_of.get(rank)  # machines of a kind have the same bus ids: without a name it may be several
            if gpu is not None and gpu.bus_id is not None and (is_named(host) or comm.nnodes == 1):
                users.setdefault((host, gpu.bus_id), set()).add(rank)
        shared = {key: ranks for key, ranks in users.items() if len(ranks) > 1 and not _is_two_machines(facts, key[0])}
        if shared:
            yield _clue(comm, shared)
            return


def _is_two_machines(facts: Facts, host: str | None) -> bool:
    """Whether processes of a host name have several addresses on one interface."""
    found: dict[str, set[str]] = {}
    for notice in facts.said(BootstrapInterface):
        event = notice.event
        if isinstance(event, BootstrapInterface) and event.address and host in notice.hosts:
            found.setdefault(event.interface, set()).add(event.address)
    return any(len(addresses) > 1 for addresses in found.values())


def _clue(comm: CommunicatorInfo, shared: dict[tuple[str | None, str], set[int]]) -> Finding:
    words = listed(
        f"{ranks_word(ranks)} on the GPU with bus id {bus}" for (_, bus), ranks in sorted(shared.items(), key=str)
    )
    return RULE.clue(
        f"ranks of one host name the same GPU: {words}",
        cause=f"{_CAUSE}; or two machines have one host name, which these lines do not tell",
        impact="NCCL refuses to build the communicator as soon as it has compared the ranks",
        fix=_FIX,
        confirm="Look for 'Duplicate GPU detected' once all ranks have started, or compare UUIDs: nvidia-smi -L",
        severity="warning",
        ranks={rank for ranks in shared.values() for rank in ranks},
        hosts=[host for host, _ in shared],
        evidence=comm.evidence,
    )
