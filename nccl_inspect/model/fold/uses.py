"""What is done with the text of a line, found out once for all lines that have it."""

from __future__ import annotations

from functools import cache

from nccl_inspect.event import types as events
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.production import Production
from nccl_inspect.model.fold.bounds import is_plausible
from nccl_inspect.model.fold.process_log import edge_key
from nccl_inspect.scanning.counts import Text
from nccl_inspect.util.levels import STATEMENTS
from nccl_inspect.util.named_tuples import NamedTuple

SEQUENCE = (
    events.CommInit,
    events.CommSplit,
    events.CommNoColor,
    events.CommShape,
    events.CommEnd,
    events.ChannelCounts,
    events.RingOrder,
    events.TreeLinks,
    events.Connected,
    events.NetworkInUse,
)
"""Events whose order matters: they say which communicator a thread is busy with."""

_CHECKED = frozenset((events.CommInit, events.ChannelConnect, events.RingOrder, events.TreeLinks))
NOTHING, REFUSED, UNKNOWN, CONNECTS, STEP, NOTE, BOOTSTRAP, CALL, LOOSE = range(9)
SAID = (NOTE, BOOTSTRAP)
COUNTABLE = (NOTHING, UNKNOWN, NOTE)
COUNTED, IN_ORDER, KEPT, ENDS_BURST, ENDS_ALL = 1, 2, 4, 8, 16
"""What becomes of lines, as bits: only the number, the first and the last one of a process matter; their order matters;
each matters otherwise; each ends the burst of its thread; each is counted, and ends those of all threads."""


class Use(NamedTuple):
    """What is done with a text, found out once."""

    how: int
    conn: int | None = None
    """Of a connection: see :class:`~nccl_inspect.model.fold.process_log.BurstKey`."""
    rank: int = 0
    edge: tuple[object, ...] = ()


_USES = [Use(how) for how in range(LOOSE + 1)]


def used(text: Text) -> Use:
    """What is done with a text; remembered with it."""
    use = text.use = _USES[_how(text)]
    if use.how == CONNECTS:
        assert text.parsed is not None and isinstance(text.parsed.event, ChannelConnect)
        event = text.parsed.event
        rank = event.dst if event.direction == "receive" and event.dst is not None else event.src
        use = text.use = Use(CONNECTS, event.conn, rank, edge_key(event))
    return use


def _how(text: Text) -> int:
    parsed = text.parsed
    if parsed is None:
        return UNKNOWN
    kind = parsed.kind
    if kind in _CHECKED and not is_plausible(parsed.event):
        return REFUSED
    if kind is ChannelConnect:
        return CONNECTS
    if kind in SEQUENCE:
        return STEP
    return _usually(parsed.production, kind.kept, kind.__name__, text.level in STATEMENTS)


@cache
def _usually(production: Production, is_kept: bool, kind: str, is_statement: bool) -> int:
    """What is done with messages of a production, whatever they say."""
    if kind == events.BootstrapInterface.__name__:
        return BOOTSTRAP
    if production.constants.get("tone") == "loose":
        return LOOSE
    if is_kept or is_statement:
        return NOTE
    return CALL if kind == events.Collective.__name__ else NOTHING


def fate_of(text: Text) -> int:
    """What becomes of the lines with a text."""
    how = (text.use or used(text)).how
    if how == UNKNOWN and text.level in STATEMENTS:
        return COUNTED
    return _FATES.get(how, KEPT)


_FATES = {
    NOTHING: 0,
    UNKNOWN: 0,
    NOTE: COUNTED,
    STEP: IN_ORDER | ENDS_BURST,
    CONNECTS: KEPT | ENDS_BURST,
    BOOTSTRAP: ENDS_ALL,
}
