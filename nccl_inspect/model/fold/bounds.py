"""Refuses what no NCCL prints: numbers that a damaged or hostile line may hold and that must not become ranks."""

from __future__ import annotations

from itertools import chain

from nccl_inspect.event import types as events
from nccl_inspect.event.types import Event

MAX_RANKS = 1 << 20
"""Ranks of the largest communicator believed: sixteen times the largest runs made public."""
MAX_CHANNELS = 4096
"""MAXCHANNELS is 32 until 2.18 and 64 after; plugins and later releases may have more."""


def is_plausible(event: Event) -> bool:
    """Whether the ranks and channels of an event can be real."""
    match event:
        case events.CommInit(rank=rank, nranks=nranks):
            return 0 <= rank < nranks <= MAX_RANKS
        case events.ChannelConnect(channel=channel, src=src, dst=dst, pxn_rank=proxy, nic_index=nic):
            ranks = (rank for rank in (src, dst, proxy) if rank is not None)
            return 0 <= channel < MAX_CHANNELS and all(0 <= rank < MAX_RANKS for rank in ranks) and (nic or 0) >= 0
        case events.RingOrder(ranks=ranks, channel=channel):
            return 0 <= channel < MAX_CHANNELS and (not ranks or (min(ranks) >= 0 and max(ranks) < MAX_RANKS))
        case events.TreeLinks(trees=trees):
            channels = [tree[0] for tree in trees]
            numbers = chain.from_iterable(trees)
            return not trees or (min(numbers) >= -1 and min(channels) >= 0 and max(channels) < MAX_CHANNELS)
        case _:
            return True
