"""A GPU, its memory or an NVLink failed."""

import re
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import broken, error_of, value, words
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gpu-hardware-error",
    category="failures",
    severity="error",
    title="A GPU, its memory or an NVLink failed",
    causes=("bandwidth-low", "wrong-results"),
    echoes=(
        "collective-not-called",
        "collective-unfinished",
        "cuda-init-error",
        "gloo-not-connected",
        "ib-completion-error",
        "p2p-without-partner",
        "peer-death",
        "process-unresponsive",
        "ranks-in-error",
        "rendezvous-failed",
        "straggler",
        "watchdog-*",
    ),
    supersedes=("cuda-call-failed", "cuda-failure-in-connect", "cuda-failure-in-launch"),
    local=True,
)
_TEXTS = ("uncorrectable ECC error encountered", "uncorrectable NVLink error detected during the execution")
_CONTAINED = "Invalid access of peer GPU memory over nvlink or a hardware error"
"""cudaErrorContained, since CUDA 12.8: it is one of the two."""
_LOST = "GPU is lost"
"""What NVML says of a GPU that does not answer (src/misc/nvmlwrap.cc)."""
_NO_ANSWER = (
    "the driver does not reach a GPU any more. NCCL asks for all that the container shows, also for those that the job "
    "does not use; the number in the line counts as nvidia-smi does"
)
_OF_GPU = re.compile(r"CUDA|cuda|CUDNN|cuDNN|CUBLAS|cuBLAS|CUFFT|cuFFT|Triton|NVRTC|GPU")
_CODES = {cuda.CUDA_CODES[text] for text in (*_TEXTS, _CONTAINED)}


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what CUDA says of the hardware; the kernel's lines may be old, so they need a job that failed."""
    stated = [notice for notice in cuda.failed(facts) if cuda.code_of(notice) in _CODES]
    stated += [n for n in facts.notices("torch/cuda-error", "torch/watchdog-terminated") if _says_so(n)]
    lost = [n for n in facts.notices("nccl/nvml-failed") if n.level == "WARN" and value(n, "error") == _LOST]
    stated += lost
    kernel = [*facts.notices("kernel/gpu-lost"), *filter(broken, facts.notices("kernel/xid"))]
    kernel += [n for n in facts.notices("kernel/sxid") if str(value(n, "text")).startswith("Fatal")]
    said = [*stated, *kernel]
    if not said:
        if switch := facts.leading_to(RULE.name):
            yield _of_switch(switch)
        return
    is_old = not stated and (_is_explained(facts, kernel) or not _is_over(facts, kernel))
    is_sure = any(text in error_of(notice) for notice in stated for text in (*_TEXTS, _LOST))
    yield RULE.finding(
        f"the hardware of a GPU failed: {listed(map(_words, said), limit=2)}",
        cause=_NO_ANSWER if lost else _cause(is_sure=is_sure, is_stated=bool(stated), is_old=is_old),
        impact="the rank on this GPU is lost, and with it the job; the others lose connections or wait",
        fix=[
            "kubectl cordon <node>   # Slurm: scontrol update nodename=<node> state=drain reason=gpu; run "
            "the job elsewhere",
            "dmesg -T | grep -iE 'xid|sxid'; nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e   # on its host",
            "nvidia-smi -r; dcgmi diag -r 3   # reset (or reboot), then test; if it comes back, replace the "
            "GPU or the board",
        ],
        severity="warning" if is_old else None,
        confidence="certain" if is_sure else "possible" if is_old else "likely",
        ranks=ranks_in(stated) | kernel_log.ranks_in(facts, kernel),
        hosts=hosts_in(said) | kernel_log.hosts_in(facts, kernel),
        evidence=first_said(said),
        fatal=not is_old,
    )


def _of_switch(said: list[Notice]) -> Finding:
    """An NVSwitch that reports what it calls not fatal."""
    return RULE.clue(
        f"an NVSwitch reports an error that is not fatal: {words(said[0]).strip()}",
        cause="a process that crashed with NVLink transfers under way, or a link or port of the NVSwitch that is in "
        "trouble: errors that come back on one link mean the hardware",
        impact="none where the line stands alone; a link that errs often is slow, or ends the jobs that use it",
        fix=[
            "dmesg -T | grep -i sxid; nvidia-smi nvlink -e   # on its host: always the same link?",
            "nvidia-smi -r; dcgmi diag -r 3   # reset (or reboot), then test; if it comes back, replace the board",
        ],
        confirm="Compare the time of the line with the failure, and look for Xid 74 or a fatal SXid.",
        severity="warning",
        confidence="possible",
        hosts=hosts_in(said),
        evidence=first_said(said),
    )


def _is_over(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether the job failed or ended, as other lines than those of the kernel show."""
    own = set(map(id, kernel))
    hurt = [*facts.notices("nccl/socket-closed-by-peer"), *(one for one in facts.failures() if id(one) not in own)]
    return facts.job.failed or bool(facts.job.ended_by) or bool(hurt)


def _is_explained(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether exceptions that are not about GPUs ended ranks, and the kernel names the process of none."""
    texts = [one.last.text for one in exceptions.found(facts).traces if one.last is not None]
    pids = {str(last.process.pid) for last in facts.job.last_lines}
    is_of_rank = any(str(value(notice, "process")) in pids for notice in kernel)
    return bool(texts) and not is_of_rank and not any(map(_OF_GPU.search, texts))


def _says_so(notice: Notice) -> bool:
    return any(text in error_of(notice) for text in (*_TEXTS, _CONTAINED))


def _cause(*, is_sure: bool, is_stated: bool, is_old: bool) -> str:
    if is_sure:
        return "CUDA says so"
    if is_stated:
        return (
            "CUDA says that it is one of two: a kernel that writes over NVLink where no memory of a peer is (a bug, or "
            "a peer that is gone), or a fault of the hardware. The kernel log tells: an Xid means hardware"
        )
    return "the driver reports it in the kernel log. " + (
        "Nothing here shows what it did to the job: it may be older, or the job may have ended for another reason"
        if is_old
        else "If that line is older than the failure, it is another story: compare the times"
    )


def _words(notice: Notice) -> str:
    if notice.production == "kernel/xid":
        return f"Xid {value(notice, 'xid')} on {value(notice, 'bus_id')} ({broken(notice)})"
    return next((text for text in (*_TEXTS, _CONTAINED) if text in error_of(notice)), words(notice).strip())
