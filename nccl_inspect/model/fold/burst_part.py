"""A part of a burst whose edges are in the table of all."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.edge_key import edge_key
from nccl_inspect.model.fold.edge_table import EdgeTable
from nccl_inspect.model.fold.process_log import Burst, Edge
from nccl_inspect.util.columns import Column
from nccl_inspect.util.records import record


@record
class BurstPart(Burst):
    """Some edges of a burst; they are made when somebody asks for them."""

    table: EdgeTable | None = None

    @property
    def edges(self) -> dict[tuple[object, ...], Edge]:
        """The edges by what distinguishes them."""
        if not self.own:
            self.own = {edge_key(edge.event): edge for edge in map(self._table.edge, self.at.tolist())}
        return self.own

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return int(self._table.lines[self.at].sum())

    @property
    def size(self) -> int:
        """Return how many edges it has."""
        return len(self.at)

    @property
    def last(self) -> int:
        """The place of its last edge."""
        return int(self._table.place[self.at].max())

    @property
    def highest(self) -> int:
        """The highest rank that it names."""
        return int(max(self._table.src[self.at].max(), self._table.dst[self.at].max()))

    @property
    def reduces(self) -> bool:
        """Whether one of its edges is to a network that reduces."""
        return any(kind.transport == "COLLNET" for kind in self.kinds)

    @property
    def kinds(self) -> Iterable[ChannelConnect]:
        """An event of each kind of its edges."""
        return [self._table.kinds[kind] for kind in set(self._table.kind[self.at].tolist())]

    def parts(self) -> list[Burst]:
        """Each of its edges on its own."""
        return [self.some([number]) for number in range(len(self.at))]

    def some(self, numbers: list[int]) -> Burst:
        """Some of its edges, by their numbers in it."""
        return part_of(self, self._table, self.at[numbers])

    @property
    def _table(self) -> EdgeTable:
        assert self.table is not None
        return self.table


def part_of(burst: Burst, table: EdgeTable, at: Column) -> BurstPart:
    """Some edges of a burst, by their rows in the table of all."""
    return BurstPart(burst.key, int(table.place[at[0]]), burst.printed, at=at, table=table)
