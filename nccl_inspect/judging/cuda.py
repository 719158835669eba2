"""Failed CUDA calls: their codes and meanings, what made them, and fixes for errors that are the cause."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

from nccl_inspect.event.types import CudaFailure, ErrorCascade
from nccl_inspect.judging import ends, exceptions, remedies
from nccl_inspect.judging.facts import Facts, once, precedes
from nccl_inspect.judging.statements import error_of, value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.records import Frozen

_ERRORS = Path(__file__).with_name("cuda_errors.txt")
AT_START = frozenset((3, 34, 35, 46, 100, 101, 102, 127, 216, *range(803, 810), 999))
"""Errors from starting CUDA; a process that already connects has CUDA, and another fault."""
_LAUNCH = ("enqueue", "ce_coll", "device/", "rma/", "scheduler/", "sym_kernels", "misc/strongstream")
"""Prefixes of source files that launch kernels and copies or wait for streams; all others build communicators and
connections."""
FULL = "out of memory"
ERROR = "CUDA error: "  # PyTorch's prefix of CUDA's error text
NO_HANDLE = "CUBLAS_STATUS_ALLOC_FAILED"  # what PyTorch says where the GPU has no memory for cuBLAS's own buffers
OUT_OF_MEMORY, NOT_PERMITTED, PEERS_EXHAUSTED = 2, 800, 711
NOT_SHARED = (1, 304, 400, NOT_PERMITTED)
"""CUDA's answers to memory of another GPU that cannot be used: invalid argument, not permitted and the like."""
_FABRIC = 802, 919
_TELLING = (500, 704, 801)  # errors that are not the cause themselves, but say more than their location would
_PRINTED = "frameworks/cuda-call-failed"  # programs that print it end
NO_HOST_MEMORY = (1, 217, 801)  # its answers where shared host memory cannot be allocated or mapped


class Failure(Frozen):
    """One failed CUDA call, as one or more processes report it."""

    code: int | None
    file: str | None  # source file of NCCL without its folder ``src``: ``transport/p2p.cc``
    error: str
    notice: Notice


@cache
def _list_errors() -> dict[int | None, dict[str, list[str]]]:
    """Return what is known of each error, by its number; few logs have any."""
    errors: dict[int | None, dict[str, list[str]]] = {}
    own: dict[str, list[str]] = {}
    for line in _ERRORS.read_text(encoding="utf-8").replace("\n    ", " ").split("\n"):
        key, _, text = line.strip().partition(": ")
        if line.startswith("  "):
            own.setdefault(key, []).append(remedies.look_up(text))
        elif key.isdigit():
            own = errors.setdefault(int(key), {})
            own.setdefault("text", []).append(text)
    for code, own in errors.items():
        errors[code] = errors[int(own["as"][0])] | own if "as" in own else own
    return errors


@cache
def _list_codes() -> dict[str, int | None]:
    """Return the numbers of errors by their texts; up to CUDA 10.0 many texts had other numbers than those printed."""
    return {text: code for code, known in _list_errors().items() for text in known["text"]}


def code_of_text(text: str) -> int | None:
    """Return the number of an error of that text; runtime calls print only the text."""
    return _list_codes().get(text)


def find_start_code(text: str, but: int) -> int | None:
    """Return the number of the error from starting CUDA, but for one, whose text is in another text."""
    return next((code for own, code in _list_codes().items() if code in AT_START and code != but and own in text), None)


def knows(code: int | None, key: str) -> bool:
    """Return whether something is known of an error: that a kernel made it, its cause, what its text means."""
    return key in _list_errors().get(code, ())


def find_start_answer(code: int) -> tuple[str, list[str]]:
    """Return the cause of an error from starting CUDA, and its fix."""
    known = _list_errors()[code]
    cause, fix = ("start", "fix at start") if "start" in known else ("cause", "fix")
    return known[cause][0], known[fix]


def code_of(notice: Notice) -> int | None:
    """Return the number of a CUDA failure: by its text, which is stable across releases, else as printed."""
    event = notice.event
    if not isinstance(event, CudaFailure):
        return None
    return code_of_text(event.error) or event.code


def file_of(notice: Notice) -> str:
    """Return the source file that printed a WARN: ``transport/p2p.cc``; some builds print the full path."""
    return (notice.location or "").partition(":")[0].rpartition("/src/")[2]


def failed_calls(facts: Facts, *files: str) -> list[Notice]:
    """Return CUDA calls that failed in one of these files of NCCL (``transport/p2p.cc``), or anywhere if none is given.

    NCCL prints failures that it ignores as INFO: they are left out.
    """
    warnings = [notice for notice in facts.with_event(CudaFailure) if notice.level == "WARN"]
    return [notice for notice in warnings if not files or file_of(notice).endswith(files)]


def is_launch(failure: Failure) -> bool:
    """Return whether a call failed while NCCL launched work, and not while it set up communicators."""
    return failure.file is not None and failure.file.startswith(_LAUNCH)


@once
def failures(facts: Facts) -> list[Failure]:
    """Return failed CUDA calls with the file that made each: for a shared header, the file of the first frame above."""
    calls = [(notice, notice.event) for notice in failed_calls(facts)]
    return [
        Failure(code_of(notice), event.file or _caller(facts, notice), event.error, notice)
        for notice, event in calls
        if isinstance(event, CudaFailure) and not job_failure.is_shutting_down(event)
    ]


def failed_with(facts: Facts, words: Collection[str]) -> list[Notice]:
    """Return the calls that failed: with one of these codes, and in one of these files, where some are named."""
    codes, files = [word for word in words if word.isdigit()], tuple(word for word in words if not word.isdigit())
    failed = [one for one in failures(facts) if not codes or str(one.code) in codes]
    return [one.notice for one in failed if not files or str(one.file).endswith(files)]


def _caller(facts: Facts, notice: Notice) -> str | None:
    """Return the file of a call; RCCL's fatal errors name none, and a shared header prints them, too."""
    file = file_of(notice) or None
    if "(ncclCuMemHostAlloc" in (notice.location or ""):
        return "transport/shm.cc"  # which alone calls it
    if file.endswith(".h") if file else is_hip(notice):
        for frame in facts.with_event(ErrorCascade, lambda event: event.code == 1):
            caller = str(getattr(frame.event, "file", ""))
            is_above = frame.place > notice.place and not caller.endswith(".h")
            if is_above and not set(notice.processes).isdisjoint(frame.processes):
                return caller.rpartition("/src/")[2]
    return file


def is_hip(notice: Notice) -> bool:
    """Return whether RCCL prints the failure of a call of HIP."""
    return getattr(notice.event, "dialect", "") == "rccl"


def code_in(text: str) -> int | None:
    """Return the number of the error that an exception of PyTorch names: ``RuntimeError: CUDA error: …``."""
    return code_of_text(text.partition(ERROR)[2])


def find_cause(code: int | None) -> str:
    """Return the likely cause of a failure that no rule for its code handles."""
    match _list_errors().get(code, {}):
        case {"kernel": [words]}:
            return (
                f"a kernel that ran earlier on this GPU ({words}), usually one of the program and not NCCL's: CUDA "
                "reports it at the next call"
            )
        case {"cause": [words]}:
            return words
        case {"means": [words]}:
            return f"CUDA's error means: {words}. The log does not show whether driver, container or GPU is at fault"
    return "unknown from this log; likely: driver, container or GPU"


def find_calls(facts: Facts, kind: str) -> list[Notice]:
    """Return the failed calls of a ``launch``, of a ``connect`` no more specific rule covers, or of ``unknown`` files.

    Exceptions repeat failures without the file: where NCCL names none, those of PyTorch count.
    """
    failed = failures(facts)
    if kind == "unknown":
        known = [one.notice for one in failed if one.file is None and (_is_cause(one.code) or knows(one.code, "means"))]
        return known or _find_pytorch_failures(facts)
    return [one.notice for one in failed if (is_launch(one) if kind == "launch" else _is_of_connect(one))]


def _is_cause(code: int | None) -> bool:
    return knows(code, "kernel") or knows(code, "cause")


def _is_of_connect(failure: Failure) -> bool:
    code, file = failure.code, failure.file
    if file is None or is_launch(failure) or code in (OUT_OF_MEMORY, PEERS_EXHAUSTED, *_FABRIC):
        return False
    if file.endswith("transport/p2p.cc"):
        return code not in NOT_SHARED
    if file.endswith("transport/shm.cc"):
        return code not in NO_HOST_MEMORY
    if file.endswith("transport/nvls.cc"):
        return not is_of_fabric(failure)
    return code not in AT_START or file.startswith(("transport", "proxy", "channel"))


@once
def _find_pytorch_failures(facts: Facts) -> list[Notice]:
    """Find errors that PyTorch reports, except those of processes whose end has its own finding."""
    ended = ends.process_ends(facts)
    judged = {code_in(str(value(last, "error"))) for last in ends.last_words(facts, ended).values()}
    failed = []
    for notice in facts.notices("torch/watchdog-terminated", "torch/cuda-error", _PRINTED):
        code = _read(notice).code
        # The program may have caught errors of its own calls; after the error of a kernel, every call fails.
        is_judged = code in judged or any(precedes(end.begin, notice) for end in ended)
        is_fatal = _is_cause(code) or (code is not None and notice.production == _PRINTED)
        if is_fatal and not is_judged and not exceptions.is_caught(facts, notice):
            failed.append(notice)
    return failed


def find_retold(facts: Facts) -> list[Notice]:
    """Return the exceptions of PyTorch with the same errors, which need no explanation of their own."""
    errors = {one.error for one in failures(facts)}
    errors |= {_read(notice).error for notice in _find_pytorch_failures(facts)}
    return [notice for notice in facts.notices("torch/cuda-error") if value(notice, "error") in errors]


def _read(notice: Notice) -> Failure:
    """Return the failure in a statement of another program, which names no file."""
    error = error_of(notice).removeprefix(ERROR)
    return Failure(code_of_text(error), None, error, notice)


def describe(facts: Facts, notices: list[Notice]) -> dict[str, object]:
    """Return what pages say of failed calls: the first one decides the cause, and what to ``fix`` or ``try``."""
    of_nccl = {id(one.notice): one for one in failures(facts)}
    failed = [of_nccl.get(id(one)) or _read(one) for one in notices if error_of(one)] or [_read(notices[0])]
    code = failed[0].code
    known = _list_errors().get(code, {})
    return {
        "cuda_code": code,
        "cuda_file": failed[0].file,
        "cuda_errors": list(dict.fromkeys(f"'{one.error}'" + f" ({one.code})" * bool(one.code) for one in failed)),
        "cuda_cause": find_cause(code),
        "cuda_telling": any(one.code in _TELLING or _is_cause(one.code) for one in failed),
        "cuda_kernel": "kernel" in known,
        "cuda_fix": list(known.get("fix", ())),
        "cuda_try": list(known.get("try", ())),
    }


def find_unshared(facts: Facts) -> list[Notice]:
    """Return CUDA's refusals to export, open or map the memory of another GPU."""
    peers = facts.notices("nccl/p2p-peer-access-failed")
    of_p2p = (failure for failure in failures(facts) if str(failure.file).endswith("transport/p2p.cc"))
    above = (one for one in of_p2p if is_hip(one.notice) or one.code == NOT_PERMITTED)  # from a shared header
    return [
        *(notice for notice in failed_calls(facts, "transport/p2p.cc") if code_of(notice) in NOT_SHARED),
        *(failure.notice for failure in above if failure.code in NOT_SHARED),
        *facts.notices("nccl/p2p-ipc-handle-failed", "rccl/rccl-direct-exchange-failed"),
        *(notice for notice in peers if value(notice, "code") != PEERS_EXHAUSTED),
    ]


def is_of_fabric(failure: Failure) -> bool:
    """Return whether a multicast call failed with an error that no other rule handles."""
    # Rules of their own report these: memory, a fabric that is not up, hardware, and the start of CUDA.
    others = {2, 802, 919, 214, 220, 226} | (AT_START - {101, 999})
    is_unclaimed = failure.code not in (None, *others) and not knows(failure.code, "kernel")
    return is_unclaimed and str(failure.file).endswith("transport/nvls.cc")
