"""The network that remains for traffic between hosts, if no connection between hosts shows it."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event import types as events
from nccl_inspect.event.base import is_named
from nccl_inspect.judging.facts import Facts, first_evidence, hosts_in, once, ranks_in
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import CommunicatorInfo, Notice
from nccl_inspect.util.records import Frozen, frozen

_SOCKET = "Socket"
_TCP_PROVIDERS = ("tcp", "sockets")
"""Providers of libfabric that carry it over TCP."""
_CAME_UP = ("initialised", "assigned")


@frozen
class Fallback(Frozen):
    """A job whose hosts are left with TCP, as far as the log shows."""

    stated: list[Evidence]
    """Lines in which NCCL selects TCP; empty if it only reports what it did not find."""
    missing: list[Evidence]
    """Lines that report no card, or no library to look for one."""
    ranks: set[int]
    hosts: set[str]
    is_spread: bool
    """Whether the job is known to span hosts."""
    is_near: bool
    """Whether the log shows connections, all of them within one host."""

    @property
    def severity(self) -> str:
        """Return an info if the job may be on one host, which needs no network."""
        return "info" if self.may_be_idle else "warning"

    def confidence(self, sure: bool) -> str:
        """``likely`` with a sure sign of a better network, if there is traffic between hosts."""
        return "likely" if sure and not self.may_be_idle else "possible"

    @property
    def may_be_idle(self) -> bool:
        """Return whether no traffic in the log leaves the host, and no line shows another host."""
        return self.is_near and not self.is_spread


@once
def fallback(facts: Facts) -> Fallback | None:
    """TCP as the only network that came up; None if another did, one host is all, or connections show the network."""
    if facts.paths(transport="NET") or is_on_one_host(facts) or _another_network(facts):
        return None
    over_tcp = _takes_tcp(facts)
    missing = facts.with_role("no-ib")
    lines = [
        line for comm in facts.job.communicators if set(comm.networks) == {_SOCKET} for line in comm.network_lines[:1]
    ]
    stated = [*first_evidence(over_tcp), *lines]
    if not (stated or missing or failed_plugins(facts) or facts.with_role("no-provider")):
        return None
    notices = [*over_tcp, *missing]
    return Fallback(
        stated,
        first_evidence(missing),
        ranks_in(notices),
        hosts_in(notices),
        facts.spans_hosts(),
        is_near=bool(facts.paths("intra")),
    )


def failed_plugins(facts: Facts) -> list[Notice]:
    """Failed initializations of network plugins; NCCL's own networks fail on many healthy machines."""
    return [n for n in facts.plugin("NET", "failed") if getattr(n.event, "plugin", None) not in ("IB", _SOCKET)]


def is_over_tcp(notice: Notice) -> bool:
    """Return whether aws-ofi-nccl reports that it selected TCP, maybe with a layer above it: ``tcp;ofi_rxm``."""
    return str(getattr(notice.event, "provider", "")).partition(";")[0] in _TCP_PROVIDERS


def is_of_libfabric(notice: Notice) -> bool:
    """Return whether a statement about a plugin is about aws-ofi-nccl, by the name of file, plugin or network."""
    name = str(getattr(notice.event, "plugin", "")).lower()
    return "ofi" in name or "libfabric" in name


def _another_network(facts: Facts) -> bool:
    """Return whether some rank has a network other than NCCL's TCP; Google's own TCP plugin is intended."""
    used = {net for comm in facts.job.communicators for net in comm.networks}
    came_up = {getattr(notice.event, "plugin", None) for notice in facts.plugin("NET", *_CAME_UP)}
    providers = [notice for notice in facts.with_event(events.OfiProvider) if not is_over_tcp(notice)]
    lists = {
        getattr(n.event, "net", None) for n in facts.with_event(events.NetDevices) if getattr(n.event, "devices", ())
    }
    merged = facts.notices("nccl/net-ib-merged")
    return bool((used | came_up | lists) - {_SOCKET} or providers or merged)


def _takes_tcp(facts: Facts) -> list[Notice]:
    """NCCL initializes networks in turn and stops at the first that works; TCP is the last (src/net.cc)."""

    def is_socket(event: events.Event) -> bool:
        return isinstance(event, events.NetDevices) and event.net == _SOCKET

    chosen = [n for n in facts.plugin("NET", *_CAME_UP) if getattr(n.event, "plugin", None) == _SOCKET]
    return [*facts.with_event(events.NetDevices, is_socket), *chosen, *facts.with_event(events.OfiProvider)]


def is_on_one_host(facts: Facts) -> bool:
    """Return whether all communicators are known to be on one host, so that NCCL needs no network."""
    comms = facts.job.communicators
    return bool(comms) and not facts.spans_hosts() and all(map(_is_whole, comms))


def _is_whole(comm: CommunicatorInfo) -> bool:
    """Return whether all ranks of a communicator on one host are in the log, or NCCL counts one node."""
    named = len(comm.hosts) == 1 and is_named(comm.hosts[0])
    return comm.nnodes == 1 or (named and len({*comm.started, *comm.completed}) == comm.nranks)


def clue_evidence(signs: Iterable[Evidence], fallback: Fallback) -> list[Evidence]:
    """Return the lines of a clue: signs of the better network, and NCCL's reports of no card and of selecting TCP."""
    return [*list(signs)[:3], *[*fallback.missing[:1], *fallback.stated, *fallback.missing[1:]][:2]]
