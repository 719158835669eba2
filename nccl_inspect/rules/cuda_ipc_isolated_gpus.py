"""Each process sees only its own GPU, and CUDA cannot share memory between them."""

from collections.abc import Iterator

from nccl_inspect.impact import SHM
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.rules.p2p_import_failed import not_shared

RULE = Rule(
    name="cuda-ipc-isolated-gpus",
    category="intra-node path",
    severity="error",
    title="Each process sees only its own GPU, and memory cannot be shared between them",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge failed imports on hosts where all ranks have CUDA device 0 on different GPUs; alone that is harmless."""
    failed = [notice for notice in not_shared(facts) if set(notice.hosts) & set(facts.job.isolated_hosts)]
    if not failed:
        return
    yield RULE.finding(
        f"GPU memory could not be shared, and each process sees one GPU only: {failed[0].message}",
        cause="the launcher shows each process its own GPU as device 0 (Ray, srun --gpus-per-task, one container for "
        "each rank), so NCCL takes P2P for granted and cannot test the pair",
        impact="the connection cannot be made, and the job stops",
        fix=[
            "Show all GPUs of the host to each process, which then chooses its own.",
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
            "srun --gpu-bind=none <command>   # Slurm; or --gpus-per-node instead of --gpus-per-task",
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1   # Ray",
            f"NCCL_P2P_DISABLE=1   # a stop-gap, slow: {SHM} through host memory ({SHM.link})",
        ],
        confidence="likely",
        ranks=ranks_in(failed),
        hosts=hosts_in(failed),
        evidence=first_said(failed),
        fatal=True,
    )
