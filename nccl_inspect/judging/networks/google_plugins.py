"""The plugins of Google Cloud that carry GPU memory over TCP: they need no kernel module for GPUDirect RDMA."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice, Selection

_DAEMONS = {"GPUDirectTCPX": "tcpx-daemon", "FasTrak": "tcpxo-daemon"}
"""The container that receives for the job beside it, by the prefix of the network's name."""
NETWORKS_IN_POD = (
    "Give the pod all interfaces of the node (annotation networking.gke.io/interfaces, eth1 to eth8 on a3-megagpu-8g), "
    "or the host's network."
)


def daemon(paths: Selection) -> str | None:
    """Return the daemon of the plugin that carries these paths; None if one of them uses another network."""
    daemons = {
        next((name for net, name in _DAEMONS.items() if (kind.net or "").startswith(net)), None) for kind in paths.kinds
    }
    return daemons.pop() if len(daemons) == 1 else None


def fixes(daemon: str) -> list[str]:
    """Return what to check if NCCL does not use GPUDirect RDMA over such a plugin."""
    return [
        "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # prints what NCCL decides for each GPU and NIC, and their distance",
        "NCCL_NET_GDR_LEVEL=PIX   # as in Google's guide; LOC and 0 disable GPUDirect",
        "Give each pod a whole node: all GPUs, and all the interfaces that Google's manifest names.",
        f"kubectl logs <pod> -c {daemon}   # does it find all GPUs and NICs? It must fit the plugin's release",
    ]


def works(facts: Facts) -> bool:
    """Return whether ranks are connected over a plugin of Google."""
    return any((kind.net or "").startswith(tuple(_DAEMONS)) for kind in facts.inter_host_net_paths().kinds)


def reason(aborted: Notice) -> str:
    """Return the reason for which TCPXO's plugin ends its process: a code of its own and a text, which may be empty."""
    return str(value(aborted, "status") or "")


def find_aborts(facts: Facts, *reasons: str) -> list[Notice]:
    """Reports that TCPXO's plugin ends its process for one of these reasons, given as parts of the text."""
    return [
        notice
        for notice in facts.notices("tcpxo/fastrak-init-failed")
        if any(text in reason(notice) for text in reasons)
    ]
