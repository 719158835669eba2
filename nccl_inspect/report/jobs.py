"""Several jobs of one input in a report: how many failed, a table of all, then the worst few in detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from nccl_inspect.judging import culprits
from nccl_inspect.model.finding import VERDICTS, Standing
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.report.tables import align_table
from nccl_inspect.report.words import block, paint, verdict_color
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranks_word, some_names

HEAD = ("#", "job", "verdict", "ranks", "hosts", "NCCL", "finding", "culprit", "began", "lines")
MAX_ROWS = 20  # jobs that are listed for people: the worst
_MAX_CELL = 32
_MAX_RANKS = 4
_DROPPED = ("lines", "began", "NCCL", "culprit")  # columns that are left out where there is no room, in this order


def headline(job: Job) -> str:
    """Return the number of jobs by verdict: ``3 jobs: 1 failed, 2 ok``."""
    numbers = Counter(standing.verdict for standing in job.jobs)
    verdicts = ", ".join(f"{numbers[verdict]} {verdict}" for verdict in VERDICTS if numbers[verdict])
    return f"{count(len(job.jobs), 'job')}: {verdicts}"


def describe_worst(job: Job) -> str:
    """Return which job is the worst, and why."""
    first = job.jobs[0]
    return f"{first.name}: {first.verdict.upper()}: {first.reason}"


def rows(standings: Sequence[Standing]) -> list[list[str]]:
    """Return a row for each job, with a cell for each name in :data:`HEAD`."""
    table = []
    for standing in standings:
        culprit = ""
        if (finding := standing.finding) and finding.culprits:
            culprit = culprits.subject(finding.culprits)
        elif finding and 0 < len(finding.ranks) <= _MAX_RANKS:  # what is short
            culprit = ranks_word(finding.ranks)
        first, last, hosts = standing.first, standing.last, standing.hosts
        row = (
            *(str(standing.number), standing.name, standing.verdict, str(standing.ranks or "?")),
            some_names(hosts, 1) if len(hosts) < 2 else str(len(hosts)),
            ", ".join(version.partition("+")[0] for version in standing.nccl_versions) or "?",
            *(finding.rule if finding else "-", culprit or "-", first.text or "-"),
            f"{first.line}-{last.line if first.source == last.source else '…'}",
        )
        table.append(list(map(escape_controls, row)))
    return table


def describe_left_out(job: Job) -> str:
    """Return how many jobs a table does not list; empty if it lists all."""
    more = len(job.jobs) - MAX_ROWS
    return f"… and {count(more, 'job')} more; --format json lists all" if more > 0 else ""


def details(job: Job) -> list[Standing]:
    """Return the jobs to report in full: the worst few, and ok ones only if all are ok."""
    detailed = [standing for standing in job.jobs if standing.detail is not None]
    return [standing for standing in detailed if standing.verdict != "ok"] or detailed[:1]


def title(standing: Standing) -> str:
    """Return the heading of a job in detail."""
    number = f"job {standing.number}"
    return number if standing.name == number else f"{number}, {standing.name}"


def list_others(job: Job) -> str:
    """Return how to see the jobs that are not reported in detail; empty if all are."""
    more = len(job.jobs) - len(details(job))
    return f"{count(more, 'other job')}: --job N (or its name) reports one of them" if more else ""


def render_text(job: Job, style: Style, render: Callable[[Job, Style], str]) -> str:
    """Return the report for a terminal."""
    worst = block("worst", escape_controls(describe_worst(job)), style, indent=0, hang=7)
    parts = ["\n".join([paint(headline(job), "bold", style), *worst, "", *_table(job, style), ""])]
    for standing in details(job):
        assert standing.detail is not None
        rule = paint(f"== {escape_controls(title(standing))} ==", "bold", style)
        parts.append(f"{rule}\n{render(standing.detail, style)}")
    if text := list_others(job):
        parts.append(f"{text}\n")
    return "\n".join(parts)


def _table(job: Job, style: Style) -> Iterator[str]:
    shown = job.jobs[:MAX_ROWS]
    cells = [[cut(cell, _MAX_CELL) for cell in row] for row in rows(shown)]
    keep = [at for at, name in enumerate(HEAD) if name in ("#", "verdict") or any(row[at] not in "-?" for row in cells)]
    for name in ("", *_DROPPED):
        keep = [at for at in keep if HEAD[at] != name]
        lines = align_table([HEAD[at] for at in keep], [[row[at] for at in keep] for row in cells])
        if max(map(len, lines)) <= style.width:
            break
    yield from lines[:2]
    for line, standing in zip(lines[2:], shown, strict=True):
        color = verdict_color(standing.verdict)
        yield line.replace(f" {standing.verdict} ", f" {paint(standing.verdict, color, style)} ", 1)
    if text := describe_left_out(job):
        yield text
