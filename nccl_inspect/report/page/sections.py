"""Tables of the HTML report, as its template wants them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from nccl_inspect import bandwidth
from nccl_inspect.answers import Answer
from nccl_inspect.answers.ranks import mark_unusual
from nccl_inspect.event import types as events
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.inventory import Progress, SourceInfo, Stamp
from nccl_inspect.model.job import Job
from nccl_inspect.model.measured import Measured
from nccl_inspect.report.columns import UNBOUNDED, cells, fitted
from nccl_inspect.report.digest import accepted_causes, folded, under
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import ranges

_FOLD_ABOVE = 128
"""Ranks above which the time line has one row for each host."""
_LATE = 0.02
"""Part of the time line by which the last is behind the most, if it is worth a mark."""
WIDTH = 1000
"""Of the time line, in its own units."""
PHASES = (
    ("first", "started", "start", "before init: plug-ins, devices, waiting for others"),
    ("started", "completed", "init", "init: bootstrap, topology, rings and trees"),
    ("completed", "connected", "connect", "until connections are set up (at first use since NCCL 2.22)"),
    ("connected", "ended", "run", "until the communicator is destroyed"),
)
"""From, to, the class of the bar, and what happens there."""
MARKS = ("first", "started", "completed", "connected", "ended")
HEADS = ("first line", "init began", "init complete", "connected", "destroyed")


class Plot(NamedTuple):
    """A measured bandwidth over sizes, in the units of its picture."""

    caption: str
    verdict: str
    line: str
    points: list[tuple[float, float, str, bool]]
    """Place, words, and whether it is a dip."""
    band: tuple[float, float] | None
    """Top and height of what is expected."""
    rates: list[tuple[float, str]]
    sizes: list[tuple[float, str]]
    source: str
    """The page that states what is expected."""


_MAX_PLOTS, _LABELS = 6, 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 10, 210


def plots(job: Job) -> list[Plot]:
    """Return the measured bandwidths that have several sizes, the furthest behind first."""
    entries = [entry for entry in job.bandwidth if len(entry.sizes) > 1]
    return [_plot(entry) for entry in sorted(entries, key=lambda entry: entry.verdict != "low")[:_MAX_PLOTS]]


def _plot(entry: Measured) -> Plot:
    first, last = (math.log2(entry.sizes[end].size) for end in (0, -1))
    most = max(entry.expected_high or 0, entry.measured_gbps) * 1.05

    def across(size: int) -> float:
        return round(_LEFT + (math.log2(size) - first) / (last - first) * (_RIGHT - _LEFT), 1)

    def up(gbps: float) -> float:
        return round(_BOTTOM - gbps / most * (_BOTTOM - _TOP), 1)

    points = [
        (
            across(row.size),
            up(row.gbps),
            f"{bandwidth.rate_text(row.gbps)} GB/s at {bandwidth.size_text(row.size)}",
            row in entry.dips,
        )
        for row in entry.sizes
    ]
    band = (entry.expected_low, entry.expected_high)
    step = 10 ** math.floor(math.log10(most / 2))
    step *= 5 if most / step > 2 * _LABELS else 2 if most / step > _LABELS else 1
    every = max(1, -(-len(entry.sizes) // _LABELS))
    return Plot(
        caption=bandwidth.describe_measurement(entry),
        verdict=entry.verdict,
        line=" ".join(f"{x},{y}" for x, y, *_ in points),
        points=points,
        band=(up(band[1]), round(up(band[0]) - up(band[1]), 1) or 1) if band[0] and band[1] else None,
        rates=[(up(number * step), f"{number * step:g}") for number in range(int(most / step) + 1)],
        sizes=[(across(row.size), bandwidth.size_text(row.size)) for row in entry.sizes[::-1][::every]],
        source=entry.expected_source if entry.expected_source and entry.expected_source.startswith("http") else "",
    )


class LeadFinding(NamedTuple):
    """A finding with those nested under it."""

    finding: Finding
    under: list[Finding]
    accepted: list[str]
    """What explains it and is accepted, in words."""


class Version(NamedTuple):
    """A version and the ranks that have it."""

    name: str
    value: str
    ranks: str
    note: str
    """``outlier``, ``differs`` or nothing."""
    where: str


class MarkedTable(NamedTuple):
    """A table with marked rows."""

    head: list[str]
    rows: list[tuple[bool, list[str]]]
    """Whether a row is marked, and its cells."""


class TimelineBar(NamedTuple):
    """One phase of a row of the time line."""

    kind: str
    x: float
    width: float


class TimelineRow(NamedTuple):
    """A rank, or the ranks of a host, in the time line."""

    who: str
    host: str
    bars: list[TimelineBar]
    offsets: list[str]
    """Seconds after the first line, for each of :data:`MARKS`; empty if unknown."""
    late: list[bool]
    """Whether this row is the last of all to get there, well after most."""
    where: str


class Timeline(NamedTuple):
    """The progress of ranks over time."""

    rows: list[TimelineRow]
    begin: str
    seconds: float
    ticks: list[tuple[float, str]]
    by_host: bool


def leads(job: Job) -> list[LeadFinding]:
    """The findings, roots first, each with causes and echoes folded under it."""
    nested = folded(job.findings)
    return [
        LeadFinding(
            finding,
            under(finding, job),
            accepted_causes(finding, job),
        )
        for finding in job.findings
        if finding.rule not in nested
    ]


def answer(asked: Answer, job: Job) -> MarkedTable:
    """Return the table of an answer, with bad rows marked."""
    rows = asked.rows(job)
    table = fitted(asked.columns, cells(asked.columns, rows), UNBOUNDED)
    return MarkedTable(table.head, [(asked.is_bad(row), line) for row, line in zip(rows, table.body, strict=True)])


def versions(job: Job, names: dict[str, str]) -> list[Version]:
    """Versions of NCCL, driver and plug-ins, with the ranks that state them."""
    counts: dict[str, Counter[str]] = {}
    entries = []
    for notice in job.notices:
        match notice.event:
            case events.NcclVersion(version=version):
                name, value = "NCCL", version
            case events.CudaDriver(cuda_version=number):
                name, value = "CUDA driver", f"{int(number) // 1000}.{int(number) % 1000 // 10}"
            case events.PluginStatus(kind=kind, status="loading", plugin=plugin, detail=detail) if plugin:
                name, value = f"{kind} plug-in", f"{plugin} {detail or ''}".strip()
            case _:
                continue
        counts.setdefault(name, Counter())[value] += len(notice.processes)
        first = notice.evidence[0]
        where = f"{names.get(first.source, first.source)}:{first.line}"
        entries.append(Version(name, value, ranges(notice.ranks) or "?", "", where))
    merged = {(entry.name, entry.value): entry for entry in reversed(entries)}
    notes = {name: mark_unusual(values) for name, values in counts.items()}
    return [entry._replace(note=notes[entry.name][entry.value]) for _, entry in sorted(merged.items())]


def soundness(source: SourceInfo) -> str:
    """The condition of a source, in a few words."""
    if source.problem:
        return "not read to its end"
    troubles = {
        "damaged": source.damaged_lines,
        "not recognized": source.unrecognised_lines,
        "repaired": source.repaired_lines,
    }
    turned = ["newest line first"] if source.newest_first else []
    return ", ".join([*turned, *(f"{number:,} {what}" for what, number in troubles.items() if number)]) or "sound"


def timeline(job: Job, names: dict[str, str]) -> Timeline | None:
    """The time line of init, from the first line of any rank; None where the log has no times."""
    timed = [row for row in job.timeline if "started" in row.stamps or "completed" in row.stamps]
    if not timed:
        return None
    begin = min((stamp for row in timed for stamp in row.stamps.values()), key=lambda stamp: stamp.seconds)
    # Init may be seconds of a run of days: the bars end soon after it.
    init = [row.stamps[name] for row in timed for name in MARKS[:-1] if name in row.stamps]
    seconds = (max(stamp.seconds for stamp in init) - begin.seconds) * 1.05 or 1e-6
    by_host = len(timed) > _FOLD_ABOVE
    parts = list(_by_host(timed) if by_host else _by_rank(timed))
    latest = {name: _latest([row[name].seconds for _, _, row in parts if name in row], seconds) for name in MARKS}
    rows = [
        TimelineRow(
            who,
            host,
            list(_bars(stamps, begin.seconds, seconds)),
            [f"{stamps[name].seconds - begin.seconds:.3f}" if name in stamps else "" for name in MARKS],
            [name in stamps and stamps[name].seconds >= latest[name] for name in MARKS],
            _where(stamps, names),
        )
        for who, host, stamps in parts
    ]
    return Timeline(rows, begin.time.strip("[]"), seconds, _ticks(seconds), by_host)


def _latest(moments: list[float], seconds: float) -> float:
    """Return when the last got there, if that is well after the others; else never."""
    if len(moments) < 2 or max(moments) - median(moments) < max(_LATE * seconds, 0.01):
        return math.inf
    return max(moments)


def _by_rank(timed: Sequence[Progress]) -> Iterator[tuple[str, str, dict[str, Stamp]]]:
    for row in timed:
        yield (f"{row.rank}" if row.rank is not None else f"pid {row.pid}"), row.host, row.stamps


def _by_host(timed: Sequence[Progress]) -> Iterator[tuple[str, str, dict[str, Stamp]]]:
    """For each host the first line of any of its ranks, and when the last of them got how far."""
    hosts = grouped((row.host, row) for row in timed)
    for host, rows in hosts.items():
        stamps = {}
        for name in MARKS:
            stamped = [row.stamps[name] for row in rows if name in row.stamps]
            if stamped:
                choose = min if name == "first" else max
                stamps[name] = choose(stamped, key=lambda stamp: stamp.seconds)
        yield ranges(row.rank for row in rows if row.rank is not None) or "?", host, stamps


def _bars(stamps: dict[str, Stamp], begin: float, seconds: float) -> Iterator[TimelineBar]:
    for start, end, kind, _ in PHASES:
        if start in stamps and end in stamps and stamps[end].seconds >= stamps[start].seconds:
            x = (stamps[start].seconds - begin) / seconds * WIDTH
            width = min((stamps[end].seconds - stamps[start].seconds) / seconds * WIDTH, WIDTH - x)
            yield TimelineBar(kind, round(x, 1), round(max(width, 1.0), 1))


def _where(stamps: dict[str, Stamp], names: dict[str, str]) -> str:
    stamp = stamps.get("started") or stamps.get("completed")
    return f"{names.get(stamp.source, stamp.source)}:{stamp.line}" if stamp else ""


def _ticks(seconds: float) -> list[tuple[float, str]]:
    """Four to ten round numbers of seconds, with their places."""
    step = 10 ** math.floor(math.log10(seconds / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if seconds / (step * factor) <= 10)
    return [(round(n * step / seconds * WIDTH, 1), f"{n * step:g} s") for n in range(int(seconds / step) + 1)]


def by_severity(findings: Iterable[Finding]) -> Counter[str]:
    """Return how many findings of each severity."""
    return Counter(finding.severity for finding in findings)
