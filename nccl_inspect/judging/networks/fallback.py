"""What a log says of the network that is left for hosts to talk over, where no connection between hosts shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import is_named
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import CommunicatorInfo, Notice

_SOCKET = "Socket"
_TCP_PROVIDERS = ("tcp", "sockets")
"""Providers of libfabric that carry it over TCP."""
_CAME_UP = ("initialised", "assigned")
CONFIRM = "Check 'Using network', and 'via NET/' once hosts talk: Socket means TCP."
"""How each clue about the network is confirmed."""


class Fallback(NamedTuple):
    """A job whose hosts are left with TCP, as far as the log goes."""

    stated: list[Evidence]
    """Where NCCL says that it takes TCP; empty where it only says what it did not find."""
    missing: list[Evidence]
    """Where it says that it found no card, or no library to look for one."""
    ranks: set[int]
    hosts: set[str]
    is_spread: bool
    """Whether the job is known to be on several hosts."""
    is_near: bool
    """Whether the log shows connections, all of them within one host."""

    @property
    def severity(self) -> str:
        """Within a host nobody misses the network."""
        return "info" if self.may_be_idle else "warning"

    def confidence(self, sure: bool) -> str:
        """``likely`` with a sure sign of a better network, where there is something to carry."""
        return "likely" if sure and not self.may_be_idle else "possible"

    @property
    def may_be_idle(self) -> bool:
        """Whether nothing in the log leaves the host, and nothing shows another one."""
        return self.is_near and not self.is_spread


def fallback(facts: Facts) -> Fallback | None:
    """TCP as the only network that came up; None where another did, one host is all, or connections show it."""
    return facts.once(_fallback)


def _fallback(facts: Facts) -> Fallback | None:
    if facts.paths(transport="NET") or is_on_one_host(facts) or _another_network(facts):
        return None
    over_tcp = _takes_tcp(facts)
    missing = facts.with_role("no-ib")
    lines = [
        line for comm in facts.job.communicators if set(comm.networks) == {_SOCKET} for line in comm.network_lines[:1]
    ]
    stated = [*first_said(over_tcp), *lines]
    if not (stated or missing or tried(facts) or facts.with_role("no-provider")):
        return None
    said = [*over_tcp, *missing]
    return Fallback(
        stated,
        first_said(missing),
        ranks_in(said),
        hosts_in(said),
        facts.several_hosts(),
        is_near=bool(facts.paths("intra")),
    )


def tried(facts: Facts) -> list[Notice]:
    """Where a network plugin, or NCCL, says that it does not come up; NCCL's own ones fail on many a sound machine."""
    return [n for n in facts.plugin("NET", "failed") if getattr(n.event, "plugin", None) not in ("IB", _SOCKET)]


def is_over_tcp(notice: Notice) -> bool:
    """Whether aws-ofi-nccl says that it selected TCP, maybe with a layer above it: ``tcp;ofi_rxm``."""
    return str(getattr(notice.event, "provider", "")).partition(";")[0] in _TCP_PROVIDERS


def is_of_libfabric(notice: Notice) -> bool:
    """Whether a statement about a plugin is about aws-ofi-nccl, by the name of file, plugin or network."""
    name = str(getattr(notice.event, "plugin", "")).lower()
    return "ofi" in name or "libfabric" in name


def _another_network(facts: Facts) -> bool:
    """Whether some rank has a network that is not TCP, or Google's own TCP plugin, which is meant."""
    used = {net for comm in facts.job.communicators for net in comm.networks}
    came_up = {getattr(notice.event, "plugin", None) for notice in facts.plugin("NET", *_CAME_UP)}
    providers = [notice for notice in facts.said(events.OfiProvider) if not is_over_tcp(notice)]
    lists = {getattr(n.event, "net", None) for n in facts.said(events.NetDevices) if getattr(n.event, "devices", ())}
    merged = facts.notices("nccl/net-ib-merged")
    return bool((used | came_up | lists) - {_SOCKET} or providers or merged)


def _takes_tcp(facts: Facts) -> list[Notice]:
    """NCCL initialises networks in turn and stops at the first that works, and TCP is the last (src/net.cc)."""

    def is_socket(event: events.Event) -> bool:
        return isinstance(event, events.NetDevices) and event.net == _SOCKET

    chosen = [n for n in facts.plugin("NET", *_CAME_UP) if getattr(n.event, "plugin", None) == _SOCKET]
    return [*facts.said(events.NetDevices, is_socket), *chosen, *facts.said(events.OfiProvider)]


def is_on_one_host(facts: Facts) -> bool:
    """Whether all communicators are known to be on one host, where NCCL needs no network."""
    comms = facts.job.communicators
    return bool(comms) and not facts.several_hosts() and all(map(_is_whole, comms))


def _is_whole(comm: CommunicatorInfo) -> bool:
    """Whether all ranks of a communicator on one host are in the log, or NCCL counts one node."""
    named = len(comm.hosts) == 1 and is_named(comm.hosts[0])
    return comm.nnodes == 1 or (named and len({*comm.started, *comm.completed}) == comm.nranks)


def ways(said: Iterable[Evidence], found: Fallback) -> list[Evidence]:
    """The lines of a clue: signs of the better network, and where NCCL says that it found no card and takes TCP."""
    return [*list(said)[:3], *[*found.missing[:1], *found.stated, *found.missing[1:]][:2]]
