"""Hosts of one job have different numbers of NICs."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices, OfiProvider
from nccl_inspect.judging.engine import Facts, Notice, value
from nccl_inspect.judging.facts import hosts_with, ranks_concerned
from nccl_inspect.judging.page_words import Hit

_SEVERE = 5
"""This many times fewer NICs are an error."""
_REFUSED = "nccl/net-device-count-mixed"
_MOST_NICS = 1024
"""More than a host can have: a larger number is damaged, and not counted."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own lines (2.30.3 and later), else the NIC lists of hosts with equally many ranks."""
    fewer = facts.notices("nccl/net-device-count-low")
    if compared := sorted(
        facts.notices(_REFUSED, "nccl/net-device-mismatch"), key=lambda notice: notice.production != _REFUSED
    ):
        is_collnet = _is_collnet(compared[0])
        compared = [notice for notice in compared if _is_collnet(notice) is is_collnet]
        fewer = [notice for notice in fewer if _is_collnet(notice) is is_collnet]
        low, high = min(value(one, "min") for one in compared), max(value(one, "max") for one in compared)
        is_severe, is_refused = not is_collnet and high >= _SEVERE * max(low, 1), compared[0].production == _REFUSED
        named = {"low": low, "high": high, "severe": is_severe, "refused": is_refused, "CollNet": is_collnet}
        yield _name(facts, Hit([*compared, *fewer], named), fewer)
    elif notices := facts.errors_of_rule("nic-asymmetry"):
        yield _name(facts, Hit(notices, {"one side": True, "CollNet": _is_collnet(notices[0])}), notices)
    elif len(facts.settings("NCCL_IB_HCA")) < 2 and not _uses_tcp(facts):
        yield from _compare_lists(facts)


def _name(facts: Facts, hit: Hit, fewer: list[Notice]) -> Hit:
    """Add the ranks with fewer NICs, which rank 0 names, and their hosts: the lines are printed elsewhere."""
    ranks = ranks_concerned(facts, fewer, "rank")
    return hit.with_fields(ranks=ranks, hosts=hosts_with(facts.job, ranks)) if fewer else hit


def _is_collnet(notice: Notice) -> bool:
    return "CollNet" in (value(notice, "kind"), value(notice, "net"))


def _compare_lists(facts: Facts) -> Iterator[Hit]:
    """Find hosts that should have equally many NICs; half a node has half its NICs, which is normal."""
    nics = _nics(facts)
    counts = {host: len(nics[host]) for host in sorted(nics, key=lambda host: len(nics[host]))}
    peers = [host for host in facts.job.hosts if host.name in nics]
    if len(set(counts.values())) < 2 or len({len(host.ranks) for host in peers}) != 1 or _some_are_left_out(facts):
        return
    (low, *_, high), ordered = counts.values(), list(counts)
    ranks = len(peers[0].ranks) or (low if low.bit_count() == 1 else 0)  # machines have 1, 2, 4 or 8 NICs for GPUs
    if ranks and low >= ranks and low % ranks == 0 and high < low + ranks:
        return  # hosts with fewer NICs have all those for their GPUs, and the others extra ones for storage
    is_shown = any(kind.net != "Socket" for kind in facts.inter_host_net_paths().kinds)
    named = {"low": low, "high": high, "by_host": [f"{host} {counts[host]}" for host in ordered]}
    named |= {"listed only": not is_shown, "guessed": is_shown, "severe": is_shown and high >= _SEVERE * max(low, 1)}
    lines = [notice for host in (*ordered[:2], ordered[-1]) for notice in list(nics[host].values())[:1]]
    yield Hit(lines, named)


def _uses_tcp(facts: Facts) -> bool:
    """Whether hosts use TCP, as far as the log shows: then their NICs do not matter."""
    used = {kind.net for kind in facts.inter_host_net_paths().kinds}
    return (used or {net for comm in facts.job.communicators for net in comm.networks}) == {"Socket"}


def _nics(facts: Facts) -> dict[str, dict[object, Notice]]:
    """The NICs of each host with a line that names them: those of all its ranks, as each may have its own.

    A link layer that only some hosts have is left out. Of EFA devices the plugin prints only the number.
    """
    lists = [notice for notice in facts.job.notices if _cards(notice)]
    kinds = [{device[-1] for device in _cards(notice)} for notice in lists]
    common = set.intersection(*kinds) if kinds else set()
    nics: dict[str, dict[object, Notice]] = {}
    for notice in lists or facts.with_event(
        OfiProvider, lambda event: event.provider == "efa" and event.nics is not None and event.nics <= _MOST_NICS
    ):
        number = getattr(notice.event, "nics", None) or 0
        names = [d[1:3] for d in _cards(notice) if not common or d[-1] in common] or [(i,) for i in range(number)]
        for host in notice.hosts:
            for name in names:
                nics.setdefault(host, {}).setdefault(name, notice)
    return nics


def _some_are_left_out(facts: Facts) -> bool:
    """Whether ranks of a host list different NICs, and hosts show more or fewer ranks: each rank has its own NICs."""
    lists: dict[str, set[object]] = {}
    ranks: dict[str, set[object]] = {}
    for notice in facts.job.notices:
        if cards := _cards(notice):
            for process in notice.processes:
                lists.setdefault(process.host, set()).add(tuple(device[1:3] for device in cards))
                ranks.setdefault(process.host, set()).add(process)
    return any(len(members) > 1 for members in lists.values()) and len({len(members) for members in ranks.values()}) > 1


def _cards(notice: Notice) -> tuple[tuple[object, ...], ...]:
    event = notice.event
    return event.devices if isinstance(event, NetDevices) and event.net == "IB" else ()
