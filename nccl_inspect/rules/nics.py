"""Which NICs carry the traffic, and across which rails."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging import networks
from nccl_inspect.judging.check import Evidence, Facts, Hit, Notice, value
from nccl_inspect.judging.facts import (
    ENDS,
    HOSTS,
    RANKS,
    ends_of,
    global_ranks,
    hosts_in,
    hosts_with,
    nics_used,
    once,
    ranks_concerned,
    ranks_in,
)
from nccl_inspect.judging.networks import is_google_network
from nccl_inspect.judging.transfers import UNANSWERED, silent_peers
from nccl_inspect.model.inventory import Host
from nccl_inspect.model.job import CommunicatorInfo, PathKind, Selection
from nccl_inspect.model.paths.path import SIDES, Link
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import is_or_are, ranks_word, some_names


def cross_rail_traffic(facts: Facts) -> Iterator[Hit]:
    """Find connections whose ends are both in the log, if it shows that the fabric has rails.

    On a flat fabric such connections cost nothing, and an all-to-all group without PXN connects every NIC with every
    other: without evidence of rails there is nothing to act on.
    """
    listed = [one for one in networks.card_lists(facts) if _rails_of(one)]
    rails = {(host, nic): rail for one in listed for host in one.hosts for nic, rail in _rails_of(one)}
    warned = [] if listed else facts.notices("nccl/ib-rail-mismatch")[:1]
    settings = [one for one in facts.user_settings("NCCL_CROSS_NIC") if one.value in ("0", "1")]
    if not (listed or warned or settings):
        return
    joined = ("kind", "src_host", "dst_host")
    paths = crossing_paths(facts).filter_values(
        joined, lambda kind, *hosts: any(_leaves_rail(hosts, link, rails) for link in kind.links)
    )
    if not paths:
        return
    links = [
        link for kind, *hosts in paths.distinct(*joined) for link in kind.links if _leaves_rail(hosts, link, rails)
    ]
    uses = {False: "rings or trees", True: "send/recv"}
    ends = (end for end in (links[0].send, links[0].receive) if end)
    one, other = (f"NIC {end.nic_index}" + (f" ({end.nic})" if end.nic else "") for end in ends)
    named = {
        "crossing": len(paths),
        "matched": facts.inter_host_rdma_paths().where(
            lambda kind: any(one.send and one.receive for one in kind.links)
        ),
        "uses": ", and ".join(uses[is_send_recv] for is_send_recv in sorted({link.send_recv for link in links})),
        "one": one,
        "other": other,
        "listed": listed,
        "warned": warned,
        "settings": settings if not listed and not warned else [],
        "allowed": [setting for setting in settings if setting.value == "1"],
    }
    signs = listed[:1] or warned or settings
    yield Hit([], named, evidence=[*signs, *paths.first_lines()[:4]], paths=paths)


def _rails_of(notice: Notice) -> list[tuple[int, str]]:
    """Return the rails in a list of NICs: 2.30 writes ``mlx5_0:port:rail:plane``."""
    numbers = ((card[0], card[2].split(":")) for card in networks.cards_of(notice) if len(card) > 2)
    return [(index, number[1]) for index, number in numbers if len(number) > 1 and number[1]]


def _leaves_rail(hosts: Sequence[str | None], link: Link, rails: dict[tuple[str, int], str]) -> bool:
    """Return whether a link goes from one rail to another; two NICs of different numbers may be on the same rail."""
    if not link.crosses_rails or link.send is None or link.receive is None:
        return False
    ends = zip(hosts, (link.send.nic_index, link.receive.nic_index), strict=True)
    pair = {rails.get((host or "", -1 if index is None else index)) for host, index in ends}
    return None in pair or len(pair) > 1


def mixed_networks(facts: Facts) -> Iterator[Hit]:
    """Find communicators with several networks, and connections whose two ends name different ones.

    Where neither is in the log, a refused connection shows it, or hosts of which only some have cards.
    """
    mixed = sorted((comm for comm in facts.job.communicators if len(comm.networks) > 1), key=lambda comm: -comm.nranks)
    crossed = (
        facts.paths(transport="NET").where(lambda kind: kind.also).filter_values(("kind", "communicators"), _is_crossed)
    )
    without, listed = networks.without_cards(facts), facts.user_settings("NCCL_IB_HCA")
    # A connection of one network reaches a listener of another.
    refused = [one for one in facts.with_role("stranger") if value(one, "got_type") is not None]
    refused += facts.with_role("garbled-address")
    if mixed or crossed:
        odd = _odd_ranks(mixed)
        where = set(hosts_with(facts.job, odd))
        lacking = [notice for notice in without if set(notice.hosts) <= where]
        where_lacking = hosts_in(lacking)
        listed = [one for one in listed if not where_lacking.isdisjoint(one.hosts)]
        named = _outcome(facts, mixed, is_crossed=bool(crossed), is_refused=bool(refused))
        if mixed:
            groups = (
                f"{net} on {ranks_word(global_ranks(mixed[0], ranks))}" for net, ranks in mixed[0].networks.items()
            )
            named |= {"comm": mixed[0].id, "groups": "; ".join(groups)}
        else:
            both = [crossed[0].detail, *(other.detail for other in crossed[0].also if other.transport == "NET")]
            named |= {"networks": " and ".join(both), "src": crossed[0].src, "dst": crossed[0].dst}
        lines = [line for comm in mixed[:1] for line in comm.network_lines]
        yield Hit(
            named=named | {"odd": odd, "lacking": where_lacking, "listed": listed},
            ranks=odd or crossed.ends(),
            hosts=where or {host for comm in mixed[:1] for host in comm.hosts} or crossed.hosts(),
            evidence=[*lacking[:1], *lines, *crossed.first_lines()[:2], *refused[:2]],
            paths=crossed,
        )
    elif notices := networks.network_mismatches(facts):
        typed = [notice for notice in notices if value(notice, "got_type") is not None]
        peer, own = (typed and networks.NETWORK_TYPES[value(typed[0], f"{end}_type")] for end in ("got", "expected"))
        failed = facts.plugin("NET", "failed")
        others = [notice for notice in failed if not set(notice.processes) & set(notices[0].processes)]
        named = {"met": True, "peer": peer, "own": own, "failed": failed}
        yield Hit(notices, named, evidence=[*notices[:3], *others[:1]])
    elif without and not any(comm.networks for comm in facts.job.communicators) and not facts.paths(transport="NET"):
        others = networks.card_lists(facts)
        lacking_hosts = hosts_in(without)
        listed = [one for one in listed if not lacking_hosts.isdisjoint(one.hosts)]
        named = {"hosts_with": hosts_in(others), "lacking": lacking_hosts, "listed": listed}
        yield Hit(without, named, evidence=[*without[:2], *others[:2], *listed[:1]])


def _outcome(facts: Facts, mixed: list[CommunicatorInfo], *, is_crossed: bool, is_refused: bool) -> dict[str, object]:
    """Return what happened to communicators with several networks."""
    if not is_crossed and all(comm.nnodes == 1 or len(comm.hosts) == 1 for comm in mixed):
        return {"unused": True}
    names = {comm.id for comm in mixed}
    joined = facts.inter_host_net_paths().distinct("communicators")
    works = not facts.job.failed and any(names.intersection(comms) for (comms,) in joined)
    is_dead = is_crossed or is_refused or facts.job.failed
    is_stuck = bool(mixed) and not works and facts.none_initialized(mixed) and not facts.job.excerpt  # or it was cut
    return {"by chance": works and not is_dead, "fatal": is_dead or is_stuck, "guessed": not (mixed and is_dead)}


def _is_crossed(kind: PathKind, communicators: tuple[str, ...]) -> bool:
    """Return whether one communicator shows two networks for one pair: each end prints its own."""
    return not kind.guessed and any(
        other.transport == "NET"
        and other.detail != kind.detail
        and not set(other.communicators).isdisjoint(communicators)
        for other in kind.also
    )


def _odd_ranks(mixed: list[CommunicatorInfo]) -> set[int]:
    """Return the ranks outside the largest group; among equally large ones those on Socket, the last resort."""
    for comm in mixed:
        (_, most), *rest = sorted(comm.networks.items(), key=lambda group: (-len(group[1]), group[0] == "Socket"))
        if len(most) > len(rest[0][1]) or rest[0][0] == "Socket":
            return {rank for _, ranks in rest for rank in global_ranks(comm, ranks)}
    return set()


_SEVERE = 5
"""This many times fewer NICs are an error."""


def nic_asymmetry(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own lines (2.30.3 and later), else the NIC lists of hosts with equally many ranks."""
    fewer, errors = facts.notices("nccl/net-device-count-low"), facts.errors_of_rule("nic-asymmetry")
    if compared := [*facts.notices("nccl/net-device-count-mixed"), *facts.notices("nccl/net-device-mismatch")]:
        is_collnet, is_refused = _is_collnet(compared[0]), bool(facts.notices("nccl/net-device-count-mixed"))
        compared = [notice for notice in compared if _is_collnet(notice) is is_collnet]
        fewer = [notice for notice in fewer if _is_collnet(notice) is is_collnet]
        low, high = min(value(one, "min") for one in compared), max(value(one, "max") for one in compared)
        is_severe = not is_collnet and high >= _SEVERE * max(low, 1)
        named = {"low": low, "high": high, "severe": is_severe, "refused": is_refused, "CollNet": is_collnet}
        hit = Hit([*compared, *fewer], named)
    elif errors:
        fewer, hit = errors, Hit(errors, {"one side": True, "CollNet": _is_collnet(errors[0])})
    else:
        if len(facts.settings("NCCL_IB_HCA")) < 2:
            used = {kind.net for kind in facts.inter_host_net_paths().kinds}
            used = used or {net for comm in facts.job.communicators for net in comm.networks}
            if used != {"Socket"}:  # else the NICs of hosts do not matter
                yield from _compare_lists(facts)
        return
    if fewer:  # rank 0 names the ranks with fewer NICs: the lines are printed elsewhere
        ranks = ranks_concerned(facts, fewer, "rank")
        hit = hit.with_fields(ranks=ranks, hosts=hosts_with(facts.job, ranks))
    yield hit


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


def _nics(facts: Facts) -> dict[str, dict[object, Notice]]:
    """Return the NICs of each host with a line that names them: those of all its ranks, as each may have its own.

    A link layer that only some hosts have is left out. Of EFA devices the plugin prints only the number.
    """
    lists = networks.card_lists(facts)
    kinds = [{card[-1] for card in networks.cards_of(notice)} for notice in lists]
    common = set.intersection(*kinds) if kinds else set()
    nics: dict[str, dict[object, Notice]] = {}
    most = 1024  # more than a host can have: a larger number is damaged, and not counted
    for notice in lists or facts.with_event(
        OfiProvider, lambda event: event.provider == "efa" and event.nics is not None and event.nics <= most
    ):
        number = getattr(notice.event, "nics", None) or 0
        cards = [card[1:3] for card in networks.cards_of(notice) if not common or card[-1] in common]
        for host in notice.hosts:
            for name in cards or [(index,) for index in range(number)]:
                nics.setdefault(host, {}).setdefault(name, notice)
    return nics


def _some_are_left_out(facts: Facts) -> bool:
    """Return whether ranks of a host list different NICs, and hosts show more or fewer ranks: each has its own NICs."""
    lists: dict[str, set[object]] = {}
    ranks: dict[str, set[object]] = {}
    for notice in networks.card_lists(facts):
        cards = tuple(card[1:3] for card in networks.cards_of(notice))
        for process in notice.processes:
            lists.setdefault(process.host, set()).add(cards)
            ranks.setdefault(process.host, set()).add(process)
    return any(len(members) > 1 for members in lists.values()) and len({len(members) for members in ranks.values()}) > 1


def nic_shared(facts: Facts) -> Iterator[Hit]:
    """Find hosts with idle NICs for NCCL, where several ranks use the same single NIC."""
    hosts = [(one, one.shared) for one in idle_nics(facts) if one.meant and one.shared]
    hosts.sort(key=lambda pair: -len(pair[1].ranks))
    for first, shared in hosts[:1]:
        paths, side = facts.inter_host_rdma_paths(), (HOSTS[shared.side], RANKS[shared.side])
        ends = [  # of some of these ranks, with a line that names the NIC which they share
            paths.filter_values(side, lambda *end, own=(first.host.name, rank): end == own)
            for rank in sorted(shared.ranks)[:2]
        ]
        lines = [line for own in ends for line in islice(own.end_lines(shared.side), 1)]
        policy = facts.user_settings("NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
        named = {
            "ranks": shared.ranks,
            "host": first.host.name,
            "nic": first.shared_name,
            "idle": f"{some_names(first.names)} {is_or_are(len(first.names))}",
            "absent": first.absent,
            "others": hosts[1:],
            "policy": policy,
        }
        yield Hit(
            [],
            named,
            ranks=[rank for _, shared in hosts for rank in shared.ranks],
            hosts=[one.host.name for one, _ in hosts],
            evidence=[*(one.evidence for one, _ in hosts[:2]), *lines, *policy[:1]],
        )


def nic_unused(facts: Facts) -> Iterator[Hit]:
    """Find hosts where the idle NIC is for NCCL, or may be."""
    hosts = [host for host in idle_nics(facts) if not host.absent]
    meant = [host for host in hosts if host.meant]
    for first in (meant or hosts)[:1]:
        used, names = len(first.used), first.names
        yield Hit(
            named={
                "idle": some_names(names),
                "host": first.host.name,
                "one": len(names) == 1,
                "used": used,
                "total": used + len(names),
                "share": f"{used}/{used + len(names)}",
                "others": meant[1:],
                "meant": meant,
            },
            ranks=[rank for host in meant for rank in host.host.ranks],
            hosts=[host.host.name for host in meant],
            evidence=[host.evidence for host in meant],
        )


def pxn_unused(facts: Facts) -> Iterator[Hit]:
    """Find hosts where PXN could help: several NICs and several ranks, with NVLink between them."""
    paths = facts.inter_host_rdma_paths()
    rich = {host for host, nics in nics_used(paths).items() if len(nics) > 1 and len(set().union(*nics.values())) > 1}
    paths = paths.filter_values(("src_host",), rich.__contains__)
    off = [setting for setting in facts.user_settings("NCCL_PXN_DISABLE") if setting.value == "1"]
    off += [setting for setting in facts.user_settings("NCCL_P2P_PXN_LEVEL") if setting.value == "0"]
    off = [] if is_google_network(facts) else off
    old = facts.notices("nccl/pxn-disabled-by-plugin")
    slow = paths if paths and (off or old) else _stray(facts) if paths else paths
    if slow:
        yield Hit(named={"off": off, "old plugin": old}, evidence=[*off, *old[:1], *slow.first_lines()[:3]], paths=slow)


def _stray(facts: Facts) -> Selection:
    """Send/recv paths that change rails although PXN would have kept them on one."""
    joined = any(facts.link(kind) == "NVLink" for kind in facts.paths(transport="P2P").kinds)
    uses_it = any(kind.pxn_rank is not None for kind in facts.inter_host_rdma_paths().kinds)
    # The release is known to have it; an inferred range does not count.
    releases = [re.fullmatch(r"(\d+)\.(\d+)\..*", version) for version in facts.job.nccl_versions]
    has_it = bool(releases) and all(one is not None and (int(one[1]), int(one[2])) >= (2, 12) for one in releases)
    if not joined or uses_it or not has_it:
        return facts.no_paths()
    return crossing_paths(facts).where(lambda kind: any(link.send_recv and link.crosses_rails for link in kind.links))


def rail_only_fabric(facts: Facts) -> Iterator[Hit]:
    """Find whether the ranks with timeouts are those that connect different NIC numbers."""
    refused = facts.notices("nccl/ib-modify-qp-failed")
    connecting = [one for one in refused if value(one, "errno") == errno.ETIMEDOUT]
    lost = facts.completions(UNANSWERED)
    lost = [] if silent_peers(facts, lost) else lost  # a fabric fails both ways; here a process or a host was lost
    errors, hints = [*connecting, *lost], facts.notices("nccl/hint-cross-rail")
    failed = ranks_in([*errors, *hints])
    paths = facts.inter_host_rdma_paths().where(lambda _: bool(failed))
    bad = paths.filter_values(("src", "dst"), lambda *ends: not failed.isdisjoint(ends))
    if not bad or not any(len(nics) > 1 for nics in nics_used(bad).values()):
        return
    named = [(rank, value(error, "device")) for error in errors for rank in error.ranks]
    devices = {rank: {str(device) for owner, device in named if owner == rank and device} for rank in failed}
    # Whether each has a connection that leaves the rail, on a NIC that failed (if NICs are named).
    links = [(path, link) for path in bad for link in path.links if link.crosses_rails]
    ends = (end for path, link in links for end in ((path.src, link.send), (path.dst, link.receive)))
    crossed = {(owner, own.nic) for owner, own in ends if own is not None}
    explained = all(
        any(owner == rank and (nic in (None, *devices[rank]) or not devices[rank]) for owner, nic in crossed)
        for rank in failed
    )
    straight = paths.exclude(bad).where(
        lambda kind: bool(kind.links) and all(one.send and one.receive and not one.crosses_rails for one in kind.links)
    )
    if explained and (straight or connecting or hints):
        crossing = bad.where(lambda kind: any(link.crosses_rails for link in kind.links))
        yield Hit(
            named={"failed": failed, "crossing": crossing, "straight": straight},
            ranks=failed,
            hosts=hosts_in(errors),
            evidence=[*errors[:2], *hints[:1], *crossing.first_lines()[:2]],
        )
    elif (connecting or hints) and any(None in (link.send, link.receive) for kind in bad.kinds for link in kind.links):
        yield Hit(named={"half": failed})


@frozen
class Shared(Frozen):
    """Ranks that send, or receive, only through the same NIC."""

    nic: int
    ranks: set[int]
    side: str
    """Whether they do that with what they ``send`` or ``receive``."""


@frozen
class Idle(Frozen):
    """A host with NICs that nothing uses."""

    host: Host
    names: list[str]
    """The idle NICs."""
    absent: int
    """Number of the host's ranks that the log lacks: as many of these NICs may be theirs."""
    used: dict[int, set[int]]
    """The other NICs by index, with the ranks that use them."""
    meant: bool
    """Whether there is evidence that the idle ones are meant for NCCL."""
    shared: Shared | None
    """The largest group of ranks that shares a NIC."""
    shared_name: str
    evidence: Evidence


@frozen
class _Judged(Frozen):
    """A host whose ranks in the log are all connected with other hosts."""

    host: Host
    ranks: set[int]
    absent: int
    """Number of its ranks that the log lacks."""
    comms: set[str]
    """The communicators that join it with others, in which all of these ranks are connected,"""
    alike: frozenset[tuple[int, int | None, int | None]]
    """and their kinds: hosts with the same kinds can be compared."""


@once
def idle_nics(facts: Facts) -> list[Idle]:
    """Return the hosts with idle NICs, if all ranks of the host are connected with other hosts.

    Missing connections of other hosts or communicators prove nothing about the NICs of this one. Left out are devices
    of hosts with fewer ranks than NICs, devices with another kind of link (storage, management), merged ports, and
    hosts with more ranks than others: the others set the number of channels.
    """
    paths, judged = facts.inter_host_rdma_paths(), {one.host.name: one for one in _judged_hosts(facts)}
    whole = {name: one.comms for name, one in judged.items() if not one.absent}
    compared = group_sets(
        (host, end.nic_index)
        for side, column in HOSTS.items()
        for host, ends, comms in paths.distinct(column, ENDS[side], "communicators")
        for end in (ends if host in whole and not whole[host].isdisjoint(comms) else ())
        if end.nic_index is not None
    )
    usual = group_sets((judged[name].alike, frozenset(nics)) for name, nics in compared.items())
    in_use, listing, machine = nics_used(paths), filter(_devices, networks.card_lists(facts)), facts.platform
    listed = group_values((name, notice) for notice in listing for name in notice.hosts)
    results: list[Idle] = []
    for name, one in judged.items():
        lists, used = listed.get(name, []), in_use.get(name, {})
        kinds, gpus = {_devices(notice) for notice in lists}, len(one.ranks) + one.absent
        if len(kinds) != 1 or not used:
            continue  # no list, or lists for single ranks
        devices = {device[0]: device for device in kinds.pop()}
        if not used.keys() <= devices.keys() or len(devices) > gpus:
            continue
        links, names = {devices[index][-1] for index in used}, {devices[index][1] for index in used}
        unused = {
            index: device[1]
            for index, device in devices.items()
            if index not in used and device[-1] in links and device[1] not in names
        }
        # A comparable host uses these NICs, the machine type has that many for NCCL, or there is one for each of at
        # least four GPUs, but all ranks in the log use the same one.
        ports, shared = len(unused) + len(used), _shared_nics(facts).get(name)
        is_alone = shared is not None and shared.ranks == one.ranks
        meant = (
            any(unused.keys() <= nics for nics in usual.get(one.alike, ()))
            or (machine is not None and (machine.nics or 0) >= ports and machine.gpus == gpus)
            or (is_alone and ports == gpus >= 4)
        )
        if len(unused) > one.absent:
            shown = devices[shared.nic][1] if shared else "", lists[0].evidence[0]
            results.append(Idle(one.host, list(unused.values()), one.absent, used, meant, shared, *shown))
    return results


def _judged_hosts(facts: Facts) -> Iterator[_Judged]:
    joining = [comm for comm in facts.job.communicators if len(comm.hosts) > 1 or (comm.nnodes or 1) > 1]
    crossing = group_values((name, comm) for comm in joining if comm.connected for name in comm.hosts)
    started = {comm.id: global_ranks(comm, comm.started) for comm in facts.job.communicators}
    done = {comm.id: global_ranks(comm, comm.connected) for comm in facts.job.communicators}
    begun = set().union(*started.values())
    is_whole = len(facts.job.ranks_seen) == facts.job.world_size
    sizes = {  # the ranks of each host, in the log or not; None if unknown
        host.name: len(host.ranks)
        if is_whole
        else max((comm.local_ranks for comm in crossing.get(host.name, []) if comm.local_ranks), default=None)
        for host in facts.job.hosts
    }
    fewest = min((size for size in sizes.values() if size), default=0)
    for host in facts.job.hosts:
        ranks = begun.intersection(host.ranks)
        comms = [
            comm
            for comm in crossing.get(host.name, [])
            if ranks & done[comm.id] and ranks & started[comm.id] == ranks & done[comm.id]
        ]
        if ranks != {rank for comm in comms for rank in ranks & done[comm.id]}:
            continue  # these leave out some of its ranks
        if comms and sizes[host.name] == fewest >= len(ranks):
            alike = frozenset((comm.nranks, comm.nnodes, comm.channels) for comm in comms)
            yield _Judged(host, ranks, fewest - len(ranks), {comm.id for comm in comms}, alike)


def _devices(notice: Notice) -> tuple[tuple[Any, ...], ...]:
    """Return the devices in a list of IB or RoCE ports; empty for one virtual device, as subsystem NET prints it."""
    return tuple(card for card in networks.cards_of(notice) if len(card) > 3)


@once
def _shared_nics(facts: Facts) -> dict[str, Shared]:
    """Return for each host the largest group of ranks that send, or receive, only through the same NIC."""
    own = group_sets(  # without the NICs of other ranks that are used through PXN
        ((host, side, rank), end.nic_index)
        for side in SIDES
        for host, rank, end in ends_of(facts.inter_host_rdma_paths(), side)
        if end.nic_index is not None and end.pxn_rank is None
    )
    groups = group_sets(((host, side, min(nics)), rank) for (host, side, rank), nics in own.items() if len(nics) == 1)
    largest: dict[str, Shared] = {}
    for (host, side, nic), ranks in groups.items():
        if len(ranks) > (len(largest[host].ranks) if host in largest else 1):
            largest[host] = Shared(nic, ranks, side)
    return largest


def crossing_paths(facts: Facts) -> Selection:
    """Return paths that cross rails, between hosts that use several NICs each: with one NIC there are no rails.

    The networks behind libfabric (EFA, Slingshot) have no rails.
    """
    paths = facts.inter_host_rdma_paths().where(lambda kind: "Libfabric" not in (kind.net or ""))
    used = nics_used(paths)
    crossed = paths.where(lambda kind: any(link.crosses_rails for link in kind.links))
    rich = {host for host, nics in used.items() if len(nics) > 1}
    return crossed.filter_values(("src_host", "dst_host"), lambda *hosts: rich.issuperset(hosts))
