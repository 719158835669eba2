"""The NCCL release is older than the GPUs."""

from nccl_inspect.event.types import NcclTestResult
from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.hardware import generations
from nccl_inspect.judging.hardware.cuda import CUDA_CODES, code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed
from nccl_inspect.judging.hardware.machine_type import gpu_names

RULE = Rule(
    name="nccl-too-old",
    category="environment",
    title="The NCCL release is older than the GPUs",
    supersedes=("cuda-call-failed", "cuda-failure-in-connect", "cuda-failure-in-launch"),
)
_NO_KERNEL = [
    CUDA_CODES[text] for text in ("no kernel image is available for execution on the device", "invalid device function")
]
_TOO_SMALL = ("nccl/shared-memory-exceeded", "nccl/shared-memory-too-small")
"""NCCL detects that its kernels need more shared memory than the GPU has; 2.25.1 prints it at INFO and fails at
launch."""
_COUNTS_LINKS = (2, 15, 1)
"""The first release that reads all 18 NVLinks of a Hopper GPU; earlier ones read 12 (src/graph/xml.cc), so that one end
of a link may be missing."""


def judge(facts: Facts) -> Results:
    """Judge kernels that the GPU rejects, and links that a release overlooks; an old release that works is fine."""
    crashed = [notice for notice in cuda_failed(facts, "enqueue.cc", "init.cc") if code_of(notice) == 1]
    small = facts.notices(*_TOO_SMALL)
    refused = [
        *(notice for notice in cuda_failed(facts) if code_of(notice) in _NO_KERNEL),
        *(notice for notice in small if notice.level == "WARN" or crashed),
    ]
    if refused:
        yield _finding(facts, refused, "certain")
        return
    if small and not facts.with_event(NcclTestResult):
        yield _launches_will_fail(facts, small)
        return
    gpu = generations.of(_gpus(facts))
    overlooked = facts.notices("nccl/topology-reverse-path")
    if gpu is None and overlooked and _is_old(facts, _COUNTS_LINKS):
        yield _finding(facts, overlooked, "likely")
    elif gpu is None and crashed:
        yield RULE.undecided(
            "CUDA rejects a launch of NCCL's kernels (invalid argument); whether this release is too old for the "
            "GPU depends on its model",
            Needs("a log with the line 'NCCL version'", platform=True, others=("the GPU model from nvidia-smi -L",)),
        )
    elif gpu is not None and _is_old(facts, gpu.first):
        if crashed or overlooked:
            yield _finding(facts, [*crashed, *overlooked], "likely")
        elif facts.job.failed and not facts.job.paths:
            yield _clue(facts, gpu)


def _gpus(facts: Facts) -> set[str]:
    """The names of the GPUs, from nccl-tests, nvidia-smi or the machine type."""
    named = gpu_names(facts.job)
    return named or ({facts.platform.gpu} if facts.platform and facts.platform.gpu else set())


def _is_old(facts: Facts, first: tuple[int, ...]) -> bool:
    return any(generations.is_before(release, first) for release in facts.job.nccl_versions)


def _release(facts: Facts) -> str:
    return ", ".join(facts.job.nccl_versions) or "of unknown version"


_NEEDED = "; ".join(f"{gpu.words} {generations.number(gpu.first)}" for gpu in generations.GENERATIONS)
_FIX = (
    "pip install -U nvidia-nccl-cu12   # or nvidia-nccl-cu13, a newer PyTorch wheel, a newer image",
    "python -c 'import torch; print(torch.cuda.nccl.version(), torch.cuda.get_arch_list())'   # which one is used?",
    "make -j src.build NVCC_GENCODE='-gencode=arch=compute_90,code=sm_90'   # custom build: your GPU's architecture",
    "ldconfig -p | grep libnccl; echo $LD_LIBRARY_PATH   # is an old copy found first?",
)


def _finding(facts: Facts, notices: list[Notice], confidence: str) -> Finding:
    gpu = ", ".join(sorted(_gpus(facts)))
    links = notices[0].production == "nccl/topology-reverse-path"
    return RULE.finding(
        f"NCCL {_release(facts)} does not know all NVLinks of this GPU: {notices[0].message}"
        if links
        else f"NCCL {_release(facts)} has no kernels that this GPU{f' ({gpu})' if gpu else ''} can run",
        cause="the release is older than the GPU and reads only some of its NVLinks, so that a link is seen from only "
        "one end: Hopper needs 2.15.1"
        if links
        else f"the library was built before this GPU generation, or without its architecture. First releases: "
        f"{_NEEDED}",
        impact="initialization or the first collective fails",
        fix=_FIX,
        confidence=confidence,
        notices=notices,
        evidence=[*first_evidence(notices), *first_evidence(facts.notices("nccl/nccl-version"))[:1]],
        fatal=True,
    )


def _launches_will_fail(facts: Facts, small: list[Notice]) -> Finding:
    return RULE.clue(
        f"NCCL {_release(facts)} is older than this GPU: {small[0].message}",
        cause="its kernels need more shared memory than the GPU has, as with 2.25.1 on RTX Blackwell (sm_120), which "
        "2.26.2 is the first to support",
        impact="NCCL continues, but the launch of the first collective fails (invalid argument)",
        fix=_FIX,
        confirm="Look at the first collective: does it fail with 'invalid argument'?",
        notices=small,
    )


def _clue(facts: Facts, gpu: generations.Generation) -> Finding:
    return RULE.clue(
        f"NCCL {_release(facts)} is older than the GPUs: {gpu.words} need {generations.number(gpu.first)}",
        cause="the release was built before this GPU generation. It may still run through JIT compilation, but does "
        "not know the links and limits of the GPU",
        impact="initialization or the first collective may fail, as it did here",
        fix=_FIX,
        confirm="Rerun with a release built for the GPU: does it fail in the same way?",
        confidence="possible",
        evidence=[
            *first_evidence(facts.notices("nccl/nccl-version"))[:1],
            *first_evidence(facts.with_role("rank-list"))[:1],
            *first_evidence(facts.errors(forced_ends=False))[:2],
        ],
    )
