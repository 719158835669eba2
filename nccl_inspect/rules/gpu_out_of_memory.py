"""A GPU ran out of memory for NCCL, or for PyTorch before the job ended."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.ends import raised_in_ray
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import rank_prefix

_ON_HOST = "host alloc"


def find(facts: Facts) -> Iterator[Hit]:
    """Find CUDA's "out of memory" from NCCL; from PyTorch, which programs catch, if it ended a rank or the job."""
    failures = [failure for failure in cuda.failures(facts) if failure.code == cuda.OUT_OF_MEMORY]
    full = [notice for notice in facts.notices("torch/cuda-error") if cuda.is_out_of_memory(notice)]
    torch = [notice for notice in (*facts.notices("torch/cuda-out-of-memory"), *full) if _has_ended(facts, notice)]
    notices = [*(failure.notice for failure in failures), *torch]
    sizes = facts.notices("nccl/cuda-allocation-failed", "rccl/rccl-cumem-allocation-failed")
    on_host = [value(notice, "call") == _ON_HOST for notice in sizes]
    if not notices:
        if sizes and not cuda.failures(facts):
            yield Hit(sizes, {"without reason": True, "on host": all(on_host)})
        return
    asked = _is_asked_by_others(facts, notices)
    named = {
        "on host": not torch and (any(on_host) or all("shm.cc" in (failure.file or "") for failure in failures)),
        "NCCL": failures,
        "file": failures[0].file if failures else "",
        "XLA": facts.notices("frameworks/xla-nccl-failed"),
        "NVLS": any(str(failure.file).endswith("transport/nvls.cc") for failure in failures),
        "vague": not failures and not any(cuda.FULL in notice.message for notice in torch),
        "asked by others": asked,
        "harmless": asked and not facts.job.failed,
    }
    ranks = ranks_in(notices) | {rank for notice in torch for rank in _stated_ranks(facts, notice)}
    yield Hit(notices, named, (), ranks, hosts_in(notices), first_evidence([*notices, *sizes]))


def _is_asked_by_others(facts: Facts, notices: list[Notice]) -> bool:
    """Whether only helpers lacked memory that a peer asked for (2.8 to 2.11): any stranger may be that peer."""
    helpers = facts.notices("nccl/remote-allocator-failed")
    answering = {process for notice in helpers for process in notice.processes}
    return bool(answering) and all(answering.issuperset(notice.processes) for notice in notices)


def _stated_ranks(facts: Facts, notice: Notice) -> set[int]:
    """Return the ranks that raised it, according to PyTorch or Ray."""
    rank = rank_prefix(notice)
    return raised_in_ray(facts, notice) if rank is None else {rank}


def _has_ended(facts: Facts, notice: Notice) -> bool:
    """Whether an exception ended its rank, or may have: before 2.1 PyTorch does not name the rank."""
    if exceptions.is_caught(facts, notice):
        return False
    return id(notice) in exceptions.exceptions_of(facts).fatal or bool(facts.job.ended_by) or facts.job.failed
