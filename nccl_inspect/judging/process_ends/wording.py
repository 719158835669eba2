"""Texts about processes that ended on their own: which, why, and what to do."""

from __future__ import annotations

import signal

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import EXCEPTION, is_unordered, status_summary
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed, ranks_word

_AFTER_SIGKILL = (
    "kubectl describe pod <pod>; kubectl logs --previous <pod>   # OOMKilled, 137, Evicted?",
    "dmesg -T | grep -iE 'oom|xid|killed process'   # on its host",
    "If memory ran out, give the container more (resources.limits.memory), or use fewer DataLoader workers.",
)
_AFTER_DEATH_IN_RAY = (
    "ls /tmp/ray/session_latest/logs/worker-*-<pid>.err   # on its node: its last output",
    "dmesg -T | grep -iE 'oom|xid|segfault|killed process'   # on its host",
    "If memory ran out, give the node or the container more, or use fewer workers and DataLoader processes.",
)
_AFTER_ERROR = (
    "torchrun --log-dir /logs --redirects 3 --tee 3 <script>   # a file for each rank; @record keeps the traceback",
    "CUDA_LAUNCH_BLOCKING=1   # after CUDA errors; compute-sanitizer shows more",
)
_AFTER_BUS_ERROR = (
    "df -h /dev/shm; ls -l /dev/shm   # on its host, or in its container: is it full, and of what?",
    "--shm-size=16g   # option of docker run; or --ipc=host",
    "volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 64Gi}}]   # pod spec, mounted on /dev/shm",
    "dmesg -T | grep -iE 'oom|hardware error|mce'   # if /dev/shm has room: a memory limit, or faulty memory?",
)
_AFTER_CUDA = (cuda.WHICH_KERNEL, cuda.IS_BROKEN)
_UNDECIDED = (
    "mpirun -l …   # with its other options: prefixes each line with the rank; whose output ends first?",
    "Read the output of each rank: a traceback, an assertion or a segmentation fault.",
    "dmesg -T | grep -iE 'oom|xid|segfault|killed process'   # on each host",
)
_UNKNOWN = "unknown from this log; likely: "
_FIXES: dict[int, tuple[str, ...]] = {signal.SIGKILL: _AFTER_SIGKILL, signal.SIGBUS: _AFTER_BUS_ERROR}
MEMORY = (
    "the memory of the host, or the limit of the pod or job, was exhausted: data loaders, a checkpoint that is "
    "gathered or loaded on every rank, pinned buffers, or /dev/shm, which counts as memory"
)
MEMORY_FIX = (
    "Give the pod more memory (resources.limits.memory); Slurm: --mem=0 requests all memory of the node.",
    "Use less: fewer data loader workers, checkpoints loaded and saved in shards; an emptyDir of medium Memory counts "
    "toward the limit of the pod.",
    "dmesg -T | grep -i 'killed process'   # on its host: which process, and how much",
)


def end_summary(ends: list[ProcessEnd]) -> str:
    """Which processes ended, and how."""
    first = ends[0]
    if is_unordered(ends):
        texts = listed((f"{end.who} {end.how}" for end in ends), limit=2)
        return f"{texts}; the order is unknown, as the lines are from several sources"
    if first.is_undecided:
        return f"{first.who} {first.how}"
    others = f", and {len(ends) - 1} more" if len(ends) > 1 else ""
    effect = "; the others were ended or lost their connections" if first.report.ends_others else ""
    return f"{first.who} {first.how}{others}{effect}"


def end_remedies(end: ProcessEnd) -> tuple[str, ...]:
    """What to do about a process that ended."""
    if end.is_undecided:
        return _UNDECIDED
    if end.is_cause_unknown:
        return _AFTER_DEATH_IN_RAY
    if not end.is_by_exception:
        return _FIXES.get(-end.code) or (_read(end), *_AFTER_ERROR)
    trace, raised = end.trace, end.raised
    begin = trace.begin if trace else end.notice
    return (
        f"Read the traceback below {short(begin.evidence[0])}.",
        *(_AFTER_CUDA if raised and raised.is_of_cuda else ()),
    )


def _read(end: ProcessEnd) -> str:
    of = f" of {ranks_word(end.ranks)}" if end.ranks else ""
    above = short(end.notice.evidence[0])
    return f"Read the output{of} above {above}: a traceback, an assertion or a segmentation fault."


def end_cause(facts: Facts, end: ProcessEnd, message: Notice | None) -> str:
    """Why a process ended, as far as the log shows."""
    if end.is_undecided:
        return _undecided(facts, end)
    if end.code == -signal.SIGBUS:
        return _bus_error(facts, end)
    if end.is_by_exception:
        return _of_exception(end)
    if message is not None:
        error = str(value(message, "error"))
        codes = cuda.KERNEL_ERRORS.keys() & {cuda.code_in(error)}
        return f"its own output shows: {error}" + "".join(f". Caused by {cuda.cause(code)}" for code in codes)
    if end.code == -signal.SIGKILL:
        return (
            f"{_UNKNOWN}killed from outside, usually by the out-of-memory killer of the kernel or the container, or by "
            "preemption"
        )
    if end.report.process == "training":
        return "the first failure is not in the lines that this tool reads: an exception, or a process that ended"
    if end.is_cause_unknown:
        return (
            f"{_UNKNOWN}its process is gone: the out-of-memory killer of the kernel or the container killed it, or it "
            "crashed"
        )
    if end.is_crash:
        return f"{_UNKNOWN}the process crashed, in its own code or in a library"
    if end.code == -signal.SIGABRT:
        return f"{_UNKNOWN}the process aborted itself, as PyTorch's watchdog or a failed assertion does"
    return _above(facts, end)


def _of_exception(end: ProcessEnd) -> str:
    trace, raised = end.trace, end.raised
    begin = trace.begin if trace else end.notice
    where = f"its traceback begins at {short(begin.evidence[0])}"
    if raised is None:
        return f"an exception of the program: {where}"
    if raised.is_of_cuda:
        return f"{cuda.cause(cuda.code_in(raised.text))}; {where}"
    first = trace.first if trace else None
    is_root = first is not None and first != raised and not exceptions.is_of_a_loader(first)
    return f"an exception of the program: {where}" + (f". It first raised {first.text}" if first and is_root else "")


def _undecided(facts: Facts, end: ProcessEnd) -> str:
    """SIGKILL in Hydra's reports: from outside, or from Hydra itself."""
    whole = status_summary(facts, end.notice)
    summary = f". Its last line summarizes how all ended: {value(whole, 'how')}" if whole else ""
    return (
        "unknown from this log: "
        "when one process ends, Hydra kills the others with signal 9, and the process that it names may "
        f"be one of these{summary}"
    )


def _above(facts: Facts, end: ProcessEnd) -> str:
    """The cause of a process that ended with an error, from exceptions without a known rank."""
    if end.echo is not None:
        if exceptions.WAITED in end.echo.text:
            return "by its own output, it timed out waiting for another process, which hung, was slow or had ended"
        return "by its own output, it lost another process, or was terminated. The log does not show which was first"
    maybe = exceptions.candidates(facts, end.notice, end.pid, end.ranks) if end.code == EXCEPTION else []
    if not maybe:
        return f"{_UNKNOWN}an exception or an error of the program; the traceback is in that rank's own output"
    last = next((exception for exception in reversed(maybe) if exception.is_error), maybe[-1])
    where = "above" if last is maybe[-1] else "near"
    more = f"; other exceptions appear {where} it" if len(maybe) > 1 else ""
    if last.rank is not None and end.ranks:
        return f"likely {last.text} ({short(last.line)}), which the launcher labels with this rank{more}"
    return f"likely {last.text} ({short(last.line)}), though the line does not show which process printed it{more}"


def _bus_error(facts: Facts, end: ProcessEnd) -> str:
    """SIGBUS: a write to a full file system in memory."""
    sharing = "data loader workers pass their data through it" if end.is_loader else ""
    if not sharing and facts.paths(transport="SHM"):
        sharing = "ranks of this job share memory through it (SHM)"
    if sharing:
        return (
            f"most likely /dev/shm is full or too small (containers get 64 MiB by default): {sharing}, and writes "
            "without room end with SIGBUS; check with 'df -h /dev/shm'"
        )
    return (
        f"{_UNKNOWN}the process crashed; possibly /dev/shm is full (writes without room end with SIGBUS), else a "
        "mapped file was truncated, or memory is faulty"
    )
