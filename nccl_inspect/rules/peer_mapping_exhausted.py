"""One process maps the memory of more GPUs than the driver allows."""

from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.hardware.cuda import CUDA_CODES, code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed

RULE = Rule(
    name="peer-mapping-exhausted",
    category="intra-node path",
    title="One process maps the memory of more GPUs than the driver allows",
    supersedes=("cuda-call-failed",),
)
_EXHAUSTED = CUDA_CODES["peer mapping resources exhausted"]


def judge(facts: Facts) -> Results:
    """Judge CUDA error 711, from a CUDA call or from NCCL's own wording of it."""
    failed = [
        *(notice for notice in cuda_failed(facts) if code_of(notice) == _EXHAUSTED),
        *(
            notice
            for notice in facts.notices("nccl/p2p-peer-access-failed")
            if isinstance(notice.event, NoticeEvent) and notice.event.value("code") == _EXHAUSTED
        ),
    ]
    if not failed:
        return
    yield RULE.finding(
        "a GPU cannot map the memory of another peer (CUDA error 711, peer mapping resources exhausted)",
        cause="the driver allows 8 peers per GPU within one process, and this process connects more GPUs",
        impact="the connection cannot be made, and the job stops",
        fix=[
            "torchrun --nproc_per_node=gpu <script>   # one process per GPU (not DataParallel, not ncclCommInitAll)",
            "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7   # or use fewer GPUs",
        ],
        notices=failed,
        fatal=True,
    )
