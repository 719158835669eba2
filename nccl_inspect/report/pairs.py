"""The table of paths with one row for each pair of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.answers import Column
from nccl_inspect.model.job import Path
from nccl_inspect.report.columns import Table, cells, fitted


def _nics(path: Path) -> str:
    """The NICs of sender and receiver; a question mark if the log lacks the line."""
    sender, receiver = path.nic_at("send"), path.nic_at("receive")
    if sender or receiver:
        return f"{sender or '?'} -> {receiver or '?'}"
    return path.nic or ("" if path.nic_index is None else str(path.nic_index))


PAIR = (
    Column("src", "src"),
    Column("dst", "dst"),
    Column("src_host", "src host", goes=1, folds=True, is_host=True, text=lambda path: path.src_host or "?"),
    Column("dst_host", "dst host", goes=2, folds=True, is_host=True, text=lambda path: path.dst_host or "?"),
    Column("scope", "scope", goes=6, folds=True),
    Column("detail", "path"),
    Column("gdr", "GDR", goes=5),
    Column("nic", "NIC", goes=4, text=_nics),
    Column("channels", "channels", goes=3),
    Column("expected", "expected", goes=7),
    Column("verdict", "verdict"),
)
"""Of the table of pairs."""
_COMMUNICATORS = Column("communicators", "communicator")


def pairs(paths: Sequence[Path], width: int, is_global: bool = True, more: Sequence[Column] = ()) -> Table:
    """One row for each directed pair, so that the table fits a width if it can.

    Communicators are named where ranks are not global, so that the same pair appears for each.

    Args:
        paths: of the rows.
        width: that lines may have.
        is_global: whether ranks are those of the job.
        more: columns after the usual ones.
    """
    columns = [*PAIR, *([] if is_global else [_COMMUNICATORS]), *more]
    table = fitted(columns, cells(columns, paths), width)
    return table if is_global else table._replace(notes=[*table.notes, OWN_RANKS])


OWN_RANKS = "ranks are relative to each communicator: the log does not show the communicator of all ranks"
"""The note under tables of paths whose ranks are not global."""
