"""Refuses what no NCCL prints: numbers that a damaged or hostile line may hold and that must not become ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.event.types import Event

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
