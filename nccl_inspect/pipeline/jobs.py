"""Judges each job of an input separately and selects the worst."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.model.job_summary import VERDICTS, Standing
from nccl_inspect.model.jobs.division import jobs_of, runs_of
from nccl_inspect.model.processes.gathering import Gathered
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share

MAX_DETAILED = 3
"""Jobs of which everything is kept: the worst."""
_MAX_EARLIER, _MAX_MEASURED = 5, 50
"""Earlier runs that are judged, too: the last ones; and where the log has results that are not of the newest run."""
_Judge: TypeAlias = "Callable[[Fold | Share, Gathered], Job]"


@frozen
class Choice(Frozen):
    """Holds what of an input is judged."""

    job: str | None = None
    """The number or name of one of several jobs; without it the worst."""
    run: int | None = None
    """The number of one of several runs, from 1 for the first; without it the newest."""
    is_one_of_two: bool = False
    """Another input is read as well; the job that is named may be in that one only."""


def judged(
    fold: Fold,
    judge: _Judge,
    choice: Choice,
    visit: Callable[[Job], None] | None = None,
    begin: Callable[[Sequence[Share]], None] | None = None,
) -> Job:
    """The job of a fold; of several the worst, with the others in brief, or the one that is wanted.

    Args:
        fold: of all inputs.
        judge: gives the job of a share.
        choice: which one is wanted.
        visit: is shown each job that is judged.
        begin: is shown the shares of all jobs before the first one is judged, where there are several.

    Raises:
        NcclInspectError: there is no such job or run.
    """
    everything = Gathered.of(fold)
    shares = jobs_of(fold, everything)
    if not shares:
        if choice.job not in (None, "1") and not choice.is_one_of_two:
            raise NcclInspectError(f"no job '{choice.job}': the input holds one job", "leave --job out")
        return _shown(_of_run(fold, everything, judge, choice.run), visit)
    if begin:
        begin(shares)
    from nccl_inspect.model.jobs.titles import titles  # most inputs hold one job

    names = titles(shares)
    if choice.job is not None or choice.run is not None:
        at = _chosen(names, choice.job)
        job = _of_run(shares[at], shares[at].gathered(), judge, choice.run)
        job.name = names[at]
        return _shown(job, visit)
    return _worst(fold, judge, list(zip(shares, names, strict=True)), visit)


def _worst(fold: Fold, judge: _Judge, jobs: Sequence[tuple[Share, str]], visit: Callable[[Job], None] | None) -> Job:
    """The worst of several jobs, with all in brief."""
    standings: list[Standing] = []
    detailed: list[tuple[tuple[int, ...], Standing]] = []
    for number, (share, name) in enumerate(jobs, 1):
        job = _shown(_of_run(share, share.gathered(), judge, None), visit)
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
    numbers = jobs[standings[0].number - 1][0].numbered
    unread = (source for number, source in enumerate(fold.sources) if number not in numbers and source.problem)
    worst.sources.extend(source.info() for source in unread)
    return worst


def _shown(job: Job, visit: Callable[[Job], None] | None) -> Job:
    if visit:
        visit(job)
    return job


def _of_run(share: Fold | Share, gathered: Gathered, judge: _Judge, run: int | None) -> Job:
    """One job: its newest run with the verdicts on those before, or the run that is wanted."""
    if run is None:
        job = judge(share, gathered)
        if job.earlier_runs:
            most = _MAX_MEASURED if any(entry.reason for entry in job.bandwidth) else _MAX_EARLIER
            earlier = [judge(one, one.gathered()) for one in runs_of(share, gathered)[:-1][-most:]]
            job.earlier_verdicts = [one.verdict for one in earlier[-_MAX_EARLIER:]]
            results = {entry.line: entry for one in earlier for entry in one.bandwidth if not entry.reason}
            for entry in results.values():
                entry.what += ", in an earlier run"
            own = [entry for entry in job.bandwidth if not (entry.reason and entry.line in results)]
            job.bandwidth = [*results.values(), *own]
        return job
    runs = runs_of(share, gathered)
    if not 1 <= run <= len(runs):
        some = count(len(runs), "run")
        raise NcclInspectError(f"no run {run}: the job has {some}", f"--run 1 is the first, {len(runs)} the newest")
    return judge(runs[run - 1], runs[run - 1].gathered())


def _chosen(names: Sequence[str], wanted: str | None) -> int:
    """The place of a job that is named, by its name or else its number.

    Raises:
        NcclInspectError: none is named so, or nothing says which one.
    """
    if wanted is None:
        raise NcclInspectError(f"the input holds {len(names)} jobs", "say with --job which one --run is about")
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    hint = suggestion(wanted, names) or f"give a number from 1 to {len(names)}, or a name from the table of 'summarize'"
    raise NcclInspectError(f"no job '{wanted}' among {len(names)}", hint)


def _standing(number: int, share: Share, job: Job) -> Standing:
    from nccl_inspect.report import digest  # an input mostly holds one job

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
        last=Evidence(end[0], end[1], (last and last.final.time) or "", end[2]),
        finding=finding,
        severity=SEVERITIES[highest] if highest >= 0 else "",
        detail=job,
    )


def _order(standing: Standing) -> tuple[int, ...]:
    """The worst first, of equal ones that with more ranks, then the earlier one."""
    severity = SEVERITIES.index(standing.severity) if standing.severity else -1
    return VERDICTS.index(standing.verdict), -severity, -(standing.ranks or 0), standing.number
