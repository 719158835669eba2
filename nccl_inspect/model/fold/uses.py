"""What is done with the text of a line, found out once for all lines that have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.types import ChannelConnect, Event
from nccl_inspect.grammar.production import Production
from nccl_inspect.model.fold.process_log import edge_key
from nccl_inspect.scanning.counts import Text
from nccl_inspect.util.levels import STATEMENTS

MAX_RANKS = 1 << 20
"""Ranks of the largest communicator believed: sixteen times the largest runs made public."""
MAX_CHANNELS = 4096
"""MAXCHANNELS is 32 until 2.18 and 64 after; plugins and later releases may have more."""


def _of_init(event: events.CommInit) -> bool:
    return 0 <= event.rank < event.nranks <= MAX_RANKS


def _of_connection(event: events.ChannelConnect) -> bool:
    ranks = (rank for rank in (event.src, event.dst, event.pxn_rank) if rank is not None)
    is_sound = 0 <= event.channel < MAX_CHANNELS and all(0 <= rank < MAX_RANKS for rank in ranks)
    return is_sound and (event.nic_index or 0) >= 0


def _of_ring(event: events.RingOrder) -> bool:
    ranks = event.ranks
    return 0 <= event.channel < MAX_CHANNELS and (not ranks or (min(ranks) >= 0 and max(ranks) < MAX_RANKS))


def _of_trees(event: events.TreeLinks) -> bool:
    trees = event.trees
    channels = [tree[0] for tree in trees]
    return not trees or (min(chain.from_iterable(trees)) >= -1 and min(channels) >= 0 and max(channels) < MAX_CHANNELS)


ARE_PLAUSIBLE: Mapping[type[Event], Callable[[Any], bool]] = {
    events.CommInit: _of_init,
    events.ChannelConnect: _of_connection,
    events.RingOrder: _of_ring,
    events.TreeLinks: _of_trees,
}
"""Whether the ranks and channels of an event can be real, by its kind; events of other kinds are not checked."""


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

NOTHING, REFUSED, UNKNOWN, CONNECTS, STEP, NOTE, BOOTSTRAP, CALL, LOOSE, RUN = range(10)
SAID = (NOTE, BOOTSTRAP)
COUNTABLE = (NOTHING, UNKNOWN, NOTE)
MATTERS, ENDS_BURST, ENDS_ALL = 1, 2, 4
"""What becomes of lines, as bits: each matters; each ends the burst of its thread, or those of all threads."""


_FATES = {
    NOTE: MATTERS,
    STEP: MATTERS | ENDS_BURST,
    CONNECTS: MATTERS | ENDS_BURST,
    BOOTSTRAP: MATTERS | ENDS_ALL,
    REFUSED: MATTERS,
    CALL: MATTERS,
    LOOSE: MATTERS,
}


class Use(NamedTuple):
    """Holds what is done with a text, found out once."""

    how: int
    fate: int
    """What becomes of the lines with it."""
    conn: int | None = None
    """Of a connection: see :class:`~nccl_inspect.model.fold.process_log.BurstKey`."""
    rank: int = 0
    edge: tuple[object, ...] = ()


_USES = [Use(how, _FATES.get(how, 0)) for how in range(LOOSE + 1)]
_STATED = Use(UNKNOWN, MATTERS)
"""Of a statement that no production knows."""


def used(text: Text) -> Use:
    """Return what is done with a text; remembered with it."""
    use = text.use = _use(text)
    return use


def _use(text: Text) -> Use:
    parsed = text.parsed
    if parsed is None:
        return _STATED if text.level in STATEMENTS else _USES[UNKNOWN]
    kind = parsed.kind
    if kind in ARE_PLAUSIBLE and not ARE_PLAUSIBLE[kind](parsed.event):
        return _USES[REFUSED]
    if kind is not ChannelConnect:
        return _usually(parsed.production, kind.__name__, text.level)
    event = parsed.event
    assert isinstance(event, ChannelConnect)
    rank = event.dst if event.direction == "receive" and event.dst is not None else event.src
    return Use(CONNECTS, _FATES[CONNECTS], event.conn, rank, edge_key(event))


@cache
def _usually(production: Production, event: str, level: str) -> Use:
    """Return what is done with messages of a production, whatever they say."""
    return _USES[_how(production, events.KINDS[event], level)]


def _how(production: Production, kind: type[Event], level: str) -> int:
    if kind in SEQUENCE:
        return STEP
    if kind is events.BootstrapInterface:
        return BOOTSTRAP
    if production.constants.get("tone") == "loose":
        return LOOSE
    if kind.kept or level in STATEMENTS:
        return NOTE
    return CALL if kind is events.Collective else NOTHING


def fate_of(text: Text) -> int:
    """Return what becomes of the lines with a text."""
    use: Use = text.use or used(text)
    return use.fate
