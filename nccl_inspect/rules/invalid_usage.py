"""The program calls NCCL in a way that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import is_retold, of_role
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="invalid-usage",
    category="failures",
    severity="error",
    title="The program calls NCCL in a way that cannot be",
)
_MEMORY = "memory that is no memory of this GPU, or was freed: NCCL takes device memory of the communicator's own GPU"
_NULL = "no communicator, or no other pointer, where NCCL needs one: often what a call that had failed did not fill in"
_ARGUMENT = "an argument that cannot be"
_RELEASES = "program and library were built for different NCCL releases"
_UNSET = f"a structure that its NCCL_…_INITIALIZER did not fill in; or {_RELEASES}"
_BUILT = f"{_RELEASES}: the program is too old, two libraries are installed, or LD_LIBRARY_PATH leads to the wrong one"
_LIFE = "a communicator that is destroyed, damaged or not ready yet"
_GROUP = "calls that may not stand in one group"
_STATED = "the message names what cannot be"
_FP8 = "a reduction of 8-bit floating point numbers, which GPUs before Hopper (compute capability 9.0) cannot do"
_KINDS = {
    "foreign-memory": _MEMORY,
    "missing-pointer": _NULL,
    "bad-argument": _ARGUMENT,
    "unset-structure": _UNSET,
    "other-release": _BUILT,
    "dead-communicator": _LIFE,
    "bad-group": _GROUP,
    "fp8-reduction": _FP8,
}
"""By role what is wrong."""
_CODES = (4, 5)
_AFTER_FAILURES = (_NULL, _LIFE)
"""What a program also does that goes on after a call of NCCL has failed."""
_ONE_LIBRARY = "python -c 'import torch; print(torch.cuda.nccl.version())'; ldconfig -p | grep libnccl   # one NCCL?"
_FIXES = {
    _MEMORY: "torch.cuda.set_device(local_rank)   # before anything is put on a GPU",
    _UNSET: _ONE_LIBRARY,
    _BUILT: _ONE_LIBRARY,
    _FP8: "Reduce in bfloat16 or float16, or run on GPUs from Hopper on; copies of 8-bit data work everywhere.",
}


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of its arguments."""
    failed = [notice for notice in facts.leading_to(RULE.name) if not is_retold(notice)]
    if not failed:
        yield from _without_words(facts)
        return
    failed.sort(key=lambda notice: of_role(notice, _KINDS) is None)
    cause = of_role(failed[0], _KINDS) or _STATED
    is_effect = cause in _AFTER_FAILURES and any(_is_before(one, failed[0]) for one in facts.errors())
    yield RULE.finding(
        f"NCCL is called in a way that cannot be: {failed[0].message}",
        cause=cause if cause in (_BUILT, _STATED) else f"the program passes {cause}",
        impact="the call fails, and most programs end with it",
        fix=[
            *(["Look at the errors that stand before: this call may only follow from them."] if is_effect else []),
            *([_FIXES[cause]] if cause in _FIXES else []),
            "Look at the traceback of this rank: the call that it names is the one to mend.",
        ],
        confidence="possible" if is_effect else "certain",
        notices=failed,
        fatal=not is_effect and (facts.job.failed or not facts.job.paths),
        explains_errors=failed,
    )


def _without_words(facts: Facts) -> Iterator[Finding]:
    """NCCL's codes 4 and 5 where no warning tells which argument or call cannot be."""
    said = [notice for code in _CODES for notice in propagated_errors.unexplained(facts, code)]
    if not said:
        return
    yield RULE.finding(
        "NCCL reports that it is called in a way that cannot be (code 4 or 5) and no warning says why",
        cause="unknown from this log; likely: two ranks on one GPU, else an argument that cannot be, memory of another "
        "device, or a communicator that has failed before",
        impact="the call fails, and most programs end with it",
        fix=[
            "NCCL_DEBUG=INFO   # (or WARN) on all ranks, and run again: the WARN names it",
            _FIXES[_MEMORY],
            "Look at the traceback of this rank: the call that it names is the one to mend.",
        ],
        confidence="possible",
        notices=said,
        fatal=True,
    )


def _is_before(one: Notice, other: Notice) -> bool:
    """Whether another kind of error stands before in the log."""
    return one.place < other.place and of_role(one, _KINDS) is None
