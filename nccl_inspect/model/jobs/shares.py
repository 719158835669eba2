"""One job's share of a log that holds several: a part of a fold that is resolved like a whole one.

Lines of processes are those of the job that has the process. What nobody is known to have printed (launchers,
exceptions, the version line of old releases) goes to the job whose host, pid or label it names, and else by its place:
to the job whose lines stand around it. Where a source has processes of one job only and that one lacks ranks, the place
alone counts: a host that is named may be theirs. Between two jobs that follow each other, all up to the last error or
end, and up to its last work, is of the first.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import ErrorCascade, NcclTestResult, ProcessEnded
from nccl_inspect.grammar import engine
from nccl_inspect.model import processes
from nccl_inspect.model.fold.process_log import Burst, Note, ProcessLog, SourceCounts, Step, position, source_and_line
from nccl_inspect.model.processes import Gathered
from nccl_inspect.model.statements import job_failure
from nccl_inspect.model.statements.work import shows_work
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.levels import STATEMENTS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Record, record
from nccl_inspect.util.text import decode, escape_controls

if TYPE_CHECKING:
    from nccl_inspect.model.communicators.communicator import Communicator
    from nccl_inspect.model.fold.fold import Fold


_JUST = 400  # lines of other jobs after the last line of a job within which its end is reported


class Landmarks:
    """Lines of known jobs in one source, in their order."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []  # each place with its job
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.closings: list[int] = []  # places of errors, ends and work of unknown processes

    def sort(self) -> None:
        """Put what was added in its order."""
        self.rows.sort()
        for place, job in self.rows:
            self.first.setdefault(job, place)
            self.last[job] = place
        self.closings.sort()

    def owner(self, place: int, is_end: bool = False) -> int:
        """Return the job that a line belongs to by its place; an end is that of one that stopped just before it."""
        at = bisect_right(self.rows, place, key=itemgetter(0))
        if at == 0:
            return self.rows[0][1]
        before = self.rows[at - 1][1]
        if is_end and self.last[before] > place:
            late = (job for _, job in reversed(self.rows[max(0, at - _JUST) : at]))
            # It ran at the same time.
            before = next((job for job in late if self.first[before] < self.last[job] <= place), before)
        if at == len(self.rows) or self.rows[at][1] == before or self.last[before] > place:
            return before
        begin, after = self.rows[at]
        closing = self.closings[bisect_left(self.closings, begin) - 1] if self.closings else 0
        return before if place <= closing < begin else after

    def nearest(self, place: int, sizes: Sequence[int], rank: int) -> int | None:
        """Return the job with a rank whose lines are nearest to a place: that before it, or else that behind it."""
        at = bisect_right(self.rows, place, key=itemgetter(0))
        near = *reversed(self.rows[max(0, at - _JUST) : at]), *self.rows[at : at + _JUST]
        return next((job for _, job in near if rank < sizes[job]), None)

    def end(self, job: int) -> int:
        """Return the number of the last line of a job, where another job follows; else 0."""
        end = self.rows[-1][0]
        last = self.last.get(job, end)
        return source_and_line(last)[1] if last < end else 0


_AT_WORK = {"test-end", "works", "mid-run"}  # roles of what is only printed when a job has begun to work
_WORD = compile_later(rb"[A-Za-z0-9][A-Za-z0-9._-]*")
_PID = compile_later(rb"\b[Pp][Ii][Dd][ :=]+(\d{2,10})")
_NOBODY = -1


@record
class Claim(Record):
    """Holds what is known to be of one job."""

    processes: set[Process] = field(default_factory=set)
    sources: set[int] = field(default_factory=set)  # those of which every line is, whoever printed it
    alongside: int = 0  # see :class:`~nccl_inspect.model.job.Job`


class Share:
    """Holds what one job has of a fold; it is resolved as if it were all.

    Args:
        visited: the numbers of those in which only processes of other jobs print, and a launcher names this one.
    """

    def __init__(
        self,
        fold: Fold | Share,
        sources: Mapping[int, SourceCounts],
        visited: set[int],
        everything: list[ProcessLog],
        repeated: Mapping[Process, list[Step | Burst]],
        unrecognised: dict[bytes, Note],
        alongside: int,
    ) -> None:
        self.where: Callable[[int], tuple[str, int, int]] = fold.where
        self.partial: bool = fold.partial
        self.restored: int = fold.restored
        self.has_envelope: bool = fold.has_envelope
        self.sources_by_number = sources
        self.sources = list(sources.values())
        self.visited = visited
        self._everything, self._repeated = everything, repeated
        self.processes = {log.process: log for log in everything}
        self.unrecognised = unrecognised
        self.alongside = alongside
        steps = [step for log in everything for step in log.steps]
        stated = (note.event for log in everything for note in log.notes.values())
        edges = (edge.event for step in steps if isinstance(step, Burst) for edge in step.edges.values())
        events = chain((step.event for step in steps), edges, stated)
        own = {(event.dialect, event.production) for event in events if event}  # as far as something of them is kept
        self.productions: set[tuple[str, str]] = own & fold.productions

    def gather(self) -> Gathered:
        """Return its processes."""
        return Gathered(self._everything, self.restored > 0, self._repeated)


class Division:
    """Divides what a fold has among jobs.

    Args:
        gathered: the processes of the fold; each life that has a host has one claim.
    """

    def __init__(self, fold: Fold | Share, gathered: Gathered, claims: Sequence[Claim]) -> None:
        self._fold, self._gathered, self._claims = fold, gathered, claims
        self._numbered = fold.sources_by_number
        self._of_process = {process: job for job, claim in enumerate(claims) for process in claim.processes}
        self._of_source = {source: job for job, claim in enumerate(claims) for source in claim.sources}
        self._landmarks: dict[int, Landmarks] = {}
        self._hosts: dict[bytes, set[int]] = {}
        self._pids: dict[bytes, set[int]] = {}
        self._labels: dict[str, set[int]] = {}
        self._lacking = {self._job_of(comm) for comm in gathered.communicators if len(comm.members) < comm.nranks}
        """Jobs of which the log does not show all ranks, nor perhaps all hosts."""
        self._loose = [log for log in fold.processes.values() if not log.process.host]
        self._everything: list[list[ProcessLog]] = [[] for _ in claims]
        for log, lives in zip(gathered.logs, gathered.lives, strict=True):
            jobs = [self._of_process[life.process] for life in lives]
            for life, job in zip(lives, jobs, strict=True):
                self._mark(life, job)
            is_of_one = len(set(jobs)) == 1
            for life, job in [(log, jobs[0])] if is_of_one else zip(lives, jobs, strict=True):
                self._everything[job].append(life)
        for number, marks in self._landmarks.items():
            source = self._numbered[number]
            ends = [line for line, text in source.counts.tail if job_failure.end_text(text, fold.has_envelope)]
            ends += [exception.number for exception in source.raised]
            ends += [line for line, text in source.results() if shows_work(decode(text))]
            marks.closings.extend(position(number, line) for line in ends)
        for note in (note for log in self._loose for note in log.notes.values()):
            event = note.event
            is_closing = job_failure.is_end(event) or note.level in STATEMENTS or isinstance(event, ErrorCascade)
            if event is not None and not is_closing:
                is_closing = not _AT_WORK.isdisjoint(engine.find_roles(event)) or getattr(event, "tone", "") == "error"
                is_closing |= isinstance(event, NcclTestResult)
            for place in _list_places(note) if is_closing else ():  # what follows may be of the next job
                if marks_there := self._landmarks.get(source_and_line(place)[0]):
                    marks_there.closings.append(place)
        for marks in self._landmarks.values():
            marks.sort()
        self._mark_ranks()

    def _mark(self, log: ProcessLog, job: int) -> None:
        host, pid, label = log.process
        if is_named(host):
            self._hosts.setdefault(host.encode(errors="surrogateescape"), set()).add(job)
        self._pids.setdefault(b"%d" % pid, set()).add(job)
        self._labels.setdefault(log.opening.label or label, set()).add(job)
        for place in (log.first, *(step.place for step in log.steps), log.last):
            self._landmarks.setdefault(source_and_line(place)[0], Landmarks()).rows.append((place, job))

    def _job_of(self, comm: Communicator) -> int:
        return self._of_process[next(iter(comm.members.values())).log.process]

    def _mark_ranks(self) -> None:
        """Give lines of nobody about a rank that their job cannot have to the nearest one that can.

        They become lines of that job, so that what follows in the same report is given to it, too.
        """
        sizes = [0] * len(self._claims)
        for comm in self._gathered.communicators:
            job = self._job_of(comm)
            sizes[job] = max(sizes[job], comm.nranks)
        about: list[tuple[int, int | None]] = []
        for note in (note for log in self._loose for note in log.notes.values()):
            ranks = (*(note.event.ranks if isinstance(note.event, ProcessEnded) else ()), note.printed.origin.rank)
            rank = max((rank for rank in ranks if rank is not None), default=None)
            about += [(place, rank) for place in _list_places(note)]
        for number, source in self._numbered.items():
            about += [(position(number, exception.number), exception.rank) for exception in source.raised]
        moved: dict[int, list[tuple[int, int]]] = {}
        for place, rank in about:
            marks = self._landmarks.get(source_and_line(place)[0])
            if marks is None or rank is None or not 0 < sizes[marks.owner(place)] <= rank:
                continue
            nearest = marks.nearest(place, sizes, rank)
            if nearest is not None:
                moved.setdefault(source_and_line(place)[0], []).append((place, nearest))
        for number, rows in moved.items():
            self._landmarks[number].rows += rows
            self._landmarks[number].sort()

    def _owner(self, place: int, text: bytes, label: str | None = None, is_end: bool = False) -> int:
        """Return the job of a line of nobody; :data:`_NOBODY` where there is none in its source."""
        if label and len(jobs_named := self._labels.get(label, set())) == 1:
            return next(iter(jobs_named))
        number = source_and_line(place)[0]
        if number in self._of_source:
            return self._of_source[number]
        marks = self._landmarks.get(number)
        if marks and len(marks.last) == 1 and self._lacking.issuperset(marks.last):
            return marks.owner(place, is_end)
        for words, owners in ((_WORD.findall(text), self._hosts), (_PID.findall(text), self._pids)):
            named = {next(iter(jobs)) for word in words if len(jobs := owners.get(word, set())) == 1}
            if len(named) == 1:
                return named.pop()
        return marks.owner(place, is_end) if marks else _NOBODY

    def shares(self) -> list[Share]:
        """Return the shares of the jobs, in the order of their claims."""
        own_logs = set(map(id, self._gathered.logs))
        for log in self._gathered.everything:
            if id(log) not in own_logs and log.process.host:
                self._everything[max(0, self._owner(log.first, b"", log.opening.label))].append(log)
        for log in self._loose:
            for job, piece in self._pieces(log):
                self._everything[job].append(piece)
        unrecognised: list[dict[bytes, Note]] = [{} for _ in self._claims]
        for message, note in self._fold.unrecognised.items():
            owner = self._of_process.get(note.printed.process)
            if owner is None:
                owner = self._owner(note.place, note.message, note.printed.origin.label)
            if owner != _NOBODY:
                unrecognised[owner][message] = note
        sources, repeated = self._sources(unrecognised), self._gathered.repeated
        together = list(map(processes.apart, self._everything))
        return [
            Share(
                self._fold,
                sources[job],
                {at for at in sources[job] if at in self._landmarks and job not in self._landmarks[at].last},
                everything,
                {log.process: repeated[log.process] for log in everything if log.process in repeated},
                unrecognised[job],
                claim.alongside,
            )
            for job, (claim, everything) in enumerate(zip(self._claims, together, strict=True))
        ]

    def _pieces(self, log: ProcessLog) -> Iterator[tuple[int, ProcessLog]]:
        """Yield what nobody printed, by the job that it belongs to."""
        pieces: dict[int, ProcessLog] = {}
        for key, note in log.notes.items():
            is_end = job_failure.is_end(note.event)
            by_job = group_values(
                (self._owner(place, note.message, note.printed.origin.label, is_end), place)
                for place in _list_places(note)
            )
            by_job.pop(_NOBODY, None)
            for job, own in by_job.items():
                piece = pieces.setdefault(job, ProcessLog(log.process, opening=log.opening, closing=log.closing))
                piece.notes[key] = (
                    note
                    if len(by_job) == 1
                    else replace(note, place=own[0], last=own[-1], count=len(own), places=array("q", own[1:]))
                )
        for job, piece in pieces.items():
            places = [place for note in piece.notes.values() for place in _list_places(note)]
            piece.first, piece.last = min(places), max(places)
            yield job, piece

    def _sources(self, unrecognised: Sequence[Mapping[bytes, Note]]) -> list[dict[int, SourceCounts]]:
        """Return for each job the sources that have lines of it, with its share of the loose ones.

        Args:
            unrecognised: by jobs, their lines that no production knows: a process may have no others in a source, and
                a job none but those of a launcher that names its host or a pid.
        """
        by_job: list[dict[int, SourceCounts]] = [{} for _ in self._claims]
        of_source: dict[int, set[int]] = {}
        for job, (notes, logs) in enumerate(zip(unrecognised, self._everything, strict=True)):
            nobodys = (note for log in logs if not log.process.host for note in log.notes.values())
            for place in chain.from_iterable([*map(_list_places, nobodys), [note.place for note in notes.values()]]):
                of_source.setdefault(source_and_line(place)[0], set()).add(job)
        for number, source in self._numbered.items():
            marks = self._landmarks.get(number)
            jobs = {*of_source.get(number, ()), *(marks.last if marks else ())}
            if number in self._of_source:
                jobs.add(self._of_source[number])
            if len(jobs) == 1:
                by_job[jobs.pop()][number] = source
                continue
            for job, share in self._divide_source(number, source, jobs).items():
                by_job[job][number] = share
        return by_job

    def _divide_source(self, number: int, source: SourceCounts, jobs: Iterable[int]) -> dict[int, SourceCounts]:
        """Return a source with lines of several jobs, for each of them; the numbers of lines stay those of all."""
        counts = source.counts
        marks = self._landmarks.get(number)
        more = counts.damaged_lines - len(counts.broken)
        # Damaged lines that are not kept stand behind those that are: a job that was over by then has none of them.
        last_kept = counts.broken[-1][0] if counts.broken else 0
        last_lines = {job: source_and_line(place)[1] for job, place in marks.last.items()} if marks else {}
        over = {job for job, line in last_lines.items() if line <= last_kept}
        tail, spared, raised, benchmarks, broken, mended = (
            self._by_job(number, lines)
            for lines in (counts.tail, source.spared, source.raised, source.results(), counts.broken, counts.mended)
        )
        return {
            job: replace(
                source,
                spared=spared[job],
                raised=deque(raised[job]),
                benchmarks=benchmarks[job],
                at_end=[],
                until=marks.end(job) if marks else 0,
                counts=replace(
                    counts,
                    tail=deque(tail[job]),
                    broken=broken[job],
                    mended=mended[job],
                    damaged_lines=len(broken[job]) + more * (job not in over),
                ),
            )
            for job in jobs
        }

    def _by_job(self, number: int, lines: Iterable[Any]) -> defaultdict[int, list[Any]]:
        by_job: defaultdict[int, list[Any]] = defaultdict(list)
        for line in lines:
            is_end = job_failure.end_text(line[1], self._fold.has_envelope) is not None
            by_job[self._owner(position(number, line[0]), line[1], is_end=is_end)].append(line)
        return by_job


def _list_places(note: Note) -> list[int]:
    """Return where a statement of nobody was made, as far as that is kept."""
    return sorted({note.place, *(note.places or ()), note.last})


_END = compile_later(r"[^A-Za-z0-9]*$")
_POD = "pod/"  # what kubectl puts in front of the name of a pod; that of the container follows it
_SUFFIX = compile_later(r"(?:\.(?:log|txt|out|err|gz|bz2|xz|zst))+$")


def titles(shares: Sequence[Share]) -> list[str]:
    """Return a name for each job, all different, in the order of the jobs."""
    sources = [[number for number in share.sources_by_number if number not in share.visited] for share in shares]
    owners = Counter(chain.from_iterable(sources))
    files = _short({number: source.name for share in shares for number, source in share.sources_by_number.items()})
    names = []
    for index, (share, numbers) in enumerate(zip(shares, sources, strict=True), 1):
        own = [files[number] for number in numbers if owners[number] == 1]
        is_split = len(own) < len(numbers) or len(files) == 1
        # The names of pods or nodes; what else collectors print holds pids.
        labels = (log.opening.label for log in share.processes.values() if log.process.host)
        plain = (label for label in labels if label and not any(map(str.isspace, label)))
        pods = list(dict.fromkeys(escape_controls(label.removeprefix(_POD).partition("/")[0]) for label in plain))
        names.append(("" if is_split else _common(own)) or _common(pods) or f"job {index}")
    return _different(names)


def _short(names: Mapping[int, str]) -> dict[int, str]:
    """Files without the folder that all of them are in; one that is alone in its folder has the name of that."""
    folders = [name.rpartition("/")[0] for name in names.values()]
    top = os.path.commonpath(folders) if len(names) > 1 and all(folders) else ""
    short = {
        number: escape_controls(name.removeprefix(top).lstrip("/") if top else name) for number, name in names.items()
    }
    alone = Counter(name.rpartition("/")[0] for name in short.values())
    for number, name in short.items():
        folder, plain = name.rpartition("/")[0], _SUFFIX.sub("", name)
        if folder and alone[folder] == 1:
            short[number] = folder
        elif plain and not plain.isdecimal():  # a mere number would look like that of a job
            short[number] = plain
    return short


def _common(names: Sequence[str]) -> str:
    """Return what names begin with; empty where they have next to nothing in common."""
    if len(names) == 1:
        return names[0]
    begin = _END.sub("", os.path.commonprefix(list(names)))  # noqa: RUF071
    return begin if len(begin) > 1 else ""


def _different(names: Sequence[str]) -> list[str]:
    """Return the same names, numbered where several are alike."""
    several = Counter(names)
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} ({seen[name]})" if several[name] > 1 else name)
    return numbered
