"""Two ranks of a communicator use the same GPU."""

from collections.abc import Iterator

from nccl_inspect.event_types import Notice
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in

RULE = Rule(
    name="duplicate-gpu",
    category="environment",
    severity="error",
    title="Two ranks of one communicator use the same GPU",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NCCL's own check: up to 2.29 it names the ranks, from 2.30 on it only says that it is so."""
    refused = [
        *facts.notices("duplicate-gpu", "duplicate-gpu-ranks", "duplicate-gpu-nvls"),
        *facts.leading_to(RULE.name),
    ]
    if not refused:
        return
    pairs = {
        (*sorted((notice.event.value("rank"), notice.event.value("other_rank"))), notice.event.value("bus_id"))
        for notice in refused
        if notice.production == "duplicate-gpu" and isinstance(notice.event, Notice)
    }
    words = listed(
        f"ranks {first} and {second} on the GPU with bus id {bus}" for first, second, bus in sorted(pairs, key=str)
    )
    yield RULE.finding(
        f"two ranks use the same GPU{': ' + words if words else ''}",
        cause="the processes of a host do not choose different devices (all lines show the same [0]?), or two "
        "launchers run on one host, or they have MIG instances of one GPU, which NCCL takes for the same",
        impact="NCCL refuses to build the communicator; the job does not start",
        fix=[
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
            "torchrun --nnodes=<nodes> --nproc_per_node=gpu <script>   # one launcher for each node, no more "
            "processes than GPUs",
            "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # in each pod of a node: no GPU in two of them",
            "NCCL_MULTI_RANK_GPU_ENABLE=1   # 2.30 and later, if it is wanted",
        ],
        ranks=ranks_in(refused),
        hosts=hosts_in(refused),
        evidence=first_said(refused),
        fatal=True,
    )
