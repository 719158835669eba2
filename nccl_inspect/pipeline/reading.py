"""From inputs to a judged job, and to a stream of events: what the command line and the Python API share."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect import judge, platforms, topology
from nccl_inspect.artifacts import NOTHING, Inventory
from nccl_inspect.bandwidth.lines import is_kept
from nccl_inspect.errors import NcclInspectError, NoInputError, suggestion
from nccl_inspect.event.base import PlacedEvent, hide_secrets
from nccl_inspect.event.types import Event, Where
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.sources import blocks, files
from nccl_inspect.ingest.sources.blocks import Progress, Source
from nccl_inspect.ingest.sources.files import Input
from nccl_inspect.judging import engine as rules
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.judging.machine_type import platform_of
from nccl_inspect.model import resolve
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import VERDICTS, Standing
from nccl_inspect.model.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.model.jobs import jobs_of, runs_of
from nccl_inspect.model.processes import Gathered
from nccl_inspect.model.statements import ages, unrecognised
from nccl_inspect.pipeline.options import Options
from nccl_inspect.pipeline.reader import Piece, Reader, find_turned, may_be_excerpt, read_excerpts
from nccl_inspect.report import digest
from nccl_inspect.scanning.found import Counts, Text
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.interruption import Interruption
from nccl_inspect.util.memory import keep_reserve
from nccl_inspect.util.records import values
from nccl_inspect.util.text import decode
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.model.inventory import Artifact

__all__ = ("Options",)  # who reads needs them, so that they come from here as well
_SHARE = 128 << 20  # bytes that are worth a process, where nobody says how many there are to be
_MAX_PROCESSES = 16  # more of them would wait for the first one, which puts together what they found


def fold(
    inputs: Input | Sequence[Input],
    progress: Progress | None = None,
    interruption: Interruption | None = None,
    jobs: int | None = 1,
) -> Fold:
    """Read all inputs; one that cannot be read stops only itself, and its entry in ``Fold.sources`` says why.

    Args:
        inputs: paths, globs, ``-``, bytes or binary file objects.
        progress: called after each piece with the number of bytes read and their total.
        interruption: when it happens, what was read so far is the result, marked as partial.
        jobs: number of reading processes; None for as many as the machine has processors and the input is worth. The
            result is the same.

    Raises:
        NoInputError: nothing could be read, or no line is NCCL's.
        KeyboardInterrupt: the interruption came before the first line of NCCL.
    """
    given = [file if file.again else file.with_fields(open=files.Kept(file)) for file in files.find(inputs)]
    reader = Reader()
    state = _fill_fold(reader, _pieces(reader.fold, given, progress, jobs), interruption)
    turned = set() if state.partial else find_turned(state)
    if turned and not files.can_read_again(given):
        what = f"its newest line comes first, and a stream of more than {files.MAX_KEPT >> 20} MB cannot be reversed"
        raise NoInputError(f"{', '.join(sorted(turned))}: {what}", "… | tac | nccl-inspect summarize, or name a file")
    widths = {} if state.partial or not files.can_read_again(given) else unrecognised.cut_widths(state)
    if turned or widths:
        state = _fill_fold(Reader(widths=widths), _read_all(given, None, turned), interruption)
    if not widths and not state.partial and may_be_excerpt(state):
        again = read_excerpts(_read_all(given, None))
        state = again if again.restored else state
    if state.partial and not _has_nccl(state):
        raise KeyboardInterrupt
    require_nccl(state)
    return state


def _fill_fold(reader: Reader, pieces: Iterator[Piece], interruption: Interruption | None) -> Fold:
    for piece in interruption.until(pieces) if interruption else pieces:
        reader.add(piece)
    reader.fold.partial = interruption is not None and interruption.happened
    return reader.fold


def _pieces(state: Fold, given: Sequence[Input], progress: Progress | None, jobs: int | None) -> Iterator[Piece]:
    """Yield what is to be added to the fold."""
    if jobs != 1:
        from nccl_inspect.pipeline import workers  # a short log needs none
        from nccl_inspect.util.processes import processors

        wanted, least = (jobs, 1) if jobs else (min(processors(), _MAX_PROCESSES), _SHARE)
        if groups := workers.plan_parts(given, wanted, least):
            total = sum(part.size for group in groups for part in group)
            yield from workers.share_work(state, groups, lambda size: progress(size, total) if progress else None)
            return
    yield from _read_all(given, progress)


def _read_all(given: Sequence[Input], progress: Progress | None, turned: Container[str] = ()) -> Iterator[Piece]:
    """Yield all files, one after the other."""
    for source in blocks.find(given, progress):
        from_the_end = source.name in turned
        yield source.with_fields(newest_first=True) if from_the_end else source
        yield from blocks.records_of(source, from_the_end)


def require_nccl(state: Fold) -> None:
    """Make sure that there is something to judge; a NoInputError says that no line is NCCL's."""
    for source in state.sources:
        source.at_end = [(number, text) for number, text in source.at_end if is_kept(text)]
    if not _has_nccl(state):
        lines = {source.name: source.counts.lines for source in state.sources}
        raise nothing_found(lines, [source.problem for source in state.sources if source.problem])


def _has_nccl(state: Fold) -> bool:
    """Return whether there is a line of NCCL, or results of a benchmark: these are judged without any."""
    if any(source.counts.nccl_lines or source.counts.related_lines for source in state.sources):
        return True
    results = [(source, source.results()) for source in state.sources]
    if not any(lines for _, lines in results):
        return False
    from nccl_inspect.bandwidth import tables

    return any(
        table.tool != tables.PROGRAM
        for source, lines in results
        for table in tables.tables([Evidence(source.name, number, decode(text)) for number, text in lines])
    )


def nothing_found(sources: dict[str, int], problems: list[str]) -> NoInputError:
    """Why there is nothing to judge."""
    names, lines = list(sources), sum(sources.values())
    where = names[0] if len(names) == 1 else f"{len(names)} inputs ({names[0]}, …)"
    if not problems:
        what = f"{where}: empty" if lines == 0 else f"{where}: no NCCL line among {count(lines, 'line')}"
        return NoInputError(what, "run the job with NCCL_DEBUG=INFO and give what it prints")
    rest = []
    if len(problems) > 1:
        rest.append(f"{len(problems) - 1} more cannot be read")
    if len(names) > len(problems):
        rest.append(f"the other {len(names) - len(problems)} hold no NCCL line")
    return NoInputError(f"{problems[0]} ({', '.join(rest)})" if rest else problems[0])


class Judge:
    """Turns folds into judged jobs; an NcclInspectError names what is unknown in the options, or not understood."""

    def __init__(self, options: Options) -> None:
        self._rules = rules.select_rules(options.select, options.ignore)
        self._platform = platforms.require_platform(options.platform) if options.platform else None
        self._topologies = [*map(topology.read, options.topologies), *options.topologies_read]
        self._options = options

    @keep_reserve
    def find_job(
        self,
        state: Fold,
        visit: Callable[[Job], None] | None = None,
        is_one_of_two: bool = False,
        beside: Inventory = NOTHING,
    ) -> Job:
        """Return the job of a fold; of several the worst, with the others in brief, or the one that the options name.

        Args:
            state: what was read.
            visit: is shown each job of the input.
            is_one_of_two: another input is read as well; a job that the options name may be in that one only.
            beside: what the inputs hold besides logs; each job gets the evidence that fits it.

        An NcclInspectError says that there is no such job or run.
        """
        visit = visit or (lambda _: None)
        judge: _Judge = self.judge_fold
        allotment, wanted, run = None, self._options.job, self._options.run
        if beside.evidence:
            from nccl_inspect.artifacts.joining import Allotment  # most logs come alone

            allotment = Allotment(beside.evidence)

            def judge(share: Fold, gathered: Gathered | None = None) -> Job:
                return self.judge_fold(share, gathered, beside=allotment.select(share))

        everything = Gathered.gather(state)
        if shares := jobs_of(state, everything):
            if allotment:
                allotment.begin(list(shares.values()))
            if wanted is None and run is None:
                job = _choose_worst(state, judge, shares, visit)
            else:
                name = _find_name(shares, wanted)
                job = _resolve_run(shares[name], judge, run)
                job.name = name
                visit(job)
        elif wanted in (None, "1") or is_one_of_two:
            job = _resolve_run(state, judge, run, everything)
            visit(job)
        else:
            raise NcclInspectError(f"no job '{wanted}': the input holds one job", "leave --job out")
        if allotment:
            job.artifacts += allotment.left
        job.passed_over = beside.passed_over
        return job

    def __call__(
        self, state: Fold, going_on: bool = False, quiet: float | None = None, beside: Inventory = NOTHING
    ) -> Job:
        """Return the job of a fold as if it held one; the fold stays as it is, and the job when the fold grows.

        Args:
            state: what was read.
            going_on: more will come, so that no line can be the one that ended the job.
            quiet: seconds for which no rank came any further, where somebody watched the log.
            beside: the evidence next to the log.
        """
        job = self.judge_fold(state, going_on=going_on, quiet=quiet, beside=beside.evidence)
        job.passed_over = beside.passed_over
        for record in (job, *job.communicators, *job.notices, *job.last_lines):
            values(record)
        return job

    def judge_fold(
        self,
        state: Fold,
        gathered: Gathered | None = None,
        going_on: bool = False,
        quiet: float | None = None,
        beside: Sequence[Artifact] = (),
    ) -> Job:
        """Return the same of a fold, or of the share of one job."""
        gathered = gathered or Gathered.gather(state)
        job = resolve.resolve(state, gathered)
        job.going_on, job.quiet = going_on, quiet
        job.is_one_of_several = state.own is not None
        if going_on:
            job.ended_by, job.broken_off = [], []
        job.config = self._options.config
        if beside:
            from nccl_inspect.artifacts import joining  # most logs come alone

            job.artifacts = joining.check_evidence(beside, job, gathered)
        facts = judge.gather_facts(job, self._platform, self._topologies)
        judge.judge(facts, self._rules, self._options.terms)
        if job.benchmarks:
            from nccl_inspect.bandwidth import measured, tables  # most logs hold no results

            job.bandwidth, job.training = measured.judge_benchmarks(facts), tables.speeds(job.benchmarks)
        if job.waiting and job.waiting.cut is None and job.waiting.age is None:
            job.waiting.age = ages.file_age(job)
        job.head = digest.make_head(job)
        return job

    def misfits(self, job: Job) -> Iterator[str]:
        """Yield what was said of the machine and cannot be so by this log, in words."""
        busiest = max(job.hosts, key=lambda host: host.gpus, default=None)
        named = self._platform
        stated = platform_of(job) if named else None
        if named and stated and stated.excludes(named):
            yield f"the platform is to be {named.name}, but the log says {stated.name}; leave --platform out"
        if busiest is None:
            return
        seen = f"but the log shows {busiest.gpus} on host {busiest.name}"
        if named and named.gpus and named.gpus < busiest.gpus:
            yield f"{named.name} has {count(named.gpus, 'GPU')}, {seen}; name the machine type of this job"
        for given in self._topologies:
            if 0 < given.gpus < busiest.gpus:
                has = f"{given.name} has {count(given.gpus, 'GPU')}"
                yield f"{has}, {seen}; take the topology on a machine of this job, where all its GPUs are visible"


# Several jobs in one input, and several runs of one job

MAX_DETAILED = 3  # jobs of which everything is kept: the worst
_MAX_EARLIER, _MAX_MEASURED = 5, 50
"""Earlier runs that are judged, too: the last ones; and where the log has results that are not of the newest run."""
_Judge: TypeAlias = Callable[..., Job]  # gives the job of a fold, and may be given the processes of this


def _find_name(jobs: Mapping[str, Fold], wanted: str | None) -> str:
    """Return the name of one of several jobs by its name or number; an NcclInspectError says that there is none."""
    names = list(jobs)
    if wanted is None:
        raise NcclInspectError(f"the input holds {len(names)} jobs", "say with --job which one --run is about")
    if wanted in jobs:
        return wanted
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    numbers = f"give a number from 1 to {len(names)}, or a name from the table of 'summarize'"
    raise NcclInspectError(f"no job '{wanted}' among {len(names)}", suggestion(wanted, names) or numbers)


def _choose_worst(fold: Fold, judge: _Judge, jobs: Mapping[str, Fold], visit: Callable[[Job], None]) -> Job:
    """Return the worst of several jobs, with all in brief."""
    standings: list[Standing] = []
    detailed: list[tuple[tuple[int, ...], Standing]] = []
    for number, (name, share) in enumerate(jobs.items(), 1):
        job = _resolve_run(share, judge)
        visit(job)
        job.name = name
        standing = _standing(number, share, job)
        standings.append(standing)
        insort(detailed, (_order(standing), standing), key=lambda row: row[0])
        for _, standing_beyond in detailed[MAX_DETAILED:]:
            standing_beyond.detail = None
        del detailed[MAX_DETAILED:]
    standings.sort(key=_order)
    worst = standings[0].detail
    assert worst is not None
    worst.jobs = standings
    numbers = jobs[standings[0].name].sources_by_number
    unread = (source for number, source in enumerate(fold.sources) if number not in numbers and source.problem)
    worst.sources.extend(source.info() for source in unread)
    return worst


def _resolve_run(share: Fold, judge: _Judge, run: int | None = None, gathered: Gathered | None = None) -> Job:
    """Return one job: its newest run with the verdicts on those before, or an earlier run that is wanted.

    An NcclInspectError says that there is no such run.
    """
    gathered = gathered or Gathered.gather(share)
    if run is not None:
        runs = [*runs_of(share, gathered).values()]
        if not 1 <= run <= len(runs):
            some = count(len(runs), "run")
            raise NcclInspectError(f"no run {run}: the job has {some}", f"--run 1 is the first, {len(runs)} the newest")
        if run < len(runs):
            return judge(runs[run - 1])
    job = judge(share, gathered)
    if job.earlier_runs:
        most = _MAX_MEASURED if any(entry.reason for entry in job.bandwidth) else _MAX_EARLIER
        earlier = [judge(one) for one in [*runs_of(share, gathered).values()][-1 - most : -1]]
        job.earlier_verdicts = [one.verdict for one in earlier[-_MAX_EARLIER:]]
        results = {entry.line: entry for one in earlier for entry in one.bandwidth if not entry.reason}
        for entry in results.values():
            entry.what += ", in an earlier run"
        own = [entry for entry in job.bandwidth if not (entry.reason and entry.line in results)]
        job.bandwidth = [*results.values(), *own]
    return job


def _standing(number: int, share: Fold, job: Job) -> Standing:
    finding = job.findings[0] if job.findings else None
    highest = max((SEVERITIES.index(candidate.severity) for candidate in job.findings), default=-1)
    logs = [log for log in share.processes.values() if log.process.host] or list(share.processes.values())
    first = min(logs, key=lambda log: log.first, default=None)
    last = max(logs, key=lambda log: log.last, default=None)
    begin = share.where(first.first) if first else (job.sources[0].name, 1, 1)
    end = share.where(last.last) if last else (job.sources[-1].name, job.sources[-1].lines, job.sources[-1].lines)
    return Standing(
        number=number,
        name=job.name,
        verdict=job.verdict,
        reason=digest.reason(job),
        ranks=job.world_size or len(job.ranks_seen) or None,
        hosts=[host.name for host in job.hosts],
        nccl_versions=job.nccl_versions,
        first=Evidence(begin[0], begin[1], (first and first.opening.time) or "", begin[2]),
        last=Evidence(end[0], end[1], (last and last.closing.time) or "", end[2]),
        finding=finding,
        severity=SEVERITIES[highest] if highest >= 0 else "",
        detail=job,
    )


def _order(standing: Standing) -> tuple[int, ...]:
    """Return the worst first, of equal ones that with more ranks, then the earlier one."""
    severity = SEVERITIES.index(standing.severity) if standing.severity else -1
    return VERDICTS.index(standing.verdict), -severity, -(standing.ranks or 0), standing.number


# The events of all lines


def events(inputs: Input | Sequence[Input]) -> Iterator[Event]:
    """Yield the events of all inputs in the order of their lines, one for each recognised line.

    A NoInputError comes last where an input could not be read to its end.
    """
    stream = EventStream(inputs)
    yield from stream
    stream.raise_problem()


class EventStream:
    """The events of all inputs in the order of their lines; afterwards, what there was to read."""

    def __init__(self, inputs: Input | Sequence[Input], progress: Progress | None = None) -> None:
        self.problems: list[NoInputError] = []  # why inputs could not be read, or not to their end
        self.counts: dict[str, Counts] = {}  # how sound each source was
        self._inputs = inputs
        self._progress = progress

    def __iter__(self) -> Iterator[Event]:
        return (event.with_fields(where=where) for where, event in self.with_places())

    def with_places(self) -> Iterator[PlacedEvent]:
        """Yield the events as recognised, each with its place: equal lines share one event."""
        scanner = Scanner(engine.load_grammar())
        for source in blocks.find(self._inputs, self._progress):
            counts = self.counts[source.name] = Counts()
            yield from _join_rows(source.name, _lines(source, scanner, counts, self.problems))

    def raise_problem(self) -> None:
        """Say so when something could not be read; a NoInputError names the first."""
        if self.problems:
            raise self.problems[0]

    def require_nccl(self) -> None:
        """Make sure that there was something to read; a NoInputError says that no line was NCCL's."""
        if not any(counts.nccl_lines or counts.related_lines for counts in self.counts.values()):
            lines = {name: counts.lines for name, counts in self.counts.items()}
            raise nothing_found(lines, [str(problem) for problem in self.problems])


def _lines(
    source: Source, scanner: Scanner, counts: Counts, problems: list[NoInputError]
) -> Iterator[tuple[int, Origin, Text]]:
    """Yield what was recognised in a source; the error that ended it, if there was one, joins the problems."""
    stands: list[int] = []
    from nccl_inspect.scanning.excerpts import Short  # summaries of whole logs never need it

    short = Short()
    for lines in blocks.records_of(source):
        if isinstance(lines, NoInputError):
            problems.append(lines)
            return
        short.add(lines)
        if lines.mended and lines.mended.stands is not None:
            stands.extend(lines.mended.stands)
        rows: list[tuple[int, Origin, Text]] = []

        def sink(number: int, origin: Origin, text: Text, rows: list[tuple[int, Origin, Text]] = rows) -> None:
            rows.append((stands[number - 1] if stands else number, origin, text))

        scanner.scan(lines.lines, counts, sink, lines.mended)
        yield from rows
    yield from short.read(source.name, counts, engine.load_grammar())


def _join_rows(source: str, rows: Iterable[tuple[int, Origin, Text]]) -> Iterator[PlacedEvent]:
    """Yield the events; lines that continue a message of several lines become part of its event."""
    where, before = Where(), None
    for number, origin, text in rows:
        if text.parsed is None:
            continue
        event = text.use = text.use or hide_secrets(text.parsed.event)  # the same text comes many times
        if before is not None and text.parsed.production.follows == before.production:
            before = replace(before, message=f"{before.message}\n{event.message}")
            continue
        if before is not None:
            yield where, before
        where, before = Where(source, number, level=text.level), event
        if origin.head:
            said = (origin.time, origin.host, origin.pid, origin.tid, origin.device, text.level)
            where = Where(source, number, *said, origin.location, origin.label, origin.rank)
    if before is not None:
        yield where, before
