"""The program passes invalid arguments to NCCL, or makes an invalid call."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule
from nccl_inspect.judging.statements import entry_for_role, is_propagated_error

RULE = Rule(
    name="invalid-usage",
    category="failures",
    layer=Layer.PROGRAM,
    title="The program calls NCCL in an invalid way",
)
_MEMORY = "memory of another device, or memory that was freed: NCCL needs memory of the communicator's own GPU"
_NULL = "a null communicator or other null pointer: often one that a failed call did not fill in"
_ARGUMENT = "an invalid argument"
_RELEASES = "program and library were built for different NCCL releases"
_UNSET = f"a structure that was not set up with its NCCL_…_INITIALIZER; or {_RELEASES}"
_BUILT = f"{_RELEASES}: the program is too old, two libraries are installed, or LD_LIBRARY_PATH points to the wrong one"
_LIFE = "a communicator that is destroyed, corrupted or not ready yet"
_GROUP = "calls that cannot be in the same group"
_STATED = "the message names what is invalid"
_FP8 = "a reduction of 8-bit floating point numbers, which GPUs before Hopper (compute capability 9.0) do not support"
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
"""By role: what is wrong."""
_CODES = (4, 5)
_AFTER_FAILURES = (_NULL, _LIFE)
"""What programs also do that continue after an NCCL call failed."""
_ONE_LIBRARY = "python -c 'import torch; print(torch.cuda.nccl.version())'; ldconfig -p | grep libnccl   # one NCCL?"
_FIXES = {
    _MEMORY: "torch.cuda.set_device(local_rank)   # before anything is placed on a GPU",
    _UNSET: _ONE_LIBRARY,
    _BUILT: _ONE_LIBRARY,
    _FP8: "Reduce in bfloat16 or float16, or use Hopper or newer GPUs; copying 8-bit data works everywhere.",
}


def judge(facts: Facts) -> Results:
    """Judge NCCL's lines about its arguments and calls."""
    failed = [notice for notice in facts.errors_of_rule(RULE.name) if not is_propagated_error(notice)]
    if not failed:
        yield from _without_words(facts)
        return
    failed.sort(key=lambda notice: entry_for_role(notice, _KINDS) is None)
    cause = entry_for_role(failed[0], _KINDS) or _STATED
    is_effect = cause in _AFTER_FAILURES and any(_is_before(error, failed[0]) for error in facts.errors())
    yield RULE.finding(
        f"NCCL rejects a call: {failed[0].message}",
        cause=cause if cause in (_BUILT, _STATED) else f"the program passes {cause}",
        impact="the call fails, and most programs end",
        fix=[
            *(["Look at the earlier errors: they may have led to this call."] if is_effect else []),
            *([_FIXES[cause]] if cause in _FIXES else []),
            "Look at the traceback of this rank: it names the call to fix.",
        ],
        confidence="possible" if is_effect else "certain",
        notices=failed,
        fatal=not is_effect and (facts.job.failed or not facts.job.paths),
        explains_errors=failed,
    )


def _without_words(facts: Facts) -> Iterator[Finding]:
    """NCCL's codes 4 and 5 where no warning names the invalid argument or call."""
    codes = [notice for code in _CODES for notice in propagated_errors.unexplained(facts, code)]
    if not codes:
        return
    yield RULE.finding(
        "NCCL rejects a call as invalid (code 4 or 5), and no warning says why",
        cause="unknown from this log; likely: two ranks on one GPU, else an invalid argument, memory of another "
        "device, or a communicator that failed before",
        impact="the call fails, and most programs end",
        fix=[
            "NCCL_DEBUG=INFO   # (or WARN) on all ranks, then rerun: the WARN names it",
            _FIXES[_MEMORY],
            "Look at the traceback of this rank: it names the call to fix.",
        ],
        confidence="possible",
        notices=codes,
        fatal=True,
    )


def _is_before(earlier: Notice, later: Notice) -> bool:
    """Whether an error of another kind precedes it in the log."""
    return earlier.place < later.place and entry_for_role(earlier, _KINDS) is None
