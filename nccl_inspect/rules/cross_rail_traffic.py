"""Network connections that leave their rail, if the log shows that the fabric has rails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.networks.nic_use import crossing
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.connection import End, Link

_Rails = dict[tuple[str, int], str]


def find(facts: Facts) -> Iterator[Hit]:
    """Find connections whose ends are both in the log, if it shows that the fabric has rails.

    On a flat fabric such connections cost nothing, and an all-to-all group without PXN connects every NIC with every
    other: without evidence of rails there is nothing to act on.
    """
    listed = facts.with_event(NetDevices, lambda event: bool(_rails_of(event)))
    rails = {(host, nic): rail for one in listed for host in one.hosts for nic, rail in _rails_of(one.event)}
    warned = [] if listed else facts.notices("nccl/ib-rail-mismatch")[:1]
    settings = [one for one in facts.user_settings("NCCL_CROSS_NIC") if one.value in ("0", "1")]
    signs = first_evidence(listed[:1] or warned) or evidence_of_settings(settings, 1)
    joined = ("kind", "src_host", "dst_host")
    paths = crossing(facts).only(
        joined, lambda kind, *hosts: any(_leaves_rail(hosts, link, rails) for link in kind.links)
    )
    if not signs or not paths:
        return
    links = [
        link for kind, *hosts in paths.distinct(*joined) for link in kind.links if _leaves_rail(hosts, link, rails)
    ]
    uses = {False: "rings or trees", True: "send/recv"}
    named = {
        "crossing": len(paths),
        "matched": facts.inter_host_rdma_paths().where(
            lambda kind: any(one.send and one.receive for one in kind.links)
        ),
        "uses": ", and ".join(uses[is_send_recv] for is_send_recv in sorted({link.send_recv for link in links})),
        "one": _nic_name(links[0].send),
        "other": _nic_name(links[0].receive),
        "listed": listed,
        "warned": warned,
        "settings": settings if not listed and not warned else [],
        "allowed": [setting for setting in settings if setting.value == "1"],
    }
    yield Hit([], named, evidence=[*signs, *first_lines(paths)[:4]], paths=paths)


def _rails_of(event: object) -> list[tuple[int, str]]:
    """Return the rails in a list of NICs: 2.30 writes ``mlx5_0:port:rail:plane``."""
    if not isinstance(event, NetDevices) or event.net != "IB":
        return []
    numbers = ((device[0], device[2].split(":")) for device in event.devices if len(device) > 2)
    return [(index, number[1]) for index, number in numbers if len(number) > 1 and number[1]]


def _leaves_rail(hosts: Sequence[str | None], link: Link, rails: _Rails) -> bool:
    """Whether a link goes from one rail to another; two NICs of different numbers may be on the same rail."""
    if not link.crosses_rails or link.send is None or link.receive is None:
        return False
    ends = zip(hosts, (link.send.nic_index, link.receive.nic_index), strict=True)
    pair = {rails.get((host or "", -1 if index is None else index)) for host, index in ends}
    return None in pair or len(pair) > 1


def _nic_name(end: End | None) -> str:
    nic, index = (end.nic, end.nic_index) if end else (None, None)
    return f"NIC {index}" + (f" ({nic})" if nic else "")
