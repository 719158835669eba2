"""Python exceptions that the log shows: those that ended ranks, and those of which only the text stands there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.judging.facts import Facts, first_lines
from nccl_inspect.judging.line_order import first_of_each, is_before
from nccl_inspect.judging.process_ends.reports import reports
from nccl_inspect.judging.statements import value, words
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end
from nccl_inspect.util.text import cut

_WITH_TEXT = (
    *(
        "torch/rank-error",
        "torch/rank-exception",
        "torch/rank-raised",
        "torch/cuda-error",
        "torch/cuda-out-of-memory",
        "torch/data-loader-killed",
    ),
    *("torch/no-gpus-available", "torch/driver-too-old", "torch/device-count-failed"),
    *(
        "frameworks/nccl-not-built-in",
        "frameworks/nccl-symbol-undefined",
        "frameworks/nccl-library-not-found",
        "torch/gloo-no-interface",
    ),
    *("torch/gloo-not-connected", "torch/gloo-connect-failed"),
)
CATCHABLE = (
    *(
        "torch/cuda-error",
        "torch/cuda-out-of-memory",
        "torch/no-gpus-available",
        "torch/driver-too-old",
        "torch/device-count-failed",
    ),
    *("torch/gloo-no-interface", "torch/gloo-not-connected", "torch/gloo-connect-failed"),
)
"""What programs may catch, and rules of their own tell."""
_WITHOUT = (
    "torch/rank-assertion",
    "torch/rank-memory-error",
    "torch/rank-not-implemented",
    "torch/rank-stop-iteration",
)
STORE = (
    *(
        "torch/store-connect-timeout",
        "torch/store-join-timeout",
        "torch/store-wait-timeout",
        "torch/store-listen-failed",
    ),
    *("torch/rendezvous-timeout", "torch/rendezvous-closed"),
)
"""PyTorch's store, by which ranks and nodes find each other, could not be used, or not all came to it."""
_OF_NCCL = (
    "torch/nccl-error",
    "torch/nccl-error-code",
    "frameworks/horovod-nccl-failed",
    "frameworks/vllm-nccl-failed",
    "frameworks/xla-nccl-failed",
    "torch/unique-id-failed",
    *STORE,
)
_OWN = (*_WITH_TEXT, *_WITHOUT)
_NO_EXCEPTION = ("torch/rank-traceback", "torch/rank-interrupted")
_LINE = re.compile(r"\[rank(\d{1,7})\]: (?=\S)")
"""What PyTorch puts in front of an exception; its logger has a bracket behind the colon."""
_OF_LAUNCHERS = ("torch.distributed.elastic.", "torch.multiprocessing.spawn.", "subprocess.CalledProcess")
"""What they raise because a process of theirs ended."""
_OF_PEERS = re.compile(
    r"torch\.distributed\.Dist(?:Store|Network)Error: |.{0,300}remote process exited or there was a network error"
    r"|.{0,100}ncclRemoteError|.{0,300}but store->get\("
    r"|RuntimeError: (?:\[(?!enforce fail)[^\]]{0,300}/(?:gloo/|pair\.cc:|unbound_buffer\.cc:)|\[c10d\] "
    r"|.{0,300}(?:NCCL communicator was aborted|monitoredBarrier|recvValue failed|sendBytes failed)"
    r"|(?:Connection reset by peer|Broken pipe|Socket Timeout)$"
    r"|Connection closed by peer(?: \[[\d.:a-f]+\](?::\d+)?\.?)?$)"
)
"""What fails because another process is gone; before 2.1 the store says so in these few words. Of gloo's files
the folders may have been replaced. It names the peer by its address: a server with a name is none."""
WAITED = "] Timed out waiting "
"""How gloo says that another process did not come in time."""
_ABSENT = re.compile(r"Ranks? (\d[\d, ]{0,200}) failed to pass monitoredBarrier")
_ENDED = re.compile(r"is killed by signal: (?:Terminated|Interrupt)")
"""What fails because somebody ended it."""
_AGAIN = re.compile(r"Caught \w+ in DataLoader worker process")
"""What a data loader puts in front of the exception of its worker."""
_THREAD, _IGNORED = "Exception in thread ", "Exception ignored in"
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)(?:$|:)")
"""How classes of errors are called; others, such as ``queue.Empty``, often only tell a program to go on."""
_WIDTH = 160


class Raised(NamedTuple):
    """An exception."""

    text: str
    """``ValueError: no such column``, as Python prints it."""
    line: Evidence
    """Where it stands."""
    notice: Notice | None = None
    """The statement, where a rank stands in front."""
    rank: int | None = None
    """The rank, where the label of a launcher tells it."""

    @property
    def is_of_cuda(self) -> bool:
        """Whether a CUDA call or a kernel failed."""
        return "Error: CUDA error: " in self.text

    @property
    def is_of_a_peer(self) -> bool:
        """Whether it tells of the end of another process."""
        return _OF_PEERS.match(self.text) is not None

    @property
    def is_error(self) -> bool:
        """Whether its name says that it is an error."""
        return _ERROR.match(self.text) is not None

    @property
    def is_ended(self) -> bool:
        """Whether it tells that somebody ended it."""
        return _ENDED.search(self.text) is not None


class Trace(NamedTuple):
    """What a rank printed as an exception ended it."""

    rank: int
    begin: Notice
    """Where its first traceback begins."""
    first: Raised | None
    """What was raised first; another exception may have followed from it."""
    last: Raised | None
    """What ended the rank. Neither is there where the text of the exception is of no known form, or was lost."""

    @property
    def texts(self) -> list[Notice]:
        """The statements of it."""
        return [one.notice for one in (self.first, self.last) if one is not None and one.notice is not None]


class Found(NamedTuple):
    """The exceptions of a log."""

    traces: list[Trace]
    """Of the ranks that an exception of their own ended, in the order of the log."""
    echoes: list[Trace]
    """Of ranks that ended because another process did, or because somebody ended them. What NCCL or PyTorch say of an
    error of their own is in neither list: other rules tell it."""
    loose: list[Raised]
    """Those of nobody, in the order of the log: a program may have caught them."""
    of_threads: list[Raised]
    """Those that ended threads of programs, which go on."""
    fatal: frozenset[int]
    """The statements of the traces, by their identity."""


def found(facts: Facts) -> Found:
    """The exceptions of a log."""
    return facts.once(_found)


def _found(facts: Facts) -> Found:
    traces, echoes = _of_ranks(facts)
    loose, of_threads = _of_nobody(facts.job.raised)
    by = facts.job.raised_by
    loose = [one._replace(rank=by.get((one.line.source, one.line.order))) for one in loose] if by else loose
    fatal = frozenset(id(one) for trace in traces for one in trace.texts)
    return Found(traces, echoes, loose, of_threads, fatal)


def _of_ranks(facts: Facts) -> tuple[list[Trace], list[Trace]]:
    said: dict[int, list[Notice]] = {}
    begins = facts.notices("torch/rank-traceback")
    for notice in facts.job.notices if begins else ():
        front = None if notice.production in _NO_EXCEPTION else _LINE.match(words(notice))
        if front is not None:
            said.setdefault(int(front[1]), []).append(notice)
    interrupted = {value(notice, "global_rank") for notice in facts.notices("torch/rank-interrupted")}
    ends = [notice.evidence[0] for notice in reports(facts, _ends_attempt)]
    traces: list[Trace] = []
    echoes: list[Trace] = []
    is_forced = any(job_end.is_forced(one.event) for one in facts.errors())
    for begin in begins:
        rank: int = value(begin, "global_rank")
        mine = _of_last_attempt(begin, said.get(rank, ()), ends)
        own = [_raised(one) for one in mine if one.production in _OWN]
        own = [one for one in own if not one.is_of_a_peer and not (one.is_ended and is_forced)]
        # The first one decides: what follows from the loss of a peer is an echo, and so is an own one after it.
        is_echo = bool(mine) and (not own or own[0].notice is not mine[0])
        if is_echo or (rank in interrupted and not own):
            told = _raised(mine[0]) if mine else None
            if told is None or told.is_of_a_peer or told.is_ended:
                echoes.append(Trace(rank, begin, told, told))
            continue
        of_cuda = (one for one in own if one.is_of_cuda)  # whatever follows is its effect
        last = next(of_cuda, own[-1] if own else None)
        traces.append(Trace(rank, begin, own[0] if own else None, last))
    return traces, echoes


def _ends_attempt(event: events.ProcessEnded) -> bool:
    """Whether a launcher, which may start the process anew, reports that it was the first one to end."""
    return event.order == "first"


def _of_last_attempt(begin: Notice, said: Iterable[Notice], ends: Iterable[Evidence]) -> list[Notice]:
    """What a rank raised, without what it had raised before its launcher started it anew."""
    here = begin.evidence[0]
    mine = [one for one in said if is_before(here, one.evidence[0])]
    if len(mine) < 2:
        return mine
    last = mine[-1].evidence[0]
    between = [end.order for end in ends if end.source == here.source and here.order < end.order < last.order]
    return [one for one in mine if one.evidence[0].order > max(between, default=0)]


def _of_nobody(lines: Iterable[Evidence]) -> tuple[list[Raised], list[Raised]]:
    loose: list[Raised] = []
    of_threads: list[Raised] = []
    before: Evidence | None = None
    for line in lines:
        mark = before.text if before is not None and before.source == line.source else ""
        before = line
        if line.text.startswith((_THREAD, _IGNORED)):
            continue
        raised = Raised(cut(line.text.strip(), _WIDTH), line)
        if mark.startswith(_THREAD):
            of_threads.append(raised)
        elif not mark.startswith(_IGNORED) and not raised.text.startswith(_OF_LAUNCHERS):
            loose.append(raised)
    return loose, of_threads


def _spawned_lines(facts: Facts) -> list[Evidence]:
    told = reports(facts, lambda event: event.process == "spawned" and event.exception)
    return [notice.evidence[0] for notice in told]


def spawned(facts: Facts, begin: Notice) -> Raised | None:
    """What a process of torch.multiprocessing.spawn raised: the first exception below the line that says so."""
    here = begin.evidence[0]
    until = min((line.order for line in facts.once(_spawned_lines) if is_before(here, line)), default=None)
    others_tell = [_raised(one) for one in facts.notices(*_OF_NCCL, "torch/cuda-error", "torch/cuda-out-of-memory")]
    below = [one for one in (*found(facts).loose, *others_tell) if is_before(here, one.line)]
    near = [one for one in below if until is None or one.line.order < until]
    return min(near, key=lambda one: one.line.order, default=None)


def stated(facts: Facts) -> list[Raised]:
    """Every exception of which nothing in the line tells who raised it, also those that NCCL or CUDA led to."""
    return facts.once(_stated)


def _stated(facts: Facts) -> list[Raised]:
    told = facts.notices(*_OF_NCCL, "torch/cuda-error", "torch/cuda-out-of-memory")
    mine = [_raised(one)._replace(line=line) for one in told for line in one.evidence]
    return [*found(facts).loose, *mine]


def is_of_nccl(raised: Raised) -> bool:
    """Whether it only passes on an error of NCCL, or of PyTorch's store."""
    return raised.notice is not None and raised.notice.production in _OF_NCCL


def candidates(facts: Facts, departed: Notice, pid: int | None, ranks: Collection[int]) -> list[Raised]:
    """Exceptions of nobody that may have ended a process: those above what tells its end, and in its own output.

    Args:
        facts: about the job.
        departed: what tells its end.
        pid: its pid, where that is known.
        ranks: its ranks; nothing where these are not known.
    """
    own = {last.source for last in facts.job.last_lines if last.process.pid == pid}
    end = departed.evidence[0]
    loose = [one for one in found(facts).loose if not one.is_of_a_peer]
    loose = [one for one in loose if one.rank is None or not ranks or one.rank in ranks]
    loose = [one for one in loose if one.rank is not None and ranks] or loose
    above = [one for one in loose if is_before(one.line, end)]
    reported = [one for one in loose if one.line.text.startswith("  ") and is_before(end, one.line)]
    return above or reported or [one for one in loose if one.line.source in own - {end.source}]


def absent_ranks(facts: Facts) -> set[int]:
    """The ranks of which others say that they did not come to a barrier."""
    told = [one.last.text for one in found(facts).echoes if one.last]
    matches = (match for text in told for match in _ABSENT.finditer(text))
    return {int(rank) for match in matches for rank in match[1].replace(",", " ").split()}


def is_of_a_loader(raised: Raised) -> bool:
    """Whether it only passes on what was raised in a process that loads data."""
    return _AGAIN.search(raised.text) is not None


def is_caught(facts: Facts, notice: Notice) -> bool:
    """Whether a program went on after an exception, as far as the log tells.

    Others ended it, it came to its end, or NCCL came up below.
    """
    if fatal := found(facts).fatal:
        return id(notice) not in fatal
    return (facts.is_over() and not facts.job.failed) or came_up_below(facts, notice)


def is_survived(facts: Facts, notice: Notice) -> bool:
    """Whether a program went on after what its own start of CUDA gave it, as an exception or as a warning."""
    if notice.production == "torch/device-count-warned":
        return bool(facts.job.communicators) or is_used_below(facts, notice)
    return came_up_below(facts, notice) or (notice.production in _OWN and is_caught(facts, notice))


def came_up_below(facts: Facts, notice: Notice) -> bool:
    """Whether all communicators began below a statement, and every rank of them is initialised."""
    comms = facts.job.communicators
    if not comms or any(len(comm.completed) < comm.nranks for comm in comms):
        return False
    begins = first_of_each(line for comm in comms for line in comm.evidence)
    # Of more lines the log keeps the first ones: whether the last one stands above is not known.
    return notice.count == len(notice.evidence) and all(
        line.order < begins.get(line.source, 0) for line in notice.evidence
    )


def connected_below(facts: Facts, notice: Notice) -> bool:
    """Whether the first connections stand below a statement, and every rank is initialised: the job went on."""
    comms = facts.job.communicators
    if not comms or any(len(comm.completed) < comm.nranks for comm in comms):
        return False
    begins = facts.once(_first_connections)
    return notice.count == len(notice.evidence) and all(
        line.order < begins.get(line.source, 0) for line in notice.evidence
    )


def _first_connections(facts: Facts) -> dict[str, int]:
    return first_of_each(first_lines(facts.job.paths))


def is_used_below(facts: Facts, notice: Notice) -> bool:
    """Whether NCCL prints anything below a statement: then the program has it, and calls it."""
    here = notice.evidence[0]
    versions = (line for one in facts.said(events.NcclVersion) for line in one.evidence)
    lasts = {(last.source, last.order) for last in facts.job.last_lines}
    own = any(source == here.source and order > here.order for source, order in lasts)
    return id(notice) not in found(facts).fatal and (own or any(is_before(here, line) for line in versions))


def _raised(notice: Notice) -> Raised:
    """The exception of a line, without the rank in front."""
    return Raised(cut(_LINE.sub("", words(notice), count=1).strip(), _WIDTH), notice.evidence[0], notice)
