"""How a job ends: which lines prove that a log goes on to its end, which calls of NCCL failed, why Slurm ended it.

A log that was merely cut looks like one that hangs. Only what launchers, shells, schedulers and PyTorch's watchdog
really print counts; words such as ``timeout=1800`` or ``exited with code 0`` in the output of a program prove nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import CollectiveTimeout, CudaFailure, ErrorCascade, Event, Notice
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.model import job
from nccl_inspect.util.patterns import compile_later

_WIDTH = 400  # bytes that are shown of such a line


def end_text(line: bytes, wrapped: bool) -> bytes | None:
    """Return what a line that is not NCCL's says of the end of the job, without what stands around it, or None."""
    grammar = engine.load_grammar()
    for text in envelopes.texts(line) if wrapped else [line]:
        if grammar.parse_foreign(text, grammar.last):
            return text[:_WIDTH]
    return None


def is_end(event: Event | None) -> bool:
    """Return whether a statement shows that the processes of a job have ended."""
    return event is not None and ("ends-job" in engine.find_roles(event) or isinstance(event, CollectiveTimeout))


def is_shutting_down(event: Event | None) -> bool:
    """Return whether a CUDA call failed because its process was ending: an effect of the end, whatever its reason."""
    return isinstance(event, CudaFailure) and (event.code == _SHUTTING_DOWN or event.error == "driver shutting down")


_SHUTTING_DOWN = 4  # cudaErrorCudartUnloading, CUDA_ERROR_DEINITIALIZED


TIME_LIMIT, PREEMPTED, REQUEUED, NODE_FAILURE = "time limit", "preempt", "requeue", "node failure"
_REASONS = (TIME_LIMIT, PREEMPTED, REQUEUED, NODE_FAILURE)
"""What Slurm names as its reason to end a job (src/slurmd/slurmstepd/req.c)."""


def reason(event: Event | None) -> str | None:
    """Why a scheduler ended the job, as far as it says so: no failed rank leads to such an end."""
    if not isinstance(event, Notice) or "forced-end" not in engine.find_roles(event):
        return None
    given = str(dict(event.values).get("reason") or "").lower()
    return next((word for word in _REASONS if word in given), None)


_INTERFACE = ("init.cc", "group.cc", "enqueue.cc", "collectives.cc")
"""Files whose frames in a cascade mean that the error reached the caller of NCCL."""
_WITHOUT_COLLNET = "nccl/collnet-unavailable"
_IN_PROGRESS = 7
_INTERNAL = 3


def failed_calls(notices: Sequence[job.Notice]) -> Iterator[job.Notice]:
    """Yield what says that a call of NCCL failed.

    What fails because its process is ending already does not count, nor what a thread survived. Without CollNet, NCCL
    continues, which the first rank of each host says: a single frame of the others is of that
    (ncclTransportCollNetCheck in src/transport.cc); a call that fails leaves one in each of its callers.
    """
    ending: dict[Process, int] = {}
    for notice in notices:
        if is_shutting_down(notice.event):
            ending.update({process: notice.place for process in notice.processes if process not in ending})
    failed = [notice for notice in notices if _is_failed_call(notice) and not notice.outlived]
    without_collnet = any(notice.production == _WITHOUT_COLLNET for notice in notices)
    frames = Counter(process for notice in failed for process in notice.processes)
    for notice in failed:
        is_late = all(ending.get(process, notice.place) < notice.place for process in notice.processes)
        is_frame = without_collnet and isinstance(notice.event, ErrorCascade)
        if not is_late and not (is_frame and all(frames[process] == 1 for process in notice.processes)):
            yield notice


def _is_failed_call(notice: job.Notice) -> bool:
    event = notice.event
    if not isinstance(event, ErrorCascade) or event.code in (0, _IN_PROGRESS):
        return "failed-call" in notice.roles and "timeout" not in notice.message
    if event.thread is not None and "Async" not in event.thread:
        return event.code != _INTERNAL  # which its threads report of a communicator that was aborted, too
    return event.file.rpartition("src/")[2] in _INTERFACE  # not transport/net_ib/init.cc


_WORK = compile_later(
    r"(?i:\b(?:step|iter(?:ation)?|epoch)\b.{0,40}?\d.{0,80}?\bloss\b)|['\"]loss['\"]: *['\"]?\d"
    r"|per iteration|\bstep[_ ]tim(?:e|ing)|[Ss]amples(?:[_ ][Pp]er[_ ]|P)|(?i:\bbus_?bw\b)\D{1,4}[\d.]*[1-9]"
    r"|[Tt]okens?(?:/s|[_ ]per[_ ]s).{0,6}[\s:='\"]0*\.?0*[1-9]|[1-9][\d.]* ?tokens(?:/s| per second)"
    r"|(?:^|\r|[Tt]rain\w*:?|[Ee]poch[^|%]{0,20}:) *\d+%\|[^|]*\| *[1-9]\d*/\d+ \["
    r"|train_runtime|raining (?:complete|finished)|ished training"
)
"""What is only printed of work that was done, in lines kept as results and speeds; what a shell prints of a program
that has ended, and the progress of loading, are none."""
_EARLIER = compile_later(r"(?i)\b(?:loaded|loading|resum(?:ed|ing)|restor(?:ed|ing))\b")
"""What says that a step was done by an earlier run."""


def shows_work(text: str) -> bool:
    """Return whether a line is only printed when work was done."""
    return _WORK.search(text) is not None and _EARLIER.search(text) is None
