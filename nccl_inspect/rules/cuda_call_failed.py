"""A CUDA call of NCCL or PyTorch failed, and the log does not show in which part."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.ends import last_words, process_ends
from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_hits import make_hit
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.page_words import Hit

_TELLING = {500, 704, 801, *cuda.KERNEL_ERRORS, *cuda.ANSWERS}
"""Errors that are the cause themselves, or say more than their location would."""
_PRINTED = "frameworks/cuda-call-failed"
"""Programs that print it end."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find failures without a source file, as exceptions repeat them, by CUDA's message."""
    informative = {*_TELLING, *cuda.MEANINGS}
    of_nccl = [one for one in cuda.failures(facts) if one.file is None and one.code in informative]
    if failed := of_nccl or _find_pytorch_failures(facts):
        kernel = [cuda.WHICH_KERNEL] if failed[0].code in cuda.KERNEL_ERRORS else []
        place = [cuda.WHICH_PLACE, cuda.DO_THEY_FIT] if of_nccl else []
        yield make_hit(
            facts,
            failed,
            [*kernel, *place, cuda.IS_BROKEN],
            {
                "PyTorch": not of_nccl,
                "cause itself": any(one.code in _TELLING for one in failed),
            },
        )


def _find_pytorch_failures(facts: Facts) -> list[cuda.Failure]:
    """Find errors that PyTorch reports, except those of processes whose end has its own finding."""
    ends = process_ends(facts)
    judged = {cuda.code_in(str(value(last, "error"))) for last in last_words(facts, ends).values()}
    failed = []
    for notice in facts.notices("torch/watchdog-terminated", "torch/cuda-error", _PRINTED):
        if exceptions.is_caught(facts, notice):
            continue
        error = str(value(notice, "error")).removeprefix(cuda.ERROR)
        code = cuda.CUDA_CODES.get(error)
        # The program may have caught errors of its own calls; after the error of a kernel, every call fails.
        fatal = cuda.KERNEL_ERRORS if notice.production == "torch/cuda-error" else {*cuda.KERNEL_ERRORS, *cuda.ANSWERS}
        is_judged = code in judged or any(precedes(end.begin, notice) for end in ends)
        is_fatal = code in fatal or (code is not None and notice.production == _PRINTED)
        if is_fatal and not is_judged:
            failed.append(cuda.Failure(code, None, error, notice))
    return failed
