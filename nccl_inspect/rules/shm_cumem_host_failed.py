"""Host memory allocated with the cuMem interface does not work."""

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed

RULE = Rule(
    name="shm-cumem-host-failed",
    category="intra-node path",
    title="Shared host memory allocated with CUDA's cuMem interface does not work",
    may_cause=("no-shm",),
    local=True,
)
_REFUSED = (1, 217, 801)
_CUDA_FAILED = 1
"""ncclUnhandledCudaError."""
_FIX = (
    "NCCL_CUMEM_HOST_ENABLE=0   # uses /dev/shm again, which must then be large enough",
    "--cap-add SYS_NICE   # option of docker run, for get_mempolicy",
    "securityContext: {capabilities: {add: [SYS_NICE]}}   # pod spec, likewise",
    "Upgrade: NCCL 2.26.3 and later tests it and falls back automatically; drivers for CUDA 13.0 and later do not need "
    "P2P.",
)


def judge(facts: Facts) -> Results:
    """Judge failed calls of the cuMem host path; NCCL's automatic fallback is a note."""
    failed = _failed(facts)
    fell_back = facts.notices("nccl/cumem-host-fallback")
    if failed:
        yield RULE.finding(
            f"shared host memory could not be allocated or mapped: {failed[0].message}",
            cause="cuMem host memory (default since 2.24 with drivers for CUDA 12.6 and later) needs NUMA support in "
            "the container and peer access between the GPUs; one of them is missing",
            impact="the rank fails, and with it the job",
            fix=_FIX,
            confidence="likely",
            notices=failed,
            fatal=True,
        )
    elif fell_back:
        yield RULE.finding(
            "cuMem host memory does not work here; NCCL uses /dev/shm instead",
            cause="NCCL tested it and fell back to files in /dev/shm; often a container without NUMA support",
            impact="none as long as /dev/shm is large enough",
            fix=[
                "NCCL_CUMEM_HOST_ENABLE=0   # avoids the test and the line; otherwise there is nothing to fix",
                *_FIX[1:3],
            ],
            severity="info",
            notices=fell_back,
        )


def _failed(facts: Facts) -> list[Notice]:
    """Failures in shm.cc, and those in the allocator that shm.cc propagates."""
    propagated = propagated_errors.frames(facts, _CUDA_FAILED, "transport/shm.cc")
    processes = {process for frame in propagated for process in frame.processes}
    return [
        *(notice for notice in cuda_failed(facts, "transport/shm.cc") if code_of(notice) in _REFUSED),
        *(
            notice
            for notice in cuda_failed(facts, "include/alloc.h")
            if code_of(notice) in _REFUSED
            and (processes & set(notice.processes) or "(ncclCuMemHostAlloc" in (notice.location or ""))
        ),
    ]
