"""An inference server does without its own all-reduce kernels."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence, value
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="custom-allreduce-disabled",
    category="intra-node path",
    severity="info",
    title="The inference server uses NCCL instead of its own all-reduce kernels",
)
_OFF, _FAILED = "frameworks/custom-allreduce-off", "frameworks/custom-allreduce-failed"
_OTHERS = ("frameworks/p2p-not-there", "frameworks/symmetric-memory-off")
_NO_P2P = "P2P"


def judge(facts: Facts) -> Results:
    """Judge what vLLM, SGLang and TensorRT-LLM say: a warning only where P2P between the GPUs fails."""
    off, failed = facts.notices(_OFF), facts.notices(_FAILED, _OTHERS[0])
    others = facts.notices(_OTHERS[1])
    notices = [*failed, *off, *others]
    if not notices:
        return
    broken = bool(failed) or any(_NO_P2P in str(value(notice, "reason")) for notice in off)
    reasons = dict.fromkeys(_short(str(value(notice, "reason") or notice.message)) for notice in notices)
    yield RULE.finding(
        f"NCCL does the all-reduce instead of the server's own kernels: {listed(reasons, limit=2)}",
        cause="P2P between the GPUs does not work, or the server's test of it failed: ACS or an IOMMU, a virtual "
        "machine, "
        "containers that do not share IPC, or GPUs without it"
        if broken
        else "expected with several hosts, on PCIe cards without a full NVLink mesh, and with some numbers of GPUs",
        impact="small all-reduces (decoding) take longer; results are the same",
        fix=[
            "nvidia-smi topo -p2p r; nvidia-smi topo -m   # OK between all pairs? NV# between all?",
            "disable_custom_all_reduce=True   # silences the message, if nothing is to be changed",
        ],
        severity="warning" if broken else "info",
        confidence="likely",
        evidence=first_evidence(notices),
    )


def _short(reason: str) -> str:
    return reason.split(". ")[0]
