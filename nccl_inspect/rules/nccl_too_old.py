"""The NCCL release is older than the GPUs."""

from collections.abc import Iterator

from nccl_inspect.event.types import NcclTestResult
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.hardware import cuda, generations
from nccl_inspect.judging.hardware.machine_type import gpu_names
from nccl_inspect.judging.page_words import Hit

_NO_KERNEL = [
    cuda.CUDA_CODES[text]
    for text in ("no kernel image is available for execution on the device", "invalid device function")
]
_TOO_SMALL = ("nccl/shared-memory-exceeded", "nccl/shared-memory-too-small")
"""NCCL detects that its kernels need more shared memory than the GPU has; 2.25.1 prints it at INFO and fails at
launch."""
_COUNTS_LINKS = (2, 15, 1)
"""The first release that reads all 18 NVLinks of a Hopper GPU; earlier ones read 12 (src/graph/xml.cc), so that one end
of a link may be missing."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find kernels that the GPU rejects, and links that a release overlooks; an old release that works is fine."""
    crashed = [call for call in cuda.failed_calls(facts, "enqueue.cc", "init.cc") if cuda.code_of(call) == 1]
    small = facts.notices(*_TOO_SMALL)
    refused = [call for call in cuda.failed_calls(facts) if cuda.code_of(call) in _NO_KERNEL]
    refused += [notice for notice in small if notice.level == "WARN" or crashed]
    platform = {facts.platform.gpu} if facts.platform and facts.platform.gpu else set()
    gpus = gpu_names(facts.job) or platform
    gpu, overlooked = generations.of(gpus), facts.notices("nccl/topology-reverse-path")
    first = gpu.first if gpu else _COUNTS_LINKS
    is_old = any(generations.is_before(release, first) for release in facts.job.nccl_versions)
    version = first_evidence(facts.notices("nccl/nccl-version"))[:1]
    named = {
        "release": ", ".join(facts.job.nccl_versions) or "of unknown version",
        "gpu": ", ".join(sorted(gpus)),
        "needed": "; ".join(f"{one.words} {generations.number(one.first)}" for one in generations.GENERATIONS),
        "likely": not refused,
    }
    if refused:
        yield Hit(refused, named, evidence=[*first_evidence(refused), *version])
    elif small and not facts.with_event(NcclTestResult):
        yield Hit(small, named | {"too small": True})
    elif is_old and (overlooked or (gpu and crashed)):
        old = [*(crashed if gpu else ()), *overlooked]
        yield Hit(old, named, evidence=[*first_evidence(old), *version])
    elif gpu is None and crashed:
        yield Hit(named={"unknown model": True})
    elif gpu and is_old and facts.job.failed and not facts.job.paths:
        errors, listed = facts.errors(forced_ends=False), facts.with_role("rank-list")
        yield Hit(
            named=named | {"generation": gpu.words, "first": generations.number(gpu.first)},
            evidence=[*version, *first_evidence([*listed[:1], *errors[:2]])],
        )
