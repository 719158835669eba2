"""The NCCL release is older than the GPUs."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.cuda import CUDA_CODES, code_of
from nccl_inspect.rules.cuda import failed as cuda_failed
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in

RULE = Rule(
    name="nccl-too-old",
    category="environment",
    severity="error",
    title="The NCCL release is older than the GPUs",
)
_NO_KERNEL = [
    CUDA_CODES[text] for text in ("no kernel image is available for execution on the device", "invalid device function")
]
_FIRST_WITH = {"H100": (2, 15), "H200": (2, 15), "B200": (2, 25, 1), "GB200": (2, 25, 1)}
"""The first release that is built for a GPU (makefiles/common.mk)."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge kernels that the GPU does not take; an old release that works is none of it."""
    refused = [
        *(notice for notice in cuda_failed(facts) if code_of(notice) in _NO_KERNEL),
        *(notice for notice in facts.notices("shared-memory-exceeded") if notice.level == "WARN"),
    ]
    crashed = [] if refused else [n for n in cuda_failed(facts, "enqueue.cc", "init.cc") if code_of(n) == 1]
    if not (refused or crashed):
        return
    gpu = facts.platform.gpu if facts.platform else None
    versions = ", ".join(facts.job.nccl_versions) or "of unknown version"
    first = _FIRST_WITH.get(gpu or "")
    older = first is not None and any(_number(version) < first for version in facts.job.nccl_versions)
    if crashed and not older:
        if gpu is None:
            yield RULE.undecided(
                "CUDA refuses a call of NCCL's kernels (invalid argument); whether this release is too old for the "
                "GPU needs its model",
                "--platform NAME, or the model from nvidia-smi -L, and a log with the line 'NCCL version'",
            )
        return
    yield RULE.finding(
        f"NCCL {versions} has no kernels that this GPU{f' ({gpu})' if gpu else ''} can run",
        cause="the library was built before this GPU generation, or without its architecture: Hopper needs 2.15, "
        "B200 2.25.1, RTX Blackwell (sm_120) 2.26.2",
        impact="the first collective, or the initialisation, fails",
        fix=[
            "pip install -U nvidia-nccl-cu12   # or nvidia-nccl-cu13, a newer PyTorch wheel, a newer image",
            "python -c 'import torch; print(torch.cuda.nccl.version(), torch.cuda.get_arch_list())'   # "
            "which one is used?",
            "make -j src.build NVCC_GENCODE='-gencode=arch=compute_90,code=sm_90'   # own build: the "
            "architecture of your GPU",
            "ldconfig -p | grep libnccl; echo $LD_LIBRARY_PATH   # no old copy in front?",
        ],
        confidence="certain" if refused else "likely",
        ranks=ranks_in(refused or crashed),
        hosts=hosts_in(refused or crashed),
        evidence=[*first_said(refused or crashed), *first_said(facts.notices("nccl-version"))[:1]],
        fatal=True,
    )


def _number(version: str) -> tuple[int, ...]:
    """2.26.2+cuda12.8 as (2, 26, 2)."""
    parts = version.partition("+")[0].split(".")
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)
