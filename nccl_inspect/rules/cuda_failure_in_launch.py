"""A CUDA call failed while NCCL launched a collective: usually the program had already broken the CUDA context."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_hits import make_hit
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed calls in source files that launch kernels and copies."""
    if failed := list(filter(cuda.is_launch, cuda.failures(facts))):
        which = cuda.WHICH_KERNEL if failed[0].code in cuda.KERNEL_ERRORS else cuda.DO_THEY_FIT
        yield make_hit(facts, failed, [which, cuda.IS_BROKEN, cuda.EARLIER_OUTPUT])
