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


def _is_init_plausible(event: events.CommInit) -> bool:
    return 0 <= event.rank < event.nranks <= MAX_RANKS


def _is_connection_plausible(event: events.ChannelConnect) -> bool:
    ranks = event.src, event.dst or 0, event.pxn_rank or 0
    is_sound = 0 <= event.channel < MAX_CHANNELS and min(ranks) >= 0 and max(ranks) < MAX_RANKS
    return is_sound and (event.nic_index or 0) >= 0


def _is_ring_plausible(event: events.RingOrder) -> bool:
    ranks = event.ranks
    return 0 <= event.channel < MAX_CHANNELS and (not ranks or (min(ranks) >= 0 and max(ranks) < MAX_RANKS))


def _are_trees_plausible(event: events.TreeLinks) -> bool:
    trees = event.trees
    channels = [tree[0] for tree in trees]
    return not trees or (min(chain.from_iterable(trees)) >= -1 and min(channels) >= 0 and max(channels) < MAX_CHANNELS)


ARE_PLAUSIBLE: Mapping[type[Event], Callable[[Any], bool]] = {
    events.CommInit: _is_init_plausible,
    events.ChannelConnect: _is_connection_plausible,
    events.RingOrder: _is_ring_plausible,
    events.TreeLinks: _are_trees_plausible,
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

NOTHING, REFUSED, UNKNOWN, CONNECTS, STEP, NOTE, BOOTSTRAP, CALL, LOOSE = range(9)
SAID = (NOTE, BOOTSTRAP)
COUNTABLE = (NOTHING, UNKNOWN, NOTE)


class Use(NamedTuple):
    """Holds what is done with a text, found out once."""

    how: int
    edge: tuple[object, ...] = ()


_USES = [Use(how) for how in range(LOOSE + 1)]


def find_use(text: Text) -> Use:
    """Return what is done with a text; remembered with it."""
    use = text.use = _use(text)
    return use


def _use(text: Text) -> Use:
    parsed = text.parsed
    if parsed is None:
        return _USES[UNKNOWN]
    kind = parsed.kind
    if kind in ARE_PLAUSIBLE and not ARE_PLAUSIBLE[kind](parsed.event):
        return _USES[REFUSED]
    if kind is not ChannelConnect:
        return _usually(parsed.production, kind.__name__, text.level)
    event = parsed.event
    assert isinstance(event, ChannelConnect)
    return Use(CONNECTS, edge_key(event))


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
