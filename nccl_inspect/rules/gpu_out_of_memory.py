"""A GPU ran out of memory for NCCL, or for PyTorch before the job ended."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.statements import rank_prefix

RULE = Rule(
    name="gpu-out-of-memory",
    category="failures",
    layer=Layer.SYSTEM,
    title="A GPU ran out of memory for NCCL, or for PyTorch before the job ended",
    supersedes=("cuda-call-failed", "cuda-failure-in-launch"),
    local=True,
)

_SHARED = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv   # does another process hold the memory?"
_ON_HOST = "host alloc"
_GPU_STEPS = (
    "Leave some GB for NCCL: a smaller batch, more sharding, or torch.cuda.set_per_process_memory_fraction(0.9).",
    _SHARED,
    "NCCL_BUFFSIZE=2097152 NCCL_MAX_CTAS=8   # smaller buffers (before 2.17: NCCL_MAX_NCHANNELS=8)",
)
_JAX_STEP = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.6   # JAX takes 75% of the GPU at startup; NCCL needs some of the rest"
_NVLS_STEP = "NCCL_NVLS_ENABLE=0   # its buffers are large; slower all-reduce within hosts"
_HOST_STEPS = (
    "free -g; ulimit -l   # inside the container: is memory left, and can it be pinned?",
    "Give the pod or job more memory (resources.limits.memory, Slurm --mem), or pin less in data loaders.",
    "dmesg -T | grep -iE 'oom|killed process'   # on its host",
)


def judge(facts: Facts) -> Results:
    """Judge CUDA's "out of memory" from NCCL; from PyTorch, which programs catch, if it ended a rank or the job."""
    failures = [failure for failure in cuda.failures(facts) if failure.code == cuda.OUT_OF_MEMORY]
    torch = [notice for notice in _torch_errors(facts) if _has_ended(facts, notice)]
    notices = [*(failure.notice for failure in failures), *torch]
    sizes = facts.notices("nccl/cuda-allocation-failed", "rccl/rccl-cumem-allocation-failed")
    if not notices:
        if sizes and not cuda.failures(facts):
            yield _without_reason(sizes)
        return
    host_calls = any(value(notice, "call") == _ON_HOST for notice in sizes)
    on_host = not torch and (host_calls or all("shm.cc" in (failure.file or "") for failure in failures))
    of_xla = bool(facts.notices("frameworks/xla-nccl-failed"))
    asked = _asked_by_others(facts, notices)
    harmless = asked and not facts.job.failed
    yield RULE.finding(
        f"{'host' if on_host else 'GPU'} memory ran out when {_allocator(failures)} asked for more",
        cause="no pinned host memory was left: the failed call allocates on the host. The pod, the job or the host has "
        "reached its memory limit, or pinning is not allowed"
        if on_host
        else "the framework has taken nearly all memory of the GPU, or another process shares it; NCCL allocates its "
        "buffers outside the framework's pool, and more for every communicator and connection",
        impact="the rank fails, and with it the job; the others wait for it or lose their connections",
        fix=_HOST_STEPS if on_host else [*_specific_steps(failures, of_xla), *_GPU_STEPS],
        ranks=ranks_in(notices) | {rank for notice in torch for rank in _stated_ranks(facts, notice)},
        hosts=hosts_in(notices),
        evidence=[*first_evidence(notices), *first_evidence(sizes)],
        severity="warning" if harmless else None,
        confirm="Did a call of NCCL fail afterwards, on this rank or on another of its host?" if harmless else "",
        confidence="possible"
        if asked
        else "likely"
        if on_host or of_xla or not (failures or any(cuda.FULL in notice.message for notice in torch))
        else "certain",
        fatal=not harmless,
    )


def _asked_by_others(facts: Facts, notices: list[Notice]) -> bool:
    """Whether only helpers lacked memory that a peer asked for (2.8 to 2.11): any stranger may be that peer."""
    helpers = facts.notices("nccl/remote-allocator-failed")
    answering = {process for notice in helpers for process in notice.processes}
    return bool(answering) and all(answering.issuperset(notice.processes) for notice in notices)


def _stated_ranks(facts: Facts, notice: Notice) -> set[int]:
    """The ranks that raised it, according to PyTorch or Ray."""
    rank = rank_prefix(notice)
    return ray.raised_by(facts, notice) if rank is None else {rank}


def _specific_steps(failures: list[cuda.Failure], of_xla: bool) -> Iterator[str]:
    """Steps for a known place or framework."""
    if of_xla:
        yield _JAX_STEP
    if any(str(failure.file).endswith("transport/nvls.cc") for failure in failures):
        yield _NVLS_STEP


def _torch_errors(facts: Facts) -> list[Notice]:
    full = [notice for notice in facts.notices("torch/cuda-error") if cuda.is_out_of_memory(notice)]
    return [*facts.notices("torch/cuda-out-of-memory"), *full]


def _has_ended(facts: Facts, notice: Notice) -> bool:
    """Whether an exception ended its rank, or may have: before 2.1 PyTorch does not name the rank."""
    if exceptions.is_caught(facts, notice):
        return False
    return id(notice) in exceptions.exceptions_of(facts).fatal or bool(facts.job.ended_by) or facts.job.failed


def _without_reason(sizes: list[Notice]) -> Finding:
    """A failed allocation without the line that has CUDA's reason, as in exceptions that repeat NCCL's message."""
    on_host = all(value(notice, "call") == _ON_HOST for notice in sizes)
    return RULE.finding(
        f"{sizes[0].message}; the log does not show CUDA's reason",
        cause=(
            "most often no pinned host memory is left: the pod, the job or the host has reached its memory limit. "
            if on_host
            else "most often the GPU is full: the framework has taken nearly all memory, or another process shares it. "
        )
        + "An error of an earlier kernel, or a mismatched driver, looks the same here",
        impact="the rank fails, and with it the job",
        fix=[
            "NCCL_DEBUG=INFO   # (or WARN) the 'Cuda failure' line before this one has the reason",
            *(_HOST_STEPS if on_host else (_SHARED,)),
        ],
        notices=sizes,
        confidence="possible",
        fatal=True,
    )


def _allocator(failures: list[cuda.Failure]) -> str:
    if not failures:
        return "PyTorch"
    return f"NCCL ({failures[0].file})" if failures[0].file else "NCCL"
