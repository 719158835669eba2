"""Watches a log while it is written: when a job is up, what is found, what changes, and where it stands still.

Its bytes come from a pipe that stays open, or from a file that grows, is cut or is replaced.
"""

from __future__ import annotations

import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nccl_inspect import artifacts
from nccl_inspect.artifacts import NOTHING, Inventory, ras
from nccl_inspect.errors import NoInputError
from nccl_inspect.event import types as events
from nccl_inspect.extras.collect.host import FORMS, FormatError, answer
from nccl_inspect.extras.gate.differences import pair_findings
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.files import STDIN
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.judging.evidence.ras import who
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.places import Places
from nccl_inspect.model.finding import ACTIONS, Finding
from nccl_inspect.model.fold import Burst
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import CommunicatorInfo, Job
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, require_nccl
from nccl_inspect.report.digest import reason
from nccl_inspect.util.discovery import suggest_path
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, list_words, ranges

_REMEMBERED = 256  # bytes before the offset that was read last


class Note(NamedTuple):
    """Something to tell about the input itself."""

    text: str
    begins: bool = False  # what follows is the beginning of a file: lines count from 1 again


Piece: TypeAlias = bytes | Note | None  # bytes as they came; None when nothing came for a while


class Waiter:
    """Waits for input, and notices when nobody reads the output any more."""

    def __init__(self, seconds: float, output: int | None = None) -> None:
        self._milliseconds = seconds * 1000
        self._output = output
        self._poll = select.poll()
        if output is not None:
            self._poll.register(output, 0)

    def add(self, descriptor: int) -> None:
        """Wait for this input."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self) -> bool:
        """Return whether there is input, in time; a BrokenPipeError says that nobody reads the output any more."""
        for descriptor, _ in self._poll.poll(self._milliseconds):
            if descriptor == self._output:
                raise BrokenPipeError
            return True
        return False


def stream(descriptor: int, waiter: Waiter, name: str = STDIN) -> Iterator[Piece]:
    """Yield what comes from a pipe or a terminal until it ends, without waiting for more than there is."""
    waiter.add(descriptor)
    while True:
        if not waiter.wait():
            yield None
            continue
        try:
            data = os.read(descriptor, BLOCK)
        except BlockingIOError:
            yield None
            continue
        except OSError as error:
            raise NoInputError(f"{name}: {error.strerror}", "pipe a log in") from None
        if not data:
            return
        yield data


def follow(path: Path, waiter: Waiter, until_end: bool = False) -> Iterator[Piece]:
    """Yield what a file holds, and what is written to it later, also when it is cut or replaced.

    It need not exist yet, unless it is read until its end. What is not a regular file is read like a pipe.
    """
    if not path.exists():
        if until_end or not path.parent.is_dir():
            raise NoInputError(f"{path}: no such file", suggest_path(path, "check the path"))
        similar = suggest_path(path, "")
        yield Note(f"{path} is not there yet: waiting for it" + (f"; {similar}" if similar else ""))
        while not path.exists():
            waiter.wait()
            yield None
    if path.is_dir():
        raise NoInputError(f"{path}: is a folder", "name one file, or pipe in what 'tail -F' gives of several")
    descriptor, offset, seen = _open(path), 0, b""
    try:
        if not path.is_file():
            yield from stream(descriptor, waiter, str(path))
            return
        while True:
            if how := _find_restart(path, descriptor, offset, seen):
                os.close(descriptor)
                descriptor, offset, seen = _open(path), 0, b""
                yield Note(f"{path} {how}: reading it from its beginning", begins=True)
                continue
            try:
                data = os.read(descriptor, BLOCK)
            except OSError as error:
                raise NoInputError(f"{path}: {error.strerror}", "check the file") from None
            if data:
                offset, seen = offset + len(data), (seen + data)[-_REMEMBERED:]
                yield data
            elif until_end:
                return
            else:
                waiter.wait()
                yield None
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise NoInputError(f"{path}: {error.strerror}", "check its mode and owner") from None


def _find_restart(path: Path, descriptor: int, offset: int, seen: bytes) -> str:
    """Return how a file begins anew: one that grew beyond the offset holds other bytes before it than were seen."""
    opened = os.fstat(descriptor)
    try:
        there = path.stat()
    except OSError:
        return ""
    is_as_seen = True
    with suppress(OSError):  # reading on will tell
        is_as_seen = os.pread(descriptor, len(seen), offset - len(seen)) == seen
    if opened.st_size < offset or not is_as_seen:
        return "was cut or written anew"
    is_other = (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino)
    return "was replaced" if is_other and opened.st_size == offset else ""


class Splitter:
    """Cuts bytes into lines; a line without its end waits for it."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> Lines:
        """Return the lines that end here."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:BLOCK]
        return Lines([line[:BLOCK].rstrip(b"\r") for line in lines], len(data))

    def take_rest(self) -> Iterator[Lines]:
        """Return the line that never ended."""
        if self._rest:
            yield Lines([self._rest.rstrip(b"\r")], 0)
        self._rest = b""


# What RAS answers

_LONGEST = 30.0  # seconds that an answer may take: RAS itself waits for processes that are silent
_MOST = 3


class Asker:
    """Asks RAS every few seconds, if anywhere, in a thread: a slow answer delays no line of the log."""

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self._seconds = where, seconds
        self._forms = list(FORMS)  # JSON has the counts of all ranks, a text only those that differ
        self._found: queue.SimpleQueue[Artifact | str] = queue.SimpleQueue()
        self._over = threading.Event()

    def __enter__(self) -> Asker:
        if self.where:
            threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def ask(self) -> Artifact | str:
        """Return the answer to one question, or why there is none."""
        try:
            data = answer(self.where, self._forms[-1], _LONGEST)
        except FormatError:
            self._forms.pop()
            return self.ask()
        except OSError as error:
            return error.strerror or str(error)
        (found,) = artifacts.contents(f"ras://{self.where}", ras.KIND, iter([data]))
        return found.problem or found

    def take_found(self) -> Iterator[Artifact | str]:
        """Yield what came since the last call."""
        while not self._found.empty():
            yield self._found.get()

    def _run(self) -> None:
        self._found.put(self.ask())
        while not self._over.wait(self._seconds):
            self._found.put(self.ask())


class Late(NamedTuple):
    """Holds those that hold others up, by an answer."""

    ranks: list[int]  # of the job, as far as they are known
    words: list[str]  # what is known of the first few
    names: list[str]


# The watch

_PACKED = b"\x1f\x8b"
_REST = 5  # looking may take this part of the time at most: a sixth, however large the job


class Timing(Frozen):
    """Holds how often and how soon; all in seconds."""

    interval: float = 10.0  # between signs of life; four times as often the job is looked at, if anything came
    settle: float = 5.0  # of quiet, after which no more connections are waited for
    stall: float = 60.0  # without progress, after which an unfinished communicator stands still


class Verdict(NamedTuple):
    """The job is up, or dead, or its log ends: the first verdict on it."""

    job: Job


class Change(NamedTuple):
    """A finding that is ``new``, ``back``, ``gone``, or of another ``severity`` than before."""

    how: str
    finding: Finding
    job: Job
    before: str = ""


class Turn(NamedTuple):
    """The verdict changed."""

    before: str
    job: Job


class Stall(NamedTuple):
    """No progress for some seconds: by the log of a communicator, or by RAS of the job."""

    what: str  # makes none, and since when
    rows: list[tuple[str, str]]  # who waits for whom, in words with labels
    ranks: list[int]  # of the job, that hold it up, as far as they are known
    reason: str  # all in a sentence


class Resumed(NamedTuple):
    """Progress after a stall of some seconds."""

    seconds: float


class End(NamedTuple):
    """The log ends, and a verdict was given before."""

    job: Job


News: TypeAlias = Verdict | Change | Turn | Stall | Resumed | End


class Watch:
    """A log that is judged while it comes, with the evidence that ``beside`` reads, and with what RAS is asked."""

    def __init__(
        self,
        judge: Judge,
        timing: Timing,
        name: str = STDIN,
        clock: Callable[[], float] = time.monotonic,
        beside: Callable[[], Inventory] | None = None,
        asks: bool = False,
    ) -> None:
        self._judge, self._timing, self._name, self._clock = judge, timing, name, clock
        self._beside, self._of_failure = beside, NOTHING
        self._reader = Reader()
        self._fold = self._reader.fold
        self._fold.start(name)
        self._splitter = Splitter()
        self.begun = self._next_look = self._progress = clock()
        self._extent = self._fold.extent()
        self._next_warning = self._next_behind = timing.stall
        self.job: Job | None = None  # as last judged
        self.reported: Job | None = None  # the job as last reported; None before the first verdict
        self._lines = -1  # how many the log had when the whole verdict was shown, until something changed
        self._gone: set[str] = set()
        self.last = ""  # the last step of any rank
        self._answer: Artifact | None = None
        self._counts: dict[tuple[str, str, int], int] = {}
        self.ras, self._moved, self._is_same = "no answer from RAS yet" if asks else "", 0.0, False
        self._is_stuck = self._is_behind = False  # by the log; by RAS

    def feed(self, data: bytes) -> None:
        """Take in what came."""
        if data.startswith(_PACKED) and not self._fold.sources[-1].bytes:
            raise NoInputError(f"{self._name}: compressed, so nothing to watch", "use 'nccl-inspect summarize'")
        self._reader.feed(self._splitter.split(data))

    def take(self, answer: Artifact | str) -> Iterator[News]:
        """Take in what RAS answers, or why it does not, and yield that operations are launched again."""
        if isinstance(answer, str):
            self.ras = f"no answer from RAS ({answer})"
            return
        # How many operations each rank of a communicator launched, as far as the answer shows it.
        found: ras.Answer = answer.value
        counts = {
            (comm, operation, member.rank): number
            for comm, launched in found.launched.items()
            for operation, number in launched.items()
            for member in found.members.get(comm, ())
        }
        for one in found.mismatches:
            counts[one.comm_id, one.operation, -1] = one.usual or 0
            counts |= {(one.comm_id, one.operation, member.rank): member.launched for member in one.members}
        now, is_first = self._clock(), self._answer is None
        self._is_same = not is_first and all(self._counts.get(key, -1) >= count for key, count in counts.items())
        self._counts |= counts
        kept, before = self._find_late(), self._answer
        self._answer = answer
        late = self._find_late()
        if self._is_same and self._is_behind and kept and not (late and set(late.names) <= set(kept.names)):
            self._answer, late = before, kept  # what came later shows who was ended by others
        self.ras = "RAS: all in step" if late is None else "RAS: moving"
        if late and self._is_same:
            self.ras = f"RAS: {list_words(late.names, limit=3)} behind"
        if self._is_same:
            return
        seconds, self._moved, self._next_behind = now - self._moved, now, self._timing.stall
        if self._is_behind:
            self._is_behind, self._of_failure, self._extent = False, NOTHING, (-1, -1, -1)  # judge without the answer
            yield Resumed(seconds)

    def _find_late(self) -> Late | None:
        """Return who launched less than the others, or does not answer; None if nobody."""
        if self._answer is None:
            return None
        found: ras.Answer = self._answer.value
        ranks = found.ranks_by_pid() | (actors_of(Facts(self.job)).ranks_by_pid if self.job else {})
        late = found.last_to_come()
        words: dict[str, str] = {}
        for mismatch in found.mismatches:
            most = max((*(member.launched for member in mismatch.members), mismatch.usual or 0), default=0)
            for member in mismatch.behind:
                if member in late or (member.pid and member.pid in {one.pid for one in late}):
                    others = f"{mismatch.operation}, others {most}, in communicator {mismatch.comm_id}"
                    words.setdefault(who(member, ranks), f"{member.launched} {others}")
        for lost in found.lost:
            member = ras.Member(-1 if lost.rank is None else lost.rank, lost.host, lost.pid)
            words[who(member, ranks)] = "considered dead" if lost.is_dead else "does not answer"
        if not words:
            return None
        pids = {one.pid for one in late} | {lost.pid for lost in found.lost}
        known = sorted({rank for pid in pids if pid is not None and (rank := ranks.get(pid)) is not None})
        said = [f"{name}: {text}" for name, text in words.items()]
        return Late(known, said[:_MOST], list(words))

    def begin(self) -> None:
        """Count lines from 1 again: what follows is the beginning of a file."""
        self._finish()
        self._splitter = Splitter()
        self._fold.start(self._name)

    def _finish(self) -> None:
        for lines in self._splitter.take_rest():
            self._reader.feed(lines)

    def look(self) -> list[News]:
        """Return the news since the last call; the job is judged only when it is time for that."""
        now = self._clock()
        if now < self._next_look:
            return []
        news: list[News] = []
        extent = self._fold.extent()
        if extent[:2] != self._extent[:2]:
            if self._is_stuck:
                news.append(Resumed(now - self._progress))
                self._next_warning, self._is_stuck = self._timing.stall, False
            self._progress = now
            step = self._fold.last_step()
            if step is None or isinstance(step, Burst):
                self.last = "connections" if step else ""
            elif isinstance(step.event, events.CommInit):
                what = "init began" if step.event.phase == "START" else "init complete"
                self.last = f"{what} (rank {step.event.rank})"
            else:
                self.last = _STEPS.get(type(step.event), step.event.production)
        if extent != self._extent:
            self._extent = extent
            self.job = self._judge_now()
        if self.job is not None:
            if self.reported is not None:
                news.extend(self._tell(self.job))
            elif is_up(self.job, now - self._progress, self._timing):
                self.job = self._judge_now()  # its counts of lines are those of now
                news.extend(self._tell(self.job))
                self._lines = sum(source.lines for source in self.job.sources)
            news.extend(self._report_stall(self.job, now))
        news.extend(self._report_lag(now))
        self._next_look = now + max(self._timing.interval / 4, _REST * (self._clock() - now))
        return news

    def end(self, interrupted: bool = False) -> tuple[list[News], Job]:
        """Return the last news, and the job: the log ends here, or the job continues unwatched, if interrupted."""
        self._finish()
        try:
            require_nccl(self._fold)
        except NoInputError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise
        self._fold.partial = interrupted
        # After a stall the answer is what the stall said, whether somebody waited for more or not.
        is_stalled = self._is_stuck and self._fold.extent()[:2] == self._extent[:2]
        quiet = self._clock() - self._progress if is_stalled else None
        beside = self._evidence()
        job = self._judge(self._fold, going_on=interrupted and quiet is None, quiet=quiet, beside=beside)
        is_said = not (interrupted or beside.evidence) and sum(source.lines for source in job.sources) == self._lines
        is_first, news = self.reported is None, list(self._tell(job))
        return [*news, *([] if is_first or (is_said and not news) else [End(job)])], job

    @property
    def communicators(self) -> tuple[int, int]:
        """Return how many communicators all ranks that began have finished, and how many there are."""
        comms = self.job.communicators if self.job else []
        return sum(not _list_unfinished(comm) for comm in comms), len(comms)

    def count_lines(self) -> tuple[int, int]:
        """Return how many lines were read, and how many of them are NCCL's."""
        counts = [source.counts for source in self._fold.sources]
        return sum(each.lines for each in counts), sum(each.nccl_lines for each in counts)

    def _judge_now(self) -> Job:
        return self._judge(self._fold, going_on=True, beside=self._of_failure)

    def _tell(self, job: Job) -> Iterator[News]:
        before, self.reported = self.reported, job
        if before is None:
            yield Verdict(job)
        if before is None or before is job:
            return
        self._lines = -1
        for old, new in pair_findings(before.findings, job.findings):
            if old and new is None:
                self._gone.add(old.rule)
                yield Change("gone", old, job)
            elif new and old is None:
                yield Change("back" if new.rule in self._gone else "new", new, job)
            elif old and new and old.severity != new.severity:
                yield Change("severity", new, job, old.severity)
        if before.verdict != job.verdict:
            yield Turn(before.verdict, job)

    def _report_stall(self, job: Job, now: float) -> Iterator[News]:
        """Warn after once, twice, four times … the time; what is known to be dead does not stand still."""
        seconds = now - self._progress
        if seconds < self._next_warning:
            return
        if job.verdict == "failed":  # its dumps may have come
            self._next_warning *= 2
            yield from self._report_evidence(None)
            return
        comm = next(filter(_list_unfinished, job.communicators), None)
        if comm is None:
            return
        while self._next_warning <= seconds:
            self._next_warning *= 2
        waiting, missing = sorted(comm.pending), sorted(comm.absent)
        global_ranks = {rank: other for rank, other in enumerate(comm.ranks) if other is not None}
        within, of = " (counted within it)", f" of communicator {comm.id}"
        if are_global := global_ranks.keys() >= {*waiting, *missing}:
            waiting, missing = ([global_ranks[rank] for rank in ranks] for ranks in (waiting, missing))
            within = of = ""
        groups = [("waiting", waiting, "began and did not finish", "")]
        groups += [("missing", missing, "did not begin", ", or not in this log")] if missing else []
        rows = [
            (word, f"{count(len(who), 'rank')}{within}: {ranges(who)}, {how}{or_}") for word, who, how, or_ in groups
        ]
        _, ranks, how, _ = groups[-1]  # those for whom others wait
        self._is_stuck, idle = True, f"made no progress for {seconds:.0f} s"
        yield Stall(
            f"communicator {comm.id} ({count(comm.nranks, 'rank')}) {idle}",
            [*rows, ("last step", self.last or "none")],
            ranks if are_global else [],
            f"communicator {comm.id} {idle}: {count(len(ranks), 'rank')}{of}, {ranges(ranks)}, {how}",
        )
        yield from self._report_evidence(seconds)

    def _report_evidence(self, seconds: float | None) -> Iterator[News]:
        """Yield what the evidence says by now of a stall, or of a failure: then there is no time of it."""
        beside = self._evidence()
        if not beside.evidence:
            return
        self._of_failure = beside if seconds is None else NOTHING
        self.job = self._judge(self._fold, going_on=seconds is None, quiet=seconds, beside=beside)
        yield from self._tell(self.job)

    def _evidence(self) -> Inventory:
        beside = self._beside() if self._beside else NOTHING
        if self._answer is None or not self._is_same or self._find_late() is None:
            return beside
        return beside._replace(evidence=[*beside.evidence, self._answer])

    def _report_lag(self, now: float) -> Iterator[News]:
        """Yield who holds the job up by RAS, after once, twice, four times … the time, if the log is of that job."""
        seconds = now - self._moved
        is_told = self._is_behind and self.job is not None and self.job.verdict == "failed"
        if not self._is_same or is_told or seconds < self._next_behind or (late := self._find_late()) is None:
            return
        if self.job is not None:
            job = self._judge(self._fold, going_on=True, beside=self._evidence())
            if not any(self._answer is not None and entry.value is self._answer.value for entry in job.artifacts):
                self.ras = "RAS: of another job"
                return
        while self._next_behind <= seconds:
            self._next_behind *= 2
        self._is_behind, words = True, f"no operation was launched for {seconds:.0f} s"
        rows = [("" if index else "behind", text) for index, text in enumerate(late.words)]
        yield Stall(f"by RAS {words}", rows, late.ranks, f"{words}: {'; '.join(late.words)}")
        if self.reported is not None:
            yield from self._report_evidence(None)


def is_up(job: Job, seconds: float, timing: Timing) -> bool:
    """Return whether enough is known for a verdict: all is connected, or nothing more comes, or it is dead."""
    comms, quiet = job.communicators, seconds >= timing.settle
    if job.verdict == "failed":
        # What failed first may come last; and what failed before any communicator began may be got over.
        return quiet if job.failed or comms else seconds >= timing.stall
    if any(map(_list_unfinished, comms)):
        return False
    if quiet:
        return bool(comms or len(job.paths))
    if not comms or any(len(comm.completed) < comm.nranks for comm in comms):
        return False
    expected = {rank for comm in comms if comm.nranks > 1 for rank in comm.ranks}
    return expected <= {rank for (rank,) in job.paths.distinct("src")}


def _list_unfinished(comm: CommunicatorInfo) -> list[int]:
    if comm.state in ("destroyed", "aborted") or (comm.connected and comm.completed):
        return []  # it was complete, though a line that says so may be lost
    return sorted(comm.pending)


_STEPS: dict[type[events.Event], str] = {
    **dict.fromkeys((events.CommSplit, events.CommNoColor), "split"),
    events.CommShape: "nodes counted",
    events.CommEnd: "communicator ended",
    events.ChannelCounts: "channels counted",
    events.RingOrder: "rings built",
    events.TreeLinks: "trees built",
    events.Connected: "connected",
    events.NetworkInUse: "network chosen",
}


# What ends a watch

STALL = "stall"
_ACTION = "action="
TO_ACT = tuple(f"{_ACTION}{name}" for name in ACTIONS[:-1])  # conditions for a finding that needs this action
CONDITIONS = ("error", "warning", STALL, *TO_ACT)
"""What a watch may end on: a finding of this severity or a higher one, or a communicator without progress."""
PREFIX = "NCCLINSPECT_"
_MAX_BYTES = 100_000  # of a variable: with a longer one Linux runs no command (`MAX_ARG_STRLEN`)
_STDERR = 2


class Alarm(NamedTuple):
    """Why a watch ends: one of :data:`CONDITIONS`, and for the command what was found and what to do."""

    condition: str
    verdict: str
    reason: str
    rule: str = ""
    severity: str = ""
    action: str = ""
    ranks: str = ""
    hosts: str = ""
    fix: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the command; one that is too long is empty: a part of a list would look like all."""
        names = (f"{PREFIX}{name.upper()}" for name in self._fields[1:])
        texts = map(escape_controls, self[1:])
        return {name: text if len(text.encode()) <= _MAX_BYTES else "" for name, text in zip(names, texts, strict=True)}


def find_alarm(news: Iterable[News], conditions: Collection[str]) -> Alarm | None:
    """Return what of some news ends the watch, if anything does."""
    limits = [SEVERITIES.index(name) for name in conditions if name in SEVERITIES]
    for event in news:
        if isinstance(event, Stall) and STALL in conditions:
            return Alarm(STALL, "unknown", event.reason, ranks=ranges(event.ranks))
        if isinstance(event, Stall | Resumed):
            continue
        job = event.job
        severe = [(f.severity, f) for f in job.findings if limits and SEVERITIES.index(f.severity) >= min(limits)]
        needing = [(f"{_ACTION}{f.action}", f) for f in job.findings if f"{_ACTION}{f.action}" in conditions]
        for condition, found in (*needing, *severe):
            places = Places(job)
            hosts = found.hosts or dict.fromkeys(host for rank in found.ranks if (host := places.locate(rank).host))
            what = (found.summary, found.rule, found.severity, found.action, ranges(found.ranks), ",".join(hosts))
            return Alarm(condition, job.verdict, *what, fix=next(iter(found.fix), ""))
        if limits and job.verdict == "failed":
            return Alarm("error", job.verdict, reason(job), severity="error")
    return None


def run_command(command: str, why: Alarm) -> int:
    """Run a command by the shell, which prints to stderr and gets variables: nothing of the log is put into it."""
    shell, variables = ["/bin/sh", "-c", command], {**os.environ, **why.environment}
    return subprocess.run(shell, env=variables, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False).returncode  # noqa: S603
