"""The measured bandwidth of each operation, with what is expected, or of each size of its messages."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.answers import Column, place
from nccl_inspect.bandwidth import words
from nccl_inspect.model.job import Job
from nccl_inspect.model.measured import Measured
from nccl_inspect.util.records import Frozen, frozen


@frozen
class BandwidthRow(Frozen):
    """An operation at one size; bandwidths are bus bandwidths in GB/s."""

    operation: str
    type: str
    ranks: int | None
    nodes: int | None
    size: int
    measured_gbps: float
    lower_gbps: float
    """The other of out-of-place and in-place."""
    expected_low: float | None
    expected_high: float | None
    ratio: float | None
    """Of the least that is expected of large messages."""
    verdict: str
    """``ok``, ``low`` or ``unknown``; of a size ``dip``, where smaller messages get far more, else nothing."""
    what: str
    """The hardware that is expected to give that, or why it is not judged."""
    tool: str
    line: str
    hosts: list[str]


def _size(row: BandwidthRow) -> str:
    return words.size(row.size) if row.size else "pairs"


def _measured(row: BandwidthRow) -> str:
    return words.rate(row.measured_gbps)


def _expected(row: BandwidthRow) -> str:
    if row.expected_low is None or row.expected_high is None:
        return ""
    return f"{words.rate(row.expected_low)}-{words.rate(row.expected_high)}"


def _ratio(row: BandwidthRow) -> str:
    return "" if row.ratio is None else words.percent(row.ratio)


RECORD = BandwidthRow
COLUMNS = (
    Column("operation", "operation", folds=True),
    Column("ranks", "ranks", folds=True),
    Column("nodes", "nodes", goes=4, folds=True),
    Column("type", "type", goes=2, folds=True),
    Column("size", "size", text=_size),
    Column("measured_gbps", "GB/s", text=_measured),
    Column("expected_low", "expected", text=_expected),
    Column("ratio", "of least", goes=5, text=_ratio),
    Column("verdict", "verdict"),
    Column("what", "what is expected, or why not judged", goes=6, folds=True),
    Column("tool", "tool", goes=1, folds=True),
    Column("line", "line", goes=3),
)


def is_bad(row: BandwidthRow) -> bool:
    """Whether it is far less than expected."""
    return row.verdict in ("low", "dip")


def rows(job: Job, *, of_sizes: bool = False) -> list[BandwidthRow]:
    """Return one row for each operation, the furthest behind first, or one for each size."""
    entries = sorted(job.bandwidth, key=lambda entry: (entry.verdict != "low", entry.ratio or 0))
    return [row for entry in entries for row in (_of_sizes(entry) if of_sizes else [_row(entry)])]


def _row(entry: Measured) -> BandwidthRow:
    lower = next((row.lower for row in entry.sizes if row.size == entry.size), entry.measured_gbps)
    return _at(entry, entry.size, entry.measured_gbps, lower, entry.verdict)


def _of_sizes(entry: Measured) -> Iterator[BandwidthRow]:
    for row in entry.sizes:
        yield _at(entry, row.size, row.gbps, row.lower, "dip" if row in entry.dips else "")


def _at(entry: Measured, size: int, gbps: float, lower: float, verdict: str) -> BandwidthRow:
    line = next((row.line for row in entry.sizes if row.size == size), entry.line)
    return BandwidthRow(
        operation=entry.operation,
        type=entry.type,
        ranks=entry.ranks,
        nodes=entry.nodes,
        size=size,
        measured_gbps=gbps,
        lower_gbps=lower,
        expected_low=entry.expected_low,
        expected_high=entry.expected_high,
        ratio=round(gbps / entry.expected_low, 3) if entry.expected_low else None,
        verdict=verdict,
        what=entry.reason or entry.what,
        tool=entry.tool,
        line=place(line.source, line.line) if line else "",
        hosts=entry.hosts,
    )
