"""A GPU, its memory or an NVLink failed."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules import cuda
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="gpu-hardware-error",
    category="failures",
    severity="error",
    title="A GPU, its memory or an NVLink failed",
)
_TEXTS = ("uncorrectable ECC error encountered", "uncorrectable NVLink error detected during the execution")
_CODES = {cuda.CUDA_CODES[text] for text in _TEXTS}
_XIDS = {
    48: "memory error that ECC cannot correct",
    64: "memory rows cannot be remapped",
    74: "NVLink error",
    79: "the GPU does not answer any more",
    94: "memory error, contained in one program",
    95: "memory error, not contained",
    119: "the firmware of the GPU does not answer",
    120: "the firmware of the GPU failed",
}
"""Those that hardware or firmware causes; 13, 31, 43 and 45 come from programs."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what CUDA says of the hardware; the kernel's lines may be old, so they need a job that failed."""
    stated = [notice for notice in cuda.failed(facts) if cuda.code_of(notice) in _CODES]
    stated += [n for n in facts.notices("cuda-error", "watchdog-terminated") if any(t in n.message for t in _TEXTS)]
    kernel = [*facts.notices("gpu-lost"), *(n for n in facts.notices("xid") if value(n, "xid") in _XIDS)]
    kernel += [n for n in facts.notices("sxid") if str(value(n, "text")).startswith("Fatal")]
    hurt = [*facts.notices("socket-closed-by-peer"), *(one for one in facts.failures() if one not in kernel)]
    broken = facts.job.failed or bool(facts.job.ended_by) or bool(hurt)
    said = [*stated, *kernel]
    if not stated and not (kernel and broken):
        return
    yield RULE.finding(
        f"the hardware of a GPU failed: {listed(map(_words, said), limit=2)}",
        cause="CUDA says so"
        if stated
        else "the driver reports it in the kernel log. If that line is older than the "
        "failure, it is another story: compare the times",
        impact="the rank on this GPU is lost, and with it the job; the others lose connections or wait",
        fix=[
            "kubectl cordon <node>   # Slurm: scontrol update nodename=<node> state=drain reason=gpu; run "
            "the job elsewhere",
            "dmesg -T | grep -iE 'xid|sxid'; nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e   # on its host",
            "nvidia-smi -r; dcgmi diag -r 3   # reset (or reboot), then test; if it comes back, replace the "
            "GPU or the board",
        ],
        confidence="certain" if stated else "likely",
        ranks=ranks_in(stated),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=True,
    )


def _words(notice: Notice) -> str:
    xid = value(notice, "xid")
    if xid in _XIDS:
        return f"Xid {xid} on {value(notice, 'bus_id')} ({_XIDS[xid]})"
    return next((text for text in _TEXTS if text in notice.message), notice.message.strip())
