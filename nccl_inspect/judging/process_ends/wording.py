"""Texts about processes that ended on their own or were lost: which, why, and what to do."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from nccl_inspect.judging import placement
from nccl_inspect.judging.facts import Facts, hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.hangs.watchdog import without_output
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.process_ends.ends import EXCEPTION, is_unordered, status_summary
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.process_ends.silence import Silence, peers_lost
from nccl_inspect.judging.statements import value
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed, ranges, ranks_word

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
    """Return which processes ended, and how."""
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
    """Return what to do about a process that ended."""
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


# A rank that went away without a report of its end


UNANSWERED = ("Connection timed out", "No route to host", "Network is unreachable")
"""Errors of transfers over a working connection that no process closed."""


@frozen
class Loss(Frozen):
    """A rank that went away without a report of its end."""

    silence: Silence
    echoes: list[Notice]
    """What the others report of it."""
    absent: set[int]
    """The only rank that may have gone away, if it has no line in the log."""
    possible: set[int]
    """The ranks of which one went away, if these are at most half of all."""

    @property
    def gone(self) -> set[int]:
        """The ranks that fell silent."""
        return {rank for last in self.silence.gone for rank in last.ranks}

    @property
    def ranks(self) -> set[int]:
        """The ranks that are gone, as closely as the log shows; else those that report it."""
        return self.gone or self.absent or self.possible or ranks_in(self.echoes)

    def hosts(self, facts: Facts) -> set[str]:
        """The hosts of ranks that are gone, else of those that report it."""
        gone = {last.process[0] for last in self.silence.gone}
        return gone or set(hosts_with(facts.job, self.possible)) or hosts_in(self.echoes)


def loss_of(facts: Facts, silence: Silence, echoes: list[Notice]) -> Loss:
    """Return what is known of a loss.

    Args:
        facts: about the job.
        silence: who fell silent before the others lost connections.
        echoes: the reports of the others.
    """
    candidates = set(silence.candidates)
    is_absent = len(candidates) == 1 and candidates.isdisjoint(facts.job.ranks_seen)
    are_few = not silence.gone and 1 < len(candidates) <= (facts.job.world_size or 0) / 2
    return Loss(silence, echoes, candidates if is_absent else set(), candidates if are_few else set())


def loss_summary(facts: Facts, loss: Loss) -> str:
    """Return which rank was lost, or which ranks lost connections to which peer."""
    silence, ranks = loss.silence, loss.gone
    if absent := exceptions.absent_ranks(facts):
        return f"{ranks_word(absent)} did not reach a barrier (monitoredBarrier), and the others gave up"
    if not silence.gone:
        victims = ranks_in(loss.echoes)
        who = f"{ranks_word(victims)}" if victims else "ranks"
        peers = peers_lost(loss.echoes)
        whom = f"a peer on {listed(peers)}" if peers else "a peer"
        return f"{who} lost connections to {whom}; {_unknown(facts, loss)}"
    if len(silence.gone) > 1:
        return f"{ranks_word(ranks)} fell silent before the others lost a connection: one of them, or all, went away"
    last = silence.gone[0]
    place = f"{last.process.host}, pid {last.process.pid}{_gpu(facts, last)}"
    return f"{ranks_word(ranks)} ({place}) went away: silent after line {last.line}, then its peers lost connections"


def _gpu(facts: Facts, last: LastLine) -> str:
    """The GPU of a process by its index on the machine; else by that in the process, which may see only some GPUs."""
    devices = {facts.job.gpus[rank].nvml_dev for rank in last.ranks if rank in facts.job.gpus}
    if len(devices) == 1 and None not in devices:
        return f", GPU {devices.pop()}"
    return "" if last.device is None else f", CUDA device {last.device}"


def loss_cause(facts: Facts, loss: Loss) -> str:
    """Why the rank went away, or why connections closed."""
    if loss.silence.gone:
        return (
            "its lines stop without an error or a regular end: killed (out of memory, preemption, spot loss), crashed, "
            "or its machine was lost"
        )
    return why_closed(loss.echoes, is_here=bool(loss.possible) and loss.possible <= set(facts.job.ranks_seen))


def loss_steps(facts: Facts, loss: Loss) -> Iterator[str]:
    """Yield what to do, step by step."""
    if loss.possible:
        yield _first_of(facts, loss.possible)
    if loss.silence.gone:
        yield "kubectl describe pod <pod>; kubectl logs --previous <pod>   # OOMKilled, 137, Evicted?"
    else:
        yield "kubectl get pods -o wide   # which pod is gone, or was restarted?"
    yield "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host"
    if loss.silence.gone:
        yield "Read that rank's own output: NCCL prints neither its traceback nor a segmentation fault."
    elif loss.absent:
        yield f"Add the log of {ranks_word(loss.absent)} to the input{_where(facts, loss.absent)}."
    else:
        yield "Add the logs of all ranks to the input: the one that ends first or has another error is the cause."


def _first_of(facts: Facts, some: set[int]) -> str:
    """Return what to do if one of a few ranks went away."""
    if some.isdisjoint(facts.job.ranks_seen):
        return f"Add the logs of {ranks_word(some)} to the input{_where(facts, some)}."
    return f"Look at the output of {ranks_word(some)} first: the one that ends first or has another error is the cause."


def _where(facts: Facts, ranks: Iterable[int]) -> str:
    """The hosts of ranks without a line, if the order of the ranks shows them."""
    homes = [home for rank in ranks if (home := placement.home(facts, rank))]
    return f" (host {homes[0].host}, local rank {homes[0].local_rank})" if homes else ""


def _unknown(facts: Facts, loss: Loss) -> str:
    """Return what is known about the rank that failed first, if it is not identified."""
    silence, seen = loss.silence, set(facts.job.ranks_seen)
    if loss.absent:
        absent = f"{ranks_word(loss.absent)}, which has no line in this log{_where(facts, loss.absent)}"
        return f"by elimination it was {absent}"
    if silence.candidates and not seen.intersection(silence.candidates):
        return f"the first failing rank is not in this log: one of ranks {ranges(silence.candidates)}"
    if 1 < len(silence.candidates) < (facts.job.world_size or 0):
        return f"one of ranks {ranges(silence.candidates)} failed first: they are silent from then on"
    world = facts.job.world_size
    if world and facts.job.rank_space == "global" and seen.issuperset(range(world)):
        return "this log does not show which rank failed first"
    return "the first failing rank is not in this log"


def why_closed(echoes: list[Notice], *, is_here: bool = False) -> str:
    """The cause if the process is unknown: a process that ends closes its connections, a lost machine does not.

    Args:
        echoes: the reports of the others.
        is_here: whether the ranks that may have failed first have lines in the log.
    """
    if all(any(word in notice.message for word in UNANSWERED) for notice in echoes):
        return (
            "the connection was not closed but stopped responding: the peer's machine or the network to it was lost. "
            "Check both; the log of the peer is missing, or does not show it"
        )
    if is_here:
        return "every line about it is an echo from its peers: the rank that failed first printed no error in this log"
    return "every line about it is an echo: these ranks are victims of one whose log is missing, or does not show why"


# Ranks that gave up because another one did not arrive, or was gone: whom they may have waited for


def on_their_own(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """The processes that ended on their own, if any; else all."""
    return [end for end in ends if end.echo is None] or ends


def waited_for(facts: Facts, ends: list[ProcessEnd]) -> set[int]:
    """The ranks that the others may have waited for: those named, those without output, or one without a traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # Of several tasks, Ray shows the exception that the driver received first.
    if any(ray.is_of_task(end.notice) for end in ends):
        return set()
    ranks = set(facts.job.ranks_seen)
    if (unseen := without_output(facts)) and len(unseen) <= len(ranks):
        return unseen
    gave_up = {rank for end in ends for rank in end.ranks} | {
        end.rank for end in exceptions.exceptions_of(facts).echoes
    }
    sizes = {comm.nranks for comm in facts.job.communicators}
    silent = ranks - gave_up
    return silent if len(silent) == 1 and sizes and max(sizes) == len(ranks) else set()


def summarize_given_up(facts: Facts, ends: list[ProcessEnd]) -> str:
    """Return which ranks gave up, and which ranks they may have waited for."""
    first = ends[0]
    ranks = {rank for end in ends for rank in end.ranks}
    who, others = first.who, f", and {len(ends) - 1} more" if len(ends) > 1 else ""
    if first.has_given_up and ranks:
        who, others = first.who if len(ends) == 1 else ranks_word(ranks), ""
    suspected = set() if exceptions.absent_ranks(facts) else waited_for(facts, ends)
    missing = "of which the log has no output" if suspected & without_output(facts) else "which printed no traceback"
    hint = f"; possibly because of {ranks_word(suspected)}, {missing}" if suspected else ""
    return f"{who} {first.how}{others}{hint}"


def given_up_remedies(suspected: set[int]) -> list[str]:
    """Return what to do if ranks gave up."""
    who = ranks_word(suspected) if suspected else "every rank"
    return [
        f"Look at the output of {who} first, and at the last step there.",
        f"py-spy dump --pid <pid>   # on {who}, before the time limit: where does it wait?",
        "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host",
    ]
