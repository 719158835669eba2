"""What distinguishes the edges of a burst."""

from __future__ import annotations

from nccl_inspect.event.types import ChannelConnect


def edge_key(event: ChannelConnect) -> tuple[object, ...]:
    """What makes two connection lines of a burst the same edge: everything but the channel."""
    return (
        event.src,
        event.dst,
        event.direction,
        event.detail,
        event.nic_index,
        event.gdr,
        event.pxn_rank,
        event.shared,
        event.src_dev,
        event.dst_dev,
    )
