"""Words about logs that are incomplete, or that end while ranks wait."""

from __future__ import annotations

from nccl_inspect.model.inventory import Waiting
from nccl_inspect.model.job import Job
from nccl_inspect.report.words import duration, shortened
from nccl_inspect.util.wording import count, ranges

_INCOMPLETE, _SPARSE = "log-incomplete", "debug-level-too-low"
_STARTING = ("rank-missing", "hang-in-init")
_MAX_NAMED = 2
_MAX_RUNS = 12
_LEAST = 60.0
"""Seconds without a line that are worth mentioning."""


def lacking(job: Job, are_ok: bool) -> str:
    """Return which part of the log is missing, or where it ends, if that leaves the job without a verdict.

    Args:
        job: without a verdict.
        are_ok: whether all paths in the log are as good as expected.
    """
    stops = (f for f in job.findings if f.rule in (_INCOMPLETE, _SPARSE) or (f.clue and f.category == "failures"))
    ends = (finding.summary for finding in stops)
    begins = (entry.reason for entry in job.not_judged if entry.rule == _INCOMPLETE)
    starts = (entry.reason for entry in job.not_judged if entry.rule in _STARTING and not len(job.paths))
    what = next(ends, "") or next(begins, "") or next(starts, "")
    paths = len(job.paths)
    return f"{what}; the {count(paths, 'path')} in it {'is' if paths == 1 else 'are'} ok" if what and are_ok else what


def missing(job: Job) -> str:
    """Ranks of the world without a line, or the processes without a rank that they probably are."""
    absent = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    mute = [last for last in job.last_lines if not last.ranks]
    likely = {last.likely_rank: last.process for last in mute if last.likely_rank is not None}
    if likely.keys() >= set(absent):
        guesses = [f"rank {rank} is probably pid {likely[rank].pid} on {likely[rank].host}" for rank in absent]
        return shortened(guesses, _MAX_NAMED)
    runs = shortened(ranges(absent).split(","), _MAX_RUNS).replace(", ", ",")
    ranks = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {runs} have"
    where = "this log" if len(job.sources) == 1 else f"these {len(job.sources)} files"
    others = f"{len(mute)} processes that name no rank" if len(mute) > 1 else "one process that names no rank"
    return f"{ranks} no line in {where}" + (f" (unless in those of {others})" if mute else "")


def quiet(waiting: Waiting) -> str:
    """For how long nothing was printed, if known and if the job may still be running."""
    if waiting.age is None or waiting.cut is False or waiting.age < _LEAST:
        return ""
    return f"no new line for {duration(waiting.age)}"


def interruption(job: Job) -> str:
    """Return how far the log was read, if that was interrupted; else empty."""
    lines = sum(source.lines for source in job.sources)
    return f"interrupted after {lines:,} {'line' if lines == 1 else 'lines'}" if job.partial else ""
