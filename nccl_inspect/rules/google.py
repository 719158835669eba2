"""The plugins of Google Cloud that carry GPU memory over TCP: they need no kernel module for GPUDirect RDMA."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.model.job import Path

_DAEMONS = {"GPUDirectTCPX": "tcpx-daemon", "FasTrak": "tcpxo-daemon"}
"""The container that receives for the job beside it, by the first letters of the network's name."""


def daemon(paths: Iterable[Path]) -> str | None:
    """The daemon of the plugin that carries these paths; None where one of them is of another network."""
    found = {next((name for net, name in _DAEMONS.items() if (path.net or "").startswith(net)), None) for path in paths}
    return found.pop() if len(found) == 1 else None


def fixes(daemon: str) -> list[str]:
    """What to look at where NCCL does not use GPUDirect RDMA over such a plugin."""
    return [
        "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # prints what NCCL decides for each GPU and NIC, and their distance",
        "NCCL_NET_GDR_LEVEL=PIX   # as in Google's guide; LOC and 0 switch GPUDirect off",
        "A whole node for each pod: all GPUs, and all the interfaces that Google's manifest names.",
        f"kubectl logs <pod> -c {daemon}   # does it find all GPUs and NICs? It must fit the plugin's release",
    ]
