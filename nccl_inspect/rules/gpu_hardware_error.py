"""A GPU, its memory or an NVLink failed."""

from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import error_of, find_text, gpu_fault, message_of
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gpu-hardware-error",
    category="failures",
    layer=Layer.HARDWARE,
    title="A GPU, its memory or an NVLink failed",
    may_cause=("slow", "wrong-results", "slow-rank"),
    supersedes=("cuda-call-failed", "cuda-failure-in-connect", "cuda-failure-in-launch"),
    local=True,
)
_TEXTS = ("uncorrectable ECC error encountered", "uncorrectable NVLink error detected during the execution")
_CONTAINED = "Invalid access of peer GPU memory over nvlink or a hardware error"
"""cudaErrorContained, since CUDA 12.8: either of the two."""
_LOST = "GPU is lost"
"""NVML's error for a GPU that does not respond (src/misc/nvmlwrap.cc)."""
_NO_ANSWER = (
    "the driver can no longer reach a GPU. NCCL queries all GPUs that the container shows, including those that the "
    "job does not use; the number in the line is that of nvidia-smi"
)
_OF_GPU = later(r"CUDA|cuda|CUDNN|cuDNN|CUBLAS|cuBLAS|CUFFT|cuFFT|Triton|NVRTC|GPU")
_CODES = {cuda.CUDA_CODES[text] for text in (*_TEXTS, _CONTAINED)}


def judge(facts: Facts) -> Results:
    """Judge CUDA's hardware errors; the kernel's lines may be old, so they need a job that failed."""
    stated = [notice for notice in cuda.failed_calls(facts) if cuda.code_of(notice) in _CODES]
    stated += [n for n in facts.notices("torch/cuda-error", "torch/watchdog-terminated") if _is_hardware_error(n)]
    lost = [n for n in facts.notices("nccl/nvml-failed") if n.level == "WARN" and value(n, "error") == _LOST]
    stated += lost
    kernel = [*facts.notices("kernel/gpu-lost"), *filter(gpu_fault, facts.notices("kernel/xid"))]
    kernel += facts.with_role("gpu-fault")
    kernel += [n for n in facts.notices("kernel/sxid") if str(value(n, "text")).startswith("Fatal")]
    notices = [*stated, *kernel]
    if not notices:
        if switch := facts.errors_of_rule(RULE.name):
            yield _switch_clue(switch)
        return
    surely = {kernel_log.confidence(facts, notice) for notice in kernel}
    is_proved = not stated and "certain" in surely
    is_old = not (stated or is_proved) and (
        surely == {"possible"} or _is_explained(facts, kernel) or not _is_over(facts, kernel)
    )
    is_sure = is_proved or any(text in error_of(notice) for notice in stated for text in (*_TEXTS, _LOST))
    yield RULE.finding(
        f"the hardware of a GPU failed: {listed(map(_words, notices), limit=2)}",
        cause=_NO_ANSWER
        if lost
        else _cause(kernel, is_sure=is_sure and not is_proved, is_stated=bool(stated), is_old=is_old),
        impact="the rank on this GPU is lost, and with it the job; the other ranks lose connections or wait",
        fix=[
            "kubectl cordon <node>   # Slurm: scontrol update nodename=<node> state=drain reason=gpu; run "
            "the job elsewhere",
            "dmesg -T | grep -iE 'xid|sxid'; nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e   # on its host",
            "nvidia-smi -r; dcgmi diag -r 3   # reset (or reboot), then test; if the error recurs, replace the GPU or "
            "the board",
        ],
        severity="warning" if is_old else None,
        confidence="certain" if is_sure else "possible" if is_old else "likely",
        ranks=ranks_in(stated) | kernel_log.ranks_in(facts, kernel),
        hosts=hosts_in(notices) | kernel_log.hosts_in(facts, kernel),
        evidence=first_evidence(notices),
        fatal=not is_old,
    )


def _switch_clue(notices: list[Notice]) -> Finding:
    """A clue about a non-fatal error of an NVSwitch."""
    return RULE.clue(
        f"an NVSwitch reports an error that is not fatal: {message_of(notices[0]).strip()}",
        cause="a process that crashed during NVLink transfers, or a failing link or port of the NVSwitch: errors that "
        "recur on one link mean the hardware",
        impact="none if the line is the only one; a link with frequent errors is slow, or ends the jobs that use it",
        fix=[
            "dmesg -T | grep -i sxid; nvidia-smi nvlink -e   # on its host: is it always the same link?",
            "nvidia-smi -r; dcgmi diag -r 3   # reset (or reboot), then test; if the error recurs, replace the board",
        ],
        confirm="Compare the time of the line with the failure, and look for Xid 74 or a fatal SXid.",
        confidence="possible",
        hosts=hosts_in(notices),
        evidence=first_evidence(notices),
    )


def _is_over(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether the job failed or ended, according to lines other than the kernel's."""
    own = set(map(id, kernel))
    hurt = [
        *facts.notices("nccl/socket-closed-by-peer"),
        *(notice for notice in facts.errors(forced_ends=False) if id(notice) not in own),
    ]
    return facts.job.failed or bool(facts.job.ended_by) or bool(hurt)


def _is_explained(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether exceptions unrelated to GPUs ended ranks, and the kernel names no process of a rank."""
    texts = [trace.last.text for trace in exceptions.exceptions_of(facts).traces if trace.last is not None]
    pids = {str(last.process.pid) for last in facts.job.last_lines}
    is_of_rank = any(str(value(notice, "process")) in pids for notice in kernel)
    return bool(texts) and not is_of_rank and not any(map(_OF_GPU.search, texts))


def _is_hardware_error(notice: Notice) -> bool:
    return any(text in error_of(notice) for text in (*_TEXTS, _CONTAINED))


def _cause(kernel: list[Notice], *, is_sure: bool, is_stated: bool, is_old: bool) -> str:
    if is_sure:
        return "CUDA reports it"
    if is_stated:
        return (
            "according to CUDA either a kernel that accessed invalid peer memory over NVLink (a bug, or a peer that is "
            "gone), or a hardware fault. Check the kernel log: an Xid means hardware"
        )
    is_logged = all(notice.production.startswith("kernel/") for notice in kernel)
    return f"{'the driver reports it in the kernel log' if is_logged else 'a service of the machine reports it'}. " + (
        "Nothing here shows its effect on the job: it may be older, or the job may have ended for another reason"
        if is_old
        else "If that line is older than the failure, the two are unrelated: compare the times"
    )


def _words(notice: Notice) -> str:
    if notice.production == "kernel/xid":
        return f"Xid {value(notice, 'xid')} on {value(notice, 'bus_id')} ({gpu_fault(notice)})"
    return next((text for text in (*_TEXTS, _CONTAINED) if text in error_of(notice)), find_text(notice))
