"""Host memory allocated with the cuMem interface does not work."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.page_words import Hit

_REFUSED = (1, 217, 801)
_CUDA_FAILED = 1
"""ncclUnhandledCudaError."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed calls in shm.cc, and those in the allocator that shm.cc propagates; or NCCL's automatic fallback."""
    propagated = propagated_errors.frames(facts, _CUDA_FAILED, "transport/shm.cc")
    processes = {process for frame in propagated for process in frame.processes}
    calls = [
        *cuda.failed_calls(facts, "transport/shm.cc"),
        *(
            call
            for call in cuda.failed_calls(facts, "include/alloc.h")
            if processes & set(call.processes) or "(ncclCuMemHostAlloc" in (call.location or "")
        ),
    ]
    failed = [call for call in calls if cuda.code_of(call) in _REFUSED]
    if notices := failed or facts.notices("nccl/cumem-host-fallback"):
        yield Hit(notices)
