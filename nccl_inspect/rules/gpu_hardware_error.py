"""A GPU, its memory or an NVLink failed."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import error_of, find_text, gpu_fault, message_of
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

_TEXTS = ("uncorrectable ECC error encountered", "uncorrectable NVLink error detected during the execution")
_CONTAINED = "Invalid access of peer GPU memory over nvlink or a hardware error"
"""cudaErrorContained, since CUDA 12.8: either of the two."""
_LOST = "GPU is lost"
"""NVML's error for a GPU that does not respond (src/misc/nvmlwrap.cc)."""
_OF_GPU = later(r"CUDA|cuda|CUDNN|cuDNN|CUBLAS|cuBLAS|CUFFT|cuFFT|Triton|NVRTC|GPU")
_CODES = {cuda.CUDA_CODES[text] for text in (*_TEXTS, _CONTAINED)}


def find(facts: Facts) -> Iterator[Hit]:
    """Find CUDA's hardware errors; the kernel's lines may be old, so they need a job that failed."""
    stated = [notice for notice in cuda.failed_calls(facts) if cuda.code_of(notice) in _CODES]
    stated += [n for n in facts.notices("torch/cuda-error", "torch/watchdog-terminated") if _text_of(n)]
    lost = [n for n in facts.notices("nccl/nvml-failed") if n.level == "WARN" and value(n, "error") == _LOST]
    stated += lost
    kernel = [*facts.notices("kernel/gpu-lost"), *filter(gpu_fault, facts.notices("kernel/xid"))]
    kernel += facts.with_role("gpu-fault")
    kernel += [n for n in facts.notices("kernel/sxid") if str(value(n, "text")).startswith("Fatal")]
    notices = [*stated, *kernel]
    if not notices:
        if switch := facts.errors_of_rule("gpu-hardware-error"):
            yield Hit(switch, {"switch": message_of(switch[0]).strip()}, ranks=())
        return
    surely = {kernel_log.confidence(facts, notice) for notice in kernel}
    is_proved = not stated and "certain" in surely
    is_unrelated = surely == {"possible"} or _is_explained(facts, kernel) or not _is_over(facts, kernel)
    named = {
        "failed": listed(map(_words, notices), limit=2),
        "lost": lost,
        "stated": stated,
        "old": not (stated or is_proved) and is_unrelated,
        "sure": is_proved or any(text in error_of(notice) for notice in stated for text in (*_TEXTS, _LOST)),
        "logged": all(notice.production.startswith("kernel/") for notice in kernel),
    }
    ranks = ranks_in(stated) | kernel_log.ranks_in(facts, kernel)
    hosts = hosts_in(notices) | kernel_log.hosts_in(facts, kernel)
    yield Hit(notices, named, ranks=ranks, hosts=hosts, evidence=first_evidence(notices))


def _is_over(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether the job failed or ended, according to lines other than the kernel's."""
    own = set(map(id, kernel))
    hurt = [notice for notice in facts.errors(forced_ends=False) if id(notice) not in own]
    return bool(facts.job.failed or facts.job.ended_by or hurt or facts.notices("nccl/socket-closed-by-peer"))


def _is_explained(facts: Facts, kernel: list[Notice]) -> bool:
    """Whether exceptions unrelated to GPUs ended ranks, and the kernel names no process of a rank."""
    texts = [trace.last.text for trace in exceptions.exceptions_of(facts).traces if trace.last is not None]
    pids = {str(last.process.pid) for last in facts.job.last_lines}
    is_of_rank = any(str(value(notice, "process")) in pids for notice in kernel)
    return bool(texts) and not is_of_rank and not any(map(_OF_GPU.search, texts))


def _text_of(notice: Notice) -> str:
    return next((text for text in (*_TEXTS, _CONTAINED) if text in error_of(notice)), "")


def _words(notice: Notice) -> str:
    if notice.production == "kernel/xid":
        return f"Xid {value(notice, 'xid')} on {value(notice, 'bus_id')} ({gpu_fault(notice)})"
    return _text_of(notice) or find_text(notice)
