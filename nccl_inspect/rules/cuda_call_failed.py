"""A CUDA call of NCCL or of PyTorch failed, and the log does not say in which part of them."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import last_words, process_ends
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="cuda-call-failed",
    category="failures",
    severity="error",
    title="A CUDA call of NCCL or of PyTorch failed",
    echoes=("collective-unfinished", "ib-completion-error", "peer-death", "watchdog-*"),
    local=True,
)
_TELLING = (500, 704, 801)
"""Errors that tell more than the place would."""
_PLACE = (
    "NCCL_DEBUG=INFO   # on all ranks, and run again: the WARN of this rank has the place, the lines above it the step",
    cuda.DO_THEY_FIT,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge failures without a source file, as exceptions pass them on, by what CUDA says."""
    failed = [failure for failure in cuda.failures(facts) if failure.file is None and _is_known(failure)]
    whose, place = ("NCCL", _PLACE) if failed else ("PyTorch", ())
    failed = failed or _of_program(facts)
    if not failed:
        return
    code, notices = failed[0].code, [failure.notice for failure in failed]
    yield RULE.finding(
        f"a CUDA call of {whose} failed: {listed(dict.fromkeys(map(cuda.words, failed)))}",
        cause=cuda.cause(code),
        impact=cuda.IMPACT,
        fix=cuda.fix(code, (*((cuda.WHICH_KERNEL,) if code in cuda.KERNEL_ERRORS else ()), *place, cuda.IS_BROKEN)),
        confidence="likely" if any(map(_tells, failed)) else "possible",
        notices=notices,
        fatal=True,
        explains_errors=cuda.retold(facts, failed),
    )


def _is_known(failure: cuda.Failure) -> bool:
    """Whether the error itself says at least what kind of thing went wrong, whatever made the call."""
    return _tells(failure) or failure.code in cuda.MEANINGS


def _tells(failure: cuda.Failure) -> bool:
    """Whether the error itself is the cause."""
    return failure.code in _TELLING or failure.code in cuda.KERNEL_ERRORS or failure.code in cuda.ANSWERS


def _of_program(facts: Facts) -> list[cuda.Failure]:
    """Errors that PyTorch reports; not those of processes whose end is told by itself."""
    said = [
        one
        for one in facts.notices("torch/watchdog-terminated", "torch/cuda-error")
        if not exceptions.is_caught(facts, one)
    ]
    ended = process_ends(facts)
    told = {cuda.code_in(str(value(one, "error"))) for one in last_words(facts, ended).values()}
    failed = []
    for notice in said:
        error = str(value(notice, "error")).removeprefix(cuda.ERROR)
        code = cuda.CUDA_CODES.get(error)
        is_told = code in told or any(precedes(one.begin, notice) for one in ended)
        # What the program's own calls gave it may have caught; no call works any more after the error of a kernel.
        known = cuda.KERNEL_ERRORS if notice.production == "torch/cuda-error" else {*cuda.KERNEL_ERRORS, *cuda.ANSWERS}
        if code in known and not is_told:
            failed.append(cuda.Failure(code, None, error, notice))
    return failed
