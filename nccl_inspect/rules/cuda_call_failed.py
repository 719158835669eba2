"""A CUDA call of NCCL or PyTorch failed, and the log does not show in which part."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import last_words, process_ends
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="cuda-call-failed",
    category="failures",
    layer=Layer.PROGRAM,
    title="A CUDA call of NCCL or PyTorch failed",
    local=True,
)
_TELLING = (500, 704, 801)
"""Errors that say more than their location would."""
_PRINTED = "frameworks/cuda-call-failed"
"""Programs that print it end."""
_PLACE = (
    "NCCL_DEBUG=INFO   # on all ranks, and rerun: the WARN of this rank names the place, the lines above it the step",
    cuda.DO_THEY_FIT,
)


def judge(facts: Facts) -> Results:
    """Judge failures without a source file, as exceptions repeat them, by CUDA's message."""
    failed = [failure for failure in cuda.failures(facts) if failure.file is None and _is_informative(failure)]
    origin, place = ("NCCL", _PLACE) if failed else ("PyTorch", ())
    failed = failed or _pytorch_failures(facts)
    if not failed:
        return
    code, notices = failed[0].code, [failure.notice for failure in failed]
    kernel = (cuda.WHICH_KERNEL,) if code in cuda.KERNEL_ERRORS else ()
    yield RULE.finding(
        f"a CUDA call of {origin} failed: {listed(dict.fromkeys(map(cuda.words, failed)))}",
        cause=cuda.cause(code),
        impact=cuda.IMPACT,
        fix=cuda.on_hardware(cuda.fix(code, (*kernel, *place, cuda.IS_BROKEN)), facts),
        confidence="likely" if any(map(_is_cause, failed)) else "possible",
        notices=notices,
        fatal=True,
        explains_errors=cuda.matching_exceptions(facts, failed),
    )


def _is_informative(failure: cuda.Failure) -> bool:
    """Whether the error itself shows at least what kind of thing went wrong, whoever made the call."""
    return _is_cause(failure) or failure.code in cuda.MEANINGS


def _is_cause(failure: cuda.Failure) -> bool:
    """Whether the error itself is the cause."""
    return failure.code in _TELLING or failure.code in cuda.KERNEL_ERRORS or failure.code in cuda.ANSWERS


def _pytorch_failures(facts: Facts) -> list[cuda.Failure]:
    """Errors that PyTorch reports, except those of processes whose end has its own finding."""
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
