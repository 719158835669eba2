"""What distinguishes the edges of a burst."""

from __future__ import annotations

from operator import attrgetter

edge_key = attrgetter(
    *("src", "dst", "direction", "detail", "nic_index", "gdr", "pxn_rank", "shared", "src_dev", "dst_dev")
)
"""What makes two connection lines of a burst the same edge: everything but the channel."""
