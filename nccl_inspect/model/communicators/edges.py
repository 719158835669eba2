"""The table of all connections of a job, where they are many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from nccl_inspect.model.communicators.members import ProcessMembers

if TYPE_CHECKING:
    from nccl_inspect.model.fold.edge_table import EdgeTable

MANY = 5_000
"""Connections from which on a table takes less time than it takes to import what tables are made of."""
_SOME = 200
"""The same where that is imported: the log was read in columns."""


def table_of(processes: Sequence[ProcessMembers]) -> EdgeTable | None:
    """The connections of some processes as a table; None where they are few, or where numpy is not there."""
    bursts = [burst for process in processes for burst in process.bursts]
    least = min(_SOME, MANY) if any(burst.rows for burst in bursts) else MANY
    sizes = accumulate(burst.size for burst in bursts)
    if not any(size >= max(1, least) for size in sizes):
        return None
    try:
        from nccl_inspect.model.fold.edge_table import EdgeTable  # loads numpy
    except ImportError:
        return None
    return EdgeTable(bursts)
