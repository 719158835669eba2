"""Python exceptions in the log, and result codes that callers of NCCL pass on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from nccl_inspect.event import types as events
from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.facts import Facts, first_of_each, is_before, once
from nccl_inspect.judging.statements import is_forced, is_propagated_error, message_of, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import usage
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import cut, encode

_NO_EXCEPTION = ("torch/rank-traceback", "torch/rank-interrupted")
_ALONE = ("torch/rank-error", "torch/rank-exception", "torch/gloo-call-failed", "torch/cuda-out-of-memory")
"""Exceptions that ended a rank if they have its prefix, with or without a traceback."""
_LINE = compile_later(r"\[rank(\d{1,7})\]: (?=\S)")
"""PyTorch's prefix of an exception; in its logger a bracket follows the colon."""
_OF_LAUNCHERS = (
    "torch.distributed.elastic.",
    "torch.multiprocessing.spawn.",
    "subprocess.CalledProcess",
    "UnexpectedStatusException: Error for Training job",  # of SageMaker's client
    "sagemaker.exceptions.UnexpectedStatusException: Error for Training job",
    "RuntimeError: WorkerProc initialization failed",
    "RuntimeError: Engine core initialization failed",
    "RuntimeError: Engine process failed to start",
    "vllm.v1.engine.exceptions.EngineDeadError",
)
"""Exceptions that launchers raise because one of their processes ended."""
_OF_PEERS = compile_later(
    r"torch\.distributed\.Dist(?:Store|Network)Error: |.{0,300}remote process exited or there was a network error"
    r"|.{0,100}ncclRemoteError|.{0,300}but store->get\("
    r"|RuntimeError: (?:\[(?!enforce fail)[^\]]{0,300}/(?:gloo/|pair\.cc:|unbound_buffer\.cc:)|\[c10d\] "
    r"|.{0,300}(?:NCCL communicator was aborted|monitoredBarrier|recvValue failed|sendBytes failed)"
    r"|(?:Connection reset by peer|Broken pipe|Socket Timeout)$"
    r"|Connection closed by peer(?: \[[\d.:a-f]+\](?::\d+)?\.?)?$)"
)
"""Failures because another process is gone; before 2.1 the store uses these few words. The folders of gloo's files may
have been replaced. Gloo names peers by address: a server with a name is not a peer."""
WAITED = "] Timed out waiting "
"""Gloo's words for another process that did not arrive in time."""
_ABSENT = compile_later(r"Ranks? (\d[\d, ]{0,200}) failed to pass monitoredBarrier")
_ENDED = compile_later(r"is killed by signal: (?:Terminated|Interrupt)")
"""Failures because the process was terminated."""
_AGAIN = compile_later(r"Caught \w+ in DataLoader worker process")
"""The prefix of a data loader to the exception of its worker."""
_NEAR = 3
"""Lines from an exception to the next failure, or to the end of the log, where it may have ended its rank."""
_THREAD, _IGNORED = "Exception in thread ", "Exception ignored in"
_ERROR = compile_later(r"[\w.]*(?:Error|Exception)(?:$|:)")
"""Names of error classes; other exceptions, such as ``queue.Empty``, often only signal a state."""
_WIDTH = 160


class RaisedException(Frozen):
    """An exception."""

    whole: str
    """``ValueError: no such column``, as Python prints it."""
    line: Evidence
    """The line of it."""
    notice: Notice | None = None
    """The statement, if it has a rank prefix."""
    rank: int | None = None
    """The rank, if a launcher's label names it."""

    @property
    def text(self) -> str:
        """Return the exception, no longer than a report shows it."""
        return cut(self.whole, _WIDTH)

    @property
    def is_of_cuda(self) -> bool:
        """Return whether a CUDA call or a kernel failed."""
        return "Error: CUDA error: " in self.whole

    @property
    def is_loss_of_peer(self) -> bool:
        """Return whether it reports the loss of another process."""
        return _OF_PEERS.match(self.whole) is not None

    @property
    def is_error(self) -> bool:
        """Return whether its class is an error by its name."""
        return _ERROR.match(self.whole) is not None

    @property
    def is_termination(self) -> bool:
        """Return whether it reports that the process was terminated."""
        return _ENDED.search(self.whole) is not None


class Trace(Frozen):
    """The output of a rank that an exception ended."""

    rank: int
    begin: Notice
    """The first line of its first traceback; its first exception where that is cut off."""
    first: RaisedException | None
    """The first exception; others may have followed from it."""
    last: RaisedException | None
    """The exception that ended the rank. Both are None if the text has no known form, or was lost."""

    @property
    def is_cut_off(self) -> bool:
        """Return whether the log has the exception alone."""
        return self.begin.production != "torch/rank-traceback"

    @property
    def texts(self) -> list[Notice]:
        """Return the statements of its exceptions."""
        return [raised.notice for raised in (self.first, self.last) if raised is not None and raised.notice is not None]


class Exceptions(Frozen):
    """The exceptions of a log."""

    traces: list[Trace]
    """Those of ranks that their own exception ended, in the order of the log."""
    echoes: list[Trace]
    """Those of ranks that lost another process or were terminated. Errors of NCCL or PyTorch themselves are in neither
    list: other rules report them."""
    loose: list[RaisedException]
    """Those without a known rank, in the order of the log: a program may have caught them."""
    of_threads: list[RaisedException]
    """Those that ended threads: the programs continue."""
    fatal: frozenset[int]
    """The statements of the traces, by their identity."""


@once
def exceptions_of(facts: Facts) -> Exceptions:
    """Return the exceptions of a log."""
    traces, echoes = _read_traces(facts)
    loose, of_threads = _find_unattributed(facts.job.raised)
    if by := facts.job.raised_by:
        loose = [exception.with_fields(rank=by.get(exception.line.position)) for exception in loose]
    fatal = frozenset(id(exception) for trace in traces for exception in trace.texts)
    return Exceptions(traces, echoes, loose, of_threads, fatal)


def _read_traces(facts: Facts) -> tuple[list[Trace], list[Trace]]:
    by_rank: dict[int, list[Notice]] = {}
    begins = facts.notices("torch/rank-traceback")
    for notice in facts.job.notices:
        front = None if notice.production in _NO_EXCEPTION else _LINE.match(message_of(notice))
        if front is not None:
            by_rank.setdefault(int(front[1]), []).append(notice)
    starts: dict[int, Notice] = {}
    for begin in begins:
        starts.setdefault(int(value(begin, "global_rank")), begin)
    for rank, (start, *_) in by_rank.items():
        if start.production in _ALONE and not continues(facts, rank, start):
            starts.setdefault(rank, start)  # its traceback is cut off
    interrupted = {value(notice, "global_rank") for notice in facts.notices("torch/rank-interrupted")}
    # A launcher may restart a process that was the first to end.
    ends = [notice.evidence[0] for notice in facts.with_event(events.ProcessEnded, lambda e: e.order == "first")]
    traces: list[Trace] = []
    echoes: list[Trace] = []
    was_forced = any(map(is_forced, facts.errors()))
    for rank, begin in starts.items():
        mine = _select_last_attempt(begin, by_rank.get(rank, ()), ends)
        own = [_read_exception(notice) for notice in mine if "program-exception" in notice.roles]
        own = [raised for raised in own if not raised.is_loss_of_peer and not (raised.is_termination and was_forced)]
        # The first exception decides: all that follow the loss of a peer are echoes, including the rank's own.
        is_echo = bool(mine) and (not own or own[0].notice is not mine[0])
        if is_echo or (rank in interrupted and not own):
            first = _read_exception(mine[0]) if mine else None
            if first is None or first.is_loss_of_peer or first.is_termination:
                echoes.append(Trace(rank, begin, first, first))
            continue
        of_cuda = (raised for raised in own if raised.is_of_cuda)  # whatever follows is its effect
        last = next(of_cuda, own[-1] if own else None)
        traces.append(Trace(rank, begin, own[0] if own else None, last))
    return traces, echoes


def continues(facts: Facts, rank: int | None, notice: Notice) -> bool:
    """Return whether the job continues below an exception without a traceback: a program may print what it caught.

    It ended in order, the rank itself prints more than that it gave up its communicators, or no failure follows before
    other output does.
    """
    here = notice.evidence[-1]
    if outlasts(facts, here) or came_up_below(facts, notice):
        return True
    failures, end = _places_of_failures(facts)[here.source]
    below = bisect_right(failures, here.order)
    given_up = next((order for order in _aborts(facts).get((here.source, rank), []) if order > here.order), None)
    warned = _warnings(facts).get(here.source, [])
    lost = [*failures[below : below + 1], *warned[(at := bisect_right(warned, here.order)) : at + 1]]
    if given_up is not None and min(lost, default=given_up) >= given_up:
        return False  # it gives up its communicator before anybody there loses others
    if rank is not None and _last_of_ranks(facts).get((here.source, rank), 0) > here.order:
        return True
    return min([*failures[below : below + 1], end]) - here.order > _NEAR


@once
def _last_of_ranks(facts: Facts) -> dict[tuple[str, int], int]:
    """Return the last line of each rank in each source."""
    return dict(sorted(((last.source, rank), last.order) for last in facts.job.last_lines for rank in last.ranks))


@once
def _aborts(facts: Facts) -> dict[tuple[str, int | None], list[int]]:
    """Return the lines in which each rank begins to give up a communicator, by source and rank, in order."""
    ranks = {last.process: last.ranks for last in facts.job.last_lines}
    begun = [one for one in facts.notices("nccl/comm-start-28") if value(one, "how") == "Abort"]
    lines = sorted(
        (line.order, line.source, process)
        for one in begun
        for process, line in zip(one.processes, one.lines, strict=False)
    )
    return group_values(((source, rank), order) for order, source, process in lines for rank in ranks.get(process, ()))


@once
def _warnings(facts: Facts) -> dict[str, list[int]]:
    """Return the lines of each source that warn, in order."""
    warned = (notice for notice in facts.job.notices if notice.level == "WARN")
    by_source = group_values(line.position for notice in warned for line in notice.lines)
    return {source: sorted(orders) for source, orders in by_source.items()}


@once
def _places_of_failures(facts: Facts) -> dict[str, tuple[list[int], int]]:
    """Return for each source the lines that report failures, in order, and its last line."""
    failures = [*facts.errors(), *facts.with_role("program-exception"), *facts.with_event(events.ProcessEnded)]
    by_source = group_values(line.position for failure in failures for line in failure.evidence)
    return {source.name: (sorted(by_source.get(source.name, ())), source.lines) for source in facts.job.sources}


def _select_last_attempt(begin: Notice, notices: Iterable[Notice], ends: Iterable[Evidence]) -> list[Notice]:
    """Return the exceptions of a rank since its launcher last restarted it."""
    here = begin.evidence[0]
    mine = [notice for notice in notices if notice is begin or is_before(here, notice.evidence[0])]
    if len(mine) < 2:
        return mine
    last = mine[-1].evidence[0]
    between = [end.order for end in ends if end.source == here.source and here.order < end.order < last.order]
    return [notice for notice in mine if notice.evidence[0].order > max(between, default=0)]


def _find_unattributed(lines: Iterable[Evidence]) -> tuple[list[RaisedException], list[RaisedException]]:
    loose: list[RaisedException] = []
    of_threads: list[RaisedException] = []
    before: Evidence | None = None
    for line in lines:
        mark = before.text if before is not None and before.source == line.source else ""
        before = line
        if line.text.startswith((_THREAD, _IGNORED)):
            continue
        raised = RaisedException(line.text.strip(), line)
        if mark.startswith(_THREAD):
            of_threads.append(raised)
        elif not mark.startswith(_IGNORED) and not raised.text.startswith(_OF_LAUNCHERS):
            loose.append(raised)
    return loose, of_threads


def find_below(facts: Facts, line: Evidence) -> RaisedException | None:
    """Return the exception that a report announces: the last one above the next such line, else the first."""
    borders = _borders(facts).get(line.source, [])
    at = bisect_right(borders, line.order)
    stated = without_process(facts).get(line.source, [])
    first = bisect_right(stated, line.order, key=_order)
    if at == len(borders):  # it may be followed by the output of others
        return stated[first] if first < len(stated) else None
    last = bisect_left(stated, borders[at], key=_order)
    return stated[last - 1] if last > first else None


@once
def _borders(facts: Facts) -> dict[str, list[int]]:
    """Return the lines below which something else begins than the exception of a report above."""
    notices = facts.with_event(events.ProcessEnded, lambda e: e.exception or (e.retries and e.reporter != "raylet"))
    notices += [*facts.with_role("restart"), *facts.notices("launchers/ray-train-function-failed")]
    by_source = group_values(line.position for notice in notices for line in notice.evidence)
    return {source: sorted(orders) for source, orders in by_source.items()}


@once
def without_process(facts: Facts) -> dict[str, list[RaisedException]]:
    """Return all exceptions whose line does not name the process, including those that NCCL or CUDA led to."""
    led_to = facts.with_role("nccl-exception", "store-failed")
    led_to += facts.notices("torch/cuda-error", "torch/cuda-out-of-memory")
    mine = [_read_exception(notice).with_fields(line=line) for notice in led_to for line in notice.evidence]
    by_source = group_values((raised.line.source, raised) for raised in (*exceptions_of(facts).loose, *mine))
    return {source: sorted(entries, key=_order) for source, entries in by_source.items()}


_order = attrgetter("line.order")


def is_of_nccl(raised: RaisedException) -> bool:
    """Return whether it only passes on an error of NCCL, or of PyTorch's store."""
    return raised.notice is not None and not {"nccl-exception", "store-failed"}.isdisjoint(raised.notice.roles)


def candidates(facts: Facts, departed: Notice, pid: int | None, ranks: Collection[int]) -> list[RaisedException]:
    """Unattributed exceptions that may have ended a process: those above the report of its end, or in its output."""
    own = {last.source for last in facts.job.last_lines if last.process.pid == pid}
    end = departed.evidence[0]
    loose = [one for one in exceptions_of(facts).loose if not one.is_loss_of_peer]
    loose = [one for one in loose if one.rank is None or not ranks or one.rank in ranks]
    loose = [one for one in loose if one.rank is not None and ranks] or loose
    above = [one for one in loose if is_before(one.line, end)]
    reported = [one for one in loose if one.line.text.startswith("  ") and is_before(end, one.line)]
    return above or reported or [one for one in loose if one.line.source in own - {end.source}]


def absent_ranks(facts: Facts) -> set[int]:
    """Return the ranks that, according to others, did not reach a barrier."""
    texts = (trace.last.text for trace in exceptions_of(facts).echoes if trace.last)
    return {rank for text in texts for rank in find_absent(text)}


def find_absent(text: str) -> set[int]:
    """Return the ranks that, according to an exception, did not reach a barrier."""
    return {int(rank) for match in _ABSENT.finditer(text) for rank in match[1].replace(",", " ").split()}


def is_of_a_loader(raised: RaisedException) -> bool:
    """Return whether it only passes on an exception of a DataLoader worker."""
    return _AGAIN.search(raised.text) is not None


def is_caught(facts: Facts, notice: Notice) -> bool:
    """Return whether a program continued after an exception, as far as the log shows.

    Other exceptions ended it, it ended in order, or NCCL came up afterwards.
    """
    if fatal := exceptions_of(facts).fatal:
        return id(notice) not in fatal
    return (outlasts(facts, notice.evidence[-1]) and not facts.job.failed) or came_up_below(facts, notice)


def is_survived(facts: Facts, notice: Notice) -> bool:
    """Return whether a program continued after an exception or warning from its own start of CUDA."""
    if notice.production == "torch/device-count-warned":
        return bool(facts.job.communicators) or is_used_below(facts, notice)
    return came_up_below(facts, notice) or ("program-exception" in notice.roles and is_caught(facts, notice))


def is_over_below(facts: Facts, line: Evidence) -> bool:
    """Return whether all communicators came to their end in order, and this line does not follow in the same source."""
    lasts = [last.order for last in facts.job.last_lines if last.source == line.source]
    return facts.is_over() and line.order < max(lasts, default=line.order + 1) and not is_of_another(facts, line)


def outlasts(facts: Facts, line: Evidence) -> bool:
    """Return whether the job came to its end in order below an exception, which did not end it."""
    return is_over_below(facts, line) and not is_given_up_below(facts, line)


def is_given_up_below(facts: Facts, line: Evidence) -> bool:
    """Return whether all communicators were aborted, one right below an exception, as by a process that it ends."""
    lasts = [last.order for last in facts.job.last_lines if last.source == line.source and last.order > line.order]
    is_aborted = all(comm.state == "aborted" for comm in usage.used_communicators(facts.job))
    is_first = len(lasts) == sum(last.source == line.source for last in facts.job.last_lines)
    if facts.with_role("succeeded") or not is_first:
        return False
    return facts.is_over() and is_aborted and min(lasts, default=line.order + _NEAR + 1) - line.order <= _NEAR


def is_of_another(facts: Facts, line: Evidence) -> bool:
    """Return whether a collector names another printer of a line than those of NCCL's lines: it came up nowhere.

    Where all ranks of the job ended in order, it is none of them.
    """
    names = _printers(facts).get(line.source, ())
    if not names or (facts.is_over() and len(facts.job.ranks_seen) == facts.job.world_size):
        return False
    from nccl_inspect.ingest import envelopes  # most logs name no printers

    text = encode(line.text)
    *_, inner = envelopes.peel_all(*next(iter(envelopes.contents(text)), (text,)))
    return inner.stated.label is not None and inner.stated.label not in names


@once
def _printers(facts: Facts) -> dict[str, set[str]]:
    """Return for each source the pods and containers that its collector names; nothing if it does not name all."""
    named = group_sets((last.source, last.process.apart.partition("#")[0]) for last in facts.job.last_lines)
    return {source: names for source, names in named.items() if "" not in names}


def came_up_below(facts: Facts, notice: Notice) -> bool:
    """Return whether all communicators started after a statement, and all their ranks are initialized."""
    return _is_up(facts) and is_above_communicators(facts, notice)


def is_above_communicators(facts: Facts, notice: Notice) -> bool:
    """Return whether all communicators started after a statement."""
    return _precedes(facts, notice, _begins(facts))


def connected_below(facts: Facts, notice: Notice) -> bool:
    """Return whether the first connections follow a statement, and every rank is initialized: the job continued."""
    some = facts.job.paths.first_lines()[:1]
    if not _is_up(facts) or any(is_before(one, line) for one in some for line in notice.evidence):
        return False  # as most are: then the first lines of all paths need not be made
    return _precedes(facts, notice, _first_connections(facts))


def _precedes(facts: Facts, notice: Notice, begins: Mapping[str, int]) -> bool:
    # Of many lines only the first ones are kept: the position of the last one is unknown.
    return notice.count == len(notice.evidence) and all(
        line.order < begins.get(line.source, 0) and not is_of_another(facts, line) for line in notice.evidence
    )


@once
def _is_up(facts: Facts) -> bool:
    comms = facts.job.communicators
    return bool(comms) and all(len(comm.completed) >= comm.nranks for comm in comms)


@once
def _begins(facts: Facts) -> dict[str, int]:
    return first_of_each(line for comm in facts.job.communicators for line in comm.evidence)


@once
def _first_connections(facts: Facts) -> dict[str, int]:
    return first_of_each(facts.job.paths.first_lines())


def is_used_below(facts: Facts, notice: Notice) -> bool:
    """Return whether NCCL prints anything after a statement, so that the program has loaded and called it."""
    here = notice.evidence[0]
    versions = (line for start in facts.with_event(events.NcclVersion) for line in start.evidence)
    own = any(last.source == here.source and last.order > here.order for last in facts.job.last_lines)
    return id(notice) not in exceptions_of(facts).fatal and (own or any(is_before(here, line) for line in versions))


def _read_exception(notice: Notice) -> RaisedException:
    return RaisedException(_LINE.sub("", message_of(notice), count=1).strip(), notice.evidence[0], notice)


# Result codes that callers of NCCL pass on when a call fails and the log has no warning

_WORDS = {
    1: ("torch/nccl-unhandled-cuda-error", "unhandled cuda error"),
    2: ("torch/nccl-system-error", "unhandled system error"),
    3: ("torch/nccl-internal-error", "internal error"),
    4: ("torch/nccl-invalid-argument", "invalid argument"),
    5: ("torch/nccl-invalid-usage", "invalid usage"),
    6: ("torch/nccl-remote-error", "remote process exited or there was a network error"),
}
"""By code the production of PyTorch's explanation, and NCCL's words (ncclGetErrorString)."""
_PASSED_ON = ("torch/watchdog-terminated", "torch/error-set", "torch/communicator-was-aborted")
"""Statements that end with an error of somebody else, which may be one of NCCL."""
REMOTE = 6
"""ncclRemoteError."""
_INTERFACE = ("init.cc", "group.cc", "enqueue.cc", "collectives.cc")
"""A frame of these files means that the error reached the caller of NCCL."""


def frames(facts: Facts, code: int | None = None, files: str | tuple[str, ...] = "") -> list[Notice]:
    """Return the lines ``file:line -> code`` with this code and in one of these files, in the order of the log."""
    return facts.with_event(ErrorCascade, lambda event: code in (None, event.code) and event.file.endswith(files))


def find_unexplained(facts: Facts, code: int) -> list[Notice]:
    """Return the statements that a call failed with this code, its first frame first; none if the log says more."""
    cascade, statements = frames(facts, code), _find_statements(facts, code)
    reached = [one for one in cascade if str(getattr(one.event, "file", "")).rpartition("/")[2] in _INTERFACE]
    if not (reached or statements) or _is_explained(facts, statements):
        return []
    return [*cascade[:1], *statements, *reached]


def remote(facts: Facts) -> list[Notice]:
    """Return the statements that a call failed because a peer is gone; none if the log says more."""
    statements = [*frames(facts, REMOTE), *_find_statements(facts, REMOTE)]
    return [] if _is_explained(facts, statements) else statements


def _find_statements(facts: Facts, code: int) -> list[Notice]:
    """Return what PyTorch says of a call that failed with this code."""
    named, words = _WORDS[code]
    results = [*facts.with_role("nccl-result"), *facts.notices(*_PASSED_ON)]
    return [
        *facts.notices(named),
        *(one for one in results if words in message_of(one) or value(one, "error") == str(code)),
    ]


def _is_explained(facts: Facts, statements: list[Notice]) -> bool:
    """Return whether a warning, an echo of a peer's end or another error says more than the code."""
    own = {id(one) for one in statements}
    errors = [one for one in facts.errors(forced_ends=False) if id(one) not in own]
    return any(one.level == "WARN" for one in facts.job.notices) or not all(map(is_propagated_error, errors))
