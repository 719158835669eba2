"""What the names of interfaces tell of the cards behind them."""

from __future__ import annotations

import re

from nccl_inspect import event_types as events
from nccl_inspect.model.job import Notice

_OVER_INFINIBAND = re.compile(r"ib(?:\d|[pP]\d|s\d|o\d|_|bond)|bond-?ib", re.IGNORECASE)
"""``ib0``, ``ibp12s0``, ``ibs1f0``, ``ibP257p0s0``: what the kernel and people call IPoIB."""
_FOR_RDMA = re.compile(r"rdma|roce|mlx|.*rdma\d", re.IGNORECASE)
"""Names that people give interfaces of RoCE cards: ``rdma0``, ``gpu0rdma0``."""


def interfaces(notice: Notice) -> list[str]:
    """The interfaces that a process takes for set-up, or lists for TCP."""
    match notice.event:
        case events.BootstrapInterface(interface=name):
            return [name]
        case events.NetDevices(net="Socket", devices=devices):
            return [str(device[1]) for device in devices]
    return []


def is_over_infiniband(name: str) -> bool:
    """Whether an interface is IPoIB by its name: then the host has an InfiniBand card."""
    return _OVER_INFINIBAND.match(name) is not None


def is_for_rdma(name: str) -> bool:
    """Whether somebody named an interface after RoCE or its card."""
    return _FOR_RDMA.match(name) is not None
