"""Compares what benchmarks measured with what is to be expected: one entry for each operation and number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_inspect import platforms
from nccl_inspect.bandwidth import LOW, expectation, tables
from nccl_inspect.bandwidth.expectation import Expected
from nccl_inspect.bandwidth.tables import Row, Table
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.model.measured import Measured, Sized
from nccl_inspect.util.text import printable

_RAMP = 4 << 20
"""Bytes for each rank: a message of that size reaches half of the plateau at the latest."""
_MOST_RAMP = 1 << 30
_LEAST = 64 << 20
"""Bytes below which latency counts on any hardware."""
_LARGE = 0.75
"""The part of the plateau that a message must be able to reach to be judged."""
_DIP, _COUNTS = 0.4, 0.25
"""A dip is below that part of what smaller messages gave, if these gave at least that part of the peak."""
_SAME = 0.01
_OTHERS = ("perftest", "nvbandwidth", "p2pBandwidthLatencyTest")
"""Programs that measure something other than collectives."""


@once
def measured(facts: Facts) -> list[Measured]:
    """Return what the benchmarks in a log measured, with verdicts."""
    groups: dict[tuple[object, ...], list[tuple[Table, list[Row]]]] = {}
    for table in tables.tables(facts.job.benchmarks):
        why = _why_of_another(facts, table)
        for ranks, rows in _by_ranks(table):
            key = table.tool, table.operation, ranks, table.nodes, tuple(sorted(table.hosts)), why
            groups.setdefault(key, []).append((table, rows))
    entries = [_entry(facts, int(str(key[2])), group, str(key[-1])) for key, group in groups.items()]
    return [entry for entry in entries if entry.measured_gbps > 0 or entry.wrong]


def _by_ranks(table: Table) -> Iterable[tuple[int, list[Row]]]:
    """Return the rows by number of ranks: someone may have put the results of several runs into one table."""
    if table.operation != "all_reduce" or len({row.size for row in table.rows}) > 1:
        return [(table.ranks, table.rows)]
    by_ranks: dict[int, list[Row]] = {}
    for row in table.rows:
        ratio = row.busbw / row.algbw if row.algbw >= 1 else 0.0
        own = round(2 / (2 - ratio)) if 1 < ratio < 2 - _SAME else table.ranks
        is_same = abs(tables.factor("all_reduce", max(table.ranks, 2)) - ratio) < _SAME
        by_ranks.setdefault(table.ranks if is_same or not ratio else own, []).append(row)
    return by_ranks.items()


def _entry(facts: Facts, ranks: int, group: Sequence[tuple[Table, list[Row]]], why: str) -> Measured:
    table, rows = group[0][0], [row for _, some in group for row in some]
    best = max(rows, key=lambda row: (row.busbw, row.size))
    if not best.size:  # a matrix of pairs: the slowest one limits
        best = min(rows, key=lambda row: row.busbw)
    entry = Measured(
        operation=table.operation,
        type=best.type,
        ranks=ranks or None,
        size=best.size,
        measured_gbps=best.busbw,
        line=best.line,
        tool=table.tool,
        hosts=[printable(host) for host in table.hosts],
        sizes=_sizes(rows),
        wrong_lines=list({(line.source, line.order): line for one, _ in group for line in one.wrong}.values()),
    )
    if facts.job.is_one_of_several and not all(one.pids for one, _ in group):
        entry.reason = "several jobs are in the log, and the rows do not say of which they are"
        return entry
    _find_dips(entry)
    if table.tool in _OTHERS:
        entry.reason = "not a collective"
        return entry
    if why:
        entry.reason = why
        return entry
    if any(one.warmup == 0 for one, _ in group):
        entry.reason = "no warm-up"
        return entry
    nodes = 1 if ranks and ranks <= table.per_node and table.is_whole and len(table.hosts) == 1 else table.nodes
    per_node = min(table.per_node, ranks) if table.hosts else 0
    names = frozenset(platforms.without_maker({gpu for one, _ in group for gpu in one.gpus}))
    ran = expectation.setup(facts, table.operation, table.is_sure, ranks, nodes, per_node, names)
    entry.nodes = ran.nodes or None
    expected = expectation.expected(facts, ran)
    if isinstance(expected, str):
        entry.reason = expected
    else:
        _judge(entry, expected)
    if entry.falls:
        entry.verdict = "low"
    return entry


def _why_of_another(facts: Facts, table: Table) -> str:
    """Return why a table may not be about the processes and connections that the log shows; empty if it may."""
    if not table.fits:
        return f"the rows are not those of {table.operation}"
    ranked = [last.process.pid for last in facts.job.last_lines if last.ranks]
    if table.pids and not table.pids.issuperset(ranked):
        return "of other processes"
    rows = [row.line for row in table.rows]
    source = [line.order for line in facts.job.paths.first_lines() if line.source == rows[0].source]
    if source and (max(line.order for line in rows) < min(source) or (table.start and min(source) < table.start)):
        return "the connections in the log are of another run"
    return ""


def reach(size: int, ranks: int) -> float:
    """Return the part of the plateau that a message reaches at least: the more ranks, the more latency counts."""
    return size / (size + min(_RAMP * max(ranks, 2), _MOST_RAMP))


def _sizes(rows: Iterable[Row]) -> list[Sized]:
    """Return the better and the other of out of place and in place for each size."""
    by_size: dict[int, list[Row]] = {}
    for row in rows:
        if row.size and row.busbw > 0:
            by_size.setdefault(row.size, []).append(row)
    sized = []
    for size, some in sorted(by_size.items()):
        best = max(some, key=lambda row: row.busbw)
        sized.append(Sized(size, best.busbw, min(row.busbw for row in some), best.line))
    return sized


def _judge(entry: Measured, expected: Expected) -> None:
    entry.expected_low, entry.expected_high = expected.low, expected.high
    entry.expected_source, entry.what, entry.part = expected.source, expected.what, expected.part
    ranks = entry.ranks or 2
    large = [size for size in entry.sizes if size.size >= _LEAST and reach(size.size, ranks) >= _LARGE]
    if not large:
        entry.reason = "messages too small"
        return
    plateau = max(size.gbps / reach(size.size, ranks) for size in large)
    floor = expected.low if expected.floor is None else expected.floor
    entry.ratio = round(max(size.gbps for size in large) / expected.low, 3)
    if plateau < LOW * floor:
        entry.verdict, entry.is_below = "low", True
        if expected.part == "nvlink":  # the fewest links give that
            entry.expected_low, entry.ratio = floor, round(max(size.gbps for size in large) / floor, 3)
    elif expected.floor is None or (floor < expected.low and plateau >= LOW * expected.low):
        entry.verdict = "ok"
    else:
        what = "fewer or slower NICs" if expected.part == "network" else "fewer links"
        entry.reason = f"it fits {what}, too (--platform)"


def _find_dips(entry: Measured) -> None:
    """Note the sizes that are far behind smaller ones, in both placements."""
    peak, best = entry.measured_gbps, 0.0
    for size in entry.sizes:
        if best >= _COUNTS * peak and size.gbps < _DIP * best:
            entry.dips.append(size)
        best = max(best, size.gbps)
    entry.falls = bool(entry.dips) and entry.dips[-1] is entry.sizes[-1]
