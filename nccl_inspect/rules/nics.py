"""Which NICs carry the traffic, across which rails, and over which links."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nccl_inspect.event.types import NetDevices, OfiProvider
from nccl_inspect.judging import networks, transfers
from nccl_inspect.judging.check import Effects, Evidence, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.facts import (
    ENDS,
    HOSTS,
    RANKS,
    ends_of,
    evidence_of_settings,
    global_ranks,
    hosts_in,
    hosts_with,
    nics_used,
    once,
    ranks_concerned,
    ranks_in,
)
from nccl_inspect.model.inventory import Host
from nccl_inspect.model.job import CommunicatorInfo, PathKind, Selection
from nccl_inspect.model.paths.path import SIDES, Link
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import conjugate, is_or_are, list_words, ranks_word, some_names


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

    def leave(kind: PathKind, *hosts: str | None) -> list[Link]:
        return [link for link in kind.links if _leaves_rail(hosts, link, rails)]

    if not (paths := crossing_paths(facts).filter_values(joined, leave)):
        return
    links = [link for ends in paths.distinct(*joined) for link in leave(*ends)]
    names = {False: "rings or trees", True: "send/recv"}
    uses = sorted({link.send_recv for link in links})
    ends = (end for end in (links[0].send, links[0].receive) if end)
    one, other = (f"NIC {end.nic_index}" + (f" ({end.nic})" if end.nic else "") for end in ends)
    matched = facts.inter_host_rdma_paths().where(lambda kind: any(one.send and one.receive for one in kind.links))
    named: dict[str, object] = {
        "crossing": len(paths),
        "matched": matched,
        "one": one,
        "other": other,
        "uses": ", and ".join(names[use] for use in uses),
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


def _whole_names(names: Collection[str]) -> list[str]:
    """Return names of networks without beginnings of others, which torn lines leave; IB and IBext are two networks."""
    return [one for one in names if one == "IB" or not any(o != one and o.startswith(one) for o in names)]


def mixed_networks(facts: Facts) -> Iterator[Hit]:
    """Find communicators with several networks, and connections whose two ends name different ones.

    Where neither is in the log, a refused connection shows it, or hosts of which only some have cards.
    """
    several = (comm for comm in facts.job.communicators if len(_whole_names(comm.networks)) > 1)
    mixed = sorted(several, key=lambda comm: -comm.nranks)
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
        named |= {"odd": odd, "lacking": where_lacking, "listed": listed}
        hosts = where or {host for comm in mixed[:1] for host in comm.hosts} or crossed.hosts()
        stated = [line for comm in mixed[:1] for line in comm.network_lines]
        lines = [*first_evidence(lacking[:1]), *stated, *crossed.first_lines()[:2], *first_evidence(refused[:2])]
        yield Hit([], named, odd or crossed.ends(), hosts, lines, crossed)
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


_SEVERE = 5  # this many times fewer NICs are an error


def nic_asymmetry(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own lines (2.30.3 and later), else the NIC lists of hosts with equally many ranks."""
    fewer = facts.notices("nccl/net-device-count-low")
    errors = facts.errors_of_rule("nic-asymmetry")
    if compared := [*facts.notices("nccl/net-device-count-mixed"), *facts.notices("nccl/net-device-mismatch")]:
        is_collnet = _is_collnet(compared[0])
        is_refused = bool(facts.notices("nccl/net-device-count-mixed"))
        compared = [notice for notice in compared if _is_collnet(notice) is is_collnet]
        fewer = [notice for notice in fewer if _is_collnet(notice) is is_collnet]
        low = min(value(one, "min") for one in compared)
        high = max(value(one, "max") for one in compared)
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
    fewer = [host for host in ordered if counts[host] < high]
    is_divided = 1 < len(fewer) > len(counts) // 8  # else one of many, or one of two, is worse off than the others
    if is_divided and _are_of_kinds(facts, counts):
        return
    is_shown = any(kind.net != "Socket" for kind in facts.inter_host_net_paths().kinds)
    named = {"low": low, "high": high, "by_host": [f"{host} {counts[host]}" for host in ordered]}
    is_severe = is_shown and not is_divided and high >= _SEVERE * max(low, 1)
    named |= {"listed only": not is_shown, "guessed": is_shown, "divided": is_divided, "severe": is_severe}
    lines = [notice for host in (*fewer[:2], ordered[-1]) for notice in list(nics[host].values())[:1]]
    yield Hit(lines, named, [rank for host in peers if host.name in fewer for rank in host.ranks], fewer)


def _are_of_kinds(facts: Facts, counts: Mapping[str, int]) -> bool:
    """Return whether the bus ids of GPUs show a kind of machine for each number of NICs, of several hosts each."""
    ids = facts.bus_ids()
    kinds = Counter((ids[host], number) for host, number in counts.items() if None not in ids.get(host, (None,)))
    is_each_alike = len({machine for machine, _ in kinds}) == len(set(counts.values())) == len(kinds)
    return is_each_alike and kinds.total() == len(counts) and min(kinds.values()) > 1


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


_FEW_RANKS = 4  # of a host: with fewer GPUs it may have one NIC
_ONE_NIC = compile_later(r"=?[a-z]\w*\d(?::\d+)?")  # without a number at its end a name stands for all that begin so


def nic_shared(facts: Facts) -> Iterator[Hit]:
    """Find hosts where several ranks use one NIC while others are idle, or because a setting names no other one."""
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
            "absent": first.absent,
            "idle": f"{some_names(first.names)} {is_or_are(len(first.names))}",
            "others": hosts[1:],
        }
        ranks = [rank for _, shared in hosts for rank in shared.ranks]
        shown = [*(one.evidence for one, _ in hosts[:2]), *lines, *evidence_of_settings(policy[:1], 1)]
        yield Hit([], named | {"policy": policy}, ranks, [one.host.name for one, _ in hosts], shown)
    lists = [one for one in facts.user_settings("NCCL_IB_HCA") if _ONE_NIC.fullmatch(one.value)]
    used = nics_used(facts.inter_host_rdma_paths()) if lists and not hosts else {}
    alone = {host: next(iter(nics.values())) for host, nics in used.items() if len(nics) == 1}
    if crowded := {host: ranks for host, ranks in alone.items() if len(ranks) >= _FEW_RANKS}:
        host = next(iter(crowded))
        named = {"only": lists, "ranks": crowded[host], "host": host, "others": [*crowded][1:]}
        everyone = [rank for some in crowded.values() for rank in some]
        yield Hit([], named, everyone, list(crowded), evidence_of_settings(lists[:1], 1))


def nic_unused(facts: Facts) -> Iterator[Hit]:
    """Find hosts where the idle NIC is for NCCL, or may be."""
    hosts = [host for host in idle_nics(facts) if not host.absent]
    meant = [host for host in hosts if host.meant]
    for first in (meant or hosts)[:1]:
        used, names, total = len(first.used), first.names, len(first.used) + len(first.names)
        named = {
            "idle": some_names(names),
            "host": first.host.name,
            "one": len(names) == 1,
            "used": used,
            "total": total,
            "share": f"{used}/{total}",
            "others": meant[1:],
            "meant": meant,
        }
        ranks = [rank for host in meant for rank in host.host.ranks]
        yield Hit([], named, ranks, [host.host.name for host in meant], [host.evidence for host in meant])


def pxn_unused(facts: Facts) -> Iterator[Hit]:
    """Find hosts where PXN could help: several NICs and several ranks, with NVLink between them."""
    paths = facts.inter_host_rdma_paths()
    rich = {host for host, nics in nics_used(paths).items() if len(nics) > 1 and len(set().union(*nics.values())) > 1}
    paths = paths.filter_values(("src_host",), rich.__contains__)
    off = [setting for setting in facts.user_settings("NCCL_PXN_DISABLE") if setting.value == "1"]
    off += [setting for setting in facts.user_settings("NCCL_P2P_PXN_LEVEL") if setting.value == "0"]
    off = [] if networks.is_google_network(facts) else off
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
    lost = facts.completions(transfers.UNANSWERED)
    # A fabric fails both ways, and not for one of the hosts only; here a process, a host or its card was lost.
    if transfers.silent_peers(facts, lost) or transfers.find_hub(facts, lost):
        lost = []
    errors, hints = [*connecting, *lost], facts.notices("nccl/hint-cross-rail")
    failed = ranks_in([*errors, *hints])
    paths = facts.inter_host_rdma_paths().where(lambda _: bool(failed))
    bad = paths.filter_values(("src", "dst"), lambda *ends: not failed.isdisjoint(ends))
    if not bad or not any(len(nics) > 1 for nics in nics_used(bad).values()):
        return
    named = ((rank, value(error, "device")) for error in errors for rank in error.ranks)
    devices = group_sets((rank, str(device)) for rank, device in named if device)
    links = [(path, link) for path in bad for link in path.links if link.crosses_rails]
    ends = (end for path, link in links for end in ((path.src, link.send), (path.dst, link.receive)))
    crossed = group_sets((rank, end.nic) for rank, end in ends if end is not None)

    def leaves_rail(rank: int) -> bool:
        """Return whether a rank has a connection that leaves the rail, on a NIC that failed, where NICs are named."""
        nics, faulty = crossed.get(rank, set()), devices.get(rank, set())
        return bool(nics) and (not faulty or not nics.isdisjoint({None, *faulty}))

    straight = paths.exclude(bad).where(
        lambda kind: bool(kind.links) and all(one.send and one.receive and not one.crosses_rails for one in kind.links)
    )
    has_sign = bool(connecting or hints)
    if all(map(leaves_rail, failed)) and (straight or has_sign):
        crossing = bad.where(lambda kind: any(link.crosses_rails for link in kind.links))
        lines = [*first_evidence([*errors[:2], *hints[:1]]), *crossing.first_lines()[:2]]
        yield Hit([], {"failed": failed, "crossing": crossing, "straight": straight}, failed, hosts_in(errors), lines)
    elif has_sign and any(None in (link.send, link.receive) for kind in bad.kinds for link in kind.links):
        yield Hit(named={"half": failed})


class Shared(Frozen):
    """Ranks that send, or receive, only through the same NIC."""

    nic: int
    ranks: set[int]
    side: str  # whether they do that with what they ``send`` or ``receive``


class Idle(Frozen):
    """A host with NICs that nothing uses."""

    host: Host
    names: list[str]  # the idle NICs
    absent: int  # number of the host's ranks that the log lacks: as many of these NICs may be theirs
    used: dict[int, set[int]]  # the other NICs by index, with the ranks that use them
    meant: bool  # whether there is evidence that the idle ones are meant for NCCL
    shared: Shared | None  # the largest group of ranks that shares a NIC
    shared_name: str
    evidence: Evidence


class _Judged(Frozen):
    """A host whose ranks in the log are all connected with other hosts."""

    host: Host
    ranks: set[int]
    absent: int  # number of its ranks that the log lacks
    comms: set[str]  # the communicators that join it with others, in which all of these ranks are connected,
    alike: frozenset[tuple[int, int | None, int | None]]  # and their kinds: hosts with the same kinds can be compared


@once
def idle_nics(facts: Facts) -> list[Idle]:
    """Return the hosts with idle NICs, if all ranks of the host are connected with other hosts.

    Missing connections of other hosts or communicators prove nothing about the NICs of this one. Left out are devices
    of hosts with fewer ranks than NICs, devices with another kind of link (storage, management), merged ports, and
    hosts with more ranks than others: the others set the number of channels.
    """
    paths = facts.inter_host_rdma_paths()
    judged = {one.host.name: one for one in _judged_hosts(facts)}
    whole = {name: one.comms for name, one in judged.items() if not one.absent}
    compared = group_sets(
        (host, end.nic_index)
        for side, column in HOSTS.items()
        for host, ends, comms in paths.distinct(column, ENDS[side], "communicators")
        for end in (ends if host in whole and not whole[host].isdisjoint(comms) else ())
        if end.nic_index is not None
    )
    usual = group_sets((judged[name].alike, frozenset(nics)) for name, nics in compared.items())
    in_use = nics_used(paths)
    listing = filter(_devices, networks.card_lists(facts))
    machine = facts.platform
    listed = group_values((name, notice) for notice in listing for name in notice.hosts)
    results: list[Idle] = []
    for name, one in judged.items():
        lists, used = listed.get(name, []), in_use.get(name, {})
        kinds, gpus = {_devices(notice) for notice in lists}, len(one.ranks) + one.absent
        if len(kinds) != 1 or not used:
            continue  # no list, or lists for single ranks
        devices = {device[0]: device for device in kinds.pop()}
        most = gpus * (machine.port_nics if machine and machine.gpus == gpus else 1)
        if not used.keys() <= devices.keys() or len(devices) > most:
            continue
        links = {devices[index][-1] for index in used}
        names = {devices[index][1] for index in used}
        unused = {
            index: device[1]
            for index, device in devices.items()
            if index not in used and device[-1] in links and device[1] not in names
        }
        # A comparable host uses these NICs, the machine type has that many for NCCL or for a port, or there is one for
        # each of at least four GPUs, but all ranks in the log use the same one.
        ports, shared = len(unused) + len(used), _shared_nics(facts).get(name)
        is_alone = shared is not None and shared.ranks == one.ranks
        meant = (
            any(unused.keys() <= nics for nics in usual.get(one.alike, ()))
            or (machine is not None and (machine.nics or 0) >= ports and machine.gpus == gpus)
            or gpus < ports <= most
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


def ib_disabled_by_env(facts: Facts) -> Iterator[Hit]:
    """Find settings by effect: they matter where hosts use TCP; EFA and other plugins ignore NCCL_IB_DISABLE."""
    settings = networks.settings_without_ib(facts)
    if not settings:
        return
    network = facts.platform.network if facts.platform else None
    by_plugin = bool(networks.efa_hints(facts)) if network is None else network not in ("ib", "roce")
    slow = networks.tcp_paths(facts).where(lambda _: not by_plugin)
    hardware = bool(networks.ib_hints(facts)) or network in ("ib", "roce")
    ipoib = [interface.notice for interface in networks.listed_interfaces(facts) if interface.name.startswith("ib")]
    proved = [*networks.ib_cards(facts), *first_evidence(ipoib[:2])]
    lines = evidence_of_settings(settings)
    if (hardware or proved) and not (by_plugin or facts.job.paths or networks.is_on_one_host(facts)):
        named = {"cards": True, "sure": (proved or network in ("ib", "roce")) and facts.spans_hosts()}
        yield Hit([], named, evidence=[*lines, *(proved or networks.ib_hints(facts))], settings=settings)
        return
    # From 2.29 on, GPU-initiated networking requests InfiniBand, which was never loaded.
    warned = facts.notices("nccl/library-not-initialized")
    warned = [one for one in warned if (one.location or "").startswith("misc/ibvwrap.cc")]
    shown = [*lines, *first_evidence(warned), *slow.first_lines()[:2]]
    named = {"by plugin": by_plugin, "hardware": hardware}
    yield Hit([], named, None, slow.hosts() or None, shown, slow, settings=settings)


def ib_gid_index(facts: Facts) -> Iterator[Hit]:
    """Find queue pairs that cannot reach their peer; InfiniBand uses LIDs instead of the GID index."""
    calls = facts.notices("nccl/ib-call-failed")
    failed = [n for n in calls if value(n, "name") == "query_gid" and value(n, "error") not in transfers.REFUSED_CALLS]
    failed += [*_find_unconnected(facts), *facts.errors_of_rule("ib-gid-index")]
    lists, own_hosts = networks.card_lists(facts), hosts_in(failed)
    links = {str(card[-1]) for one in lists if not own_hosts.isdisjoint(one.hosts) for card in networks.cards_of(one)}
    if not failed or links == {"IB"}:
        return
    chosen = [setting for setting in facts.user_settings("NCCL_IB_GID_INDEX") if setting.value != "-1"]
    own = facts.notices("mooncake/mooncake-device")  # a NIC of another library, with its address
    gids = [(str(value(n, "local_gid")), str(value(n, "remote_gid"))) for n in failed if value(n, "local_gid")]
    both = value(failed[0], "local_gid") and value(failed[0], "remote_gid")
    named = {
        "error": value(failed[0], "error"),
        "both": both,
        "chosen": chosen,
        "known": links,  # else, without addresses, the card may be InfiniBand
        "link-local card": any(str(value(n, "local_gid")).startswith("fe:80:") for n in own),
        "link-local": any(gid == "::" or gid.startswith("fe80:") for pair in gids for gid in pair),
        "of two families": any(one.startswith("::ffff:") != peer.startswith("::ffff:") for one, peer in gids),
    }
    yield Hit(failed, named, evidence=[*failed, *own, *chosen])


def _find_unconnected(facts: Facts) -> list[Notice]:
    """Return the queue pairs that a NIC refuses to connect to their peer."""
    calls = facts.notices("nccl/ib-call-failed")
    # The second is the error of an empty row of the GID table.
    unreachable = ("Connection timed out", "No route to host", "Network is unreachable")
    errors = ("Invalid argument", "No data available", *unreachable)
    tried = [*facts.notices("nccl/ib-modify-qp-failed"), *(one for one in calls if value(one, "name") == "modify_qp")]
    known = [one for one in tried if value(one, "to_state") in (None, "RTR") and value(one, "local_gid") != "N/A"]
    return [one for one in known if str(value(one, "error")).startswith(errors)]  # markup may follow


_BOTH = {"IB", "RoCE"}


def ib_mixed_link_layer(facts: Facts) -> Iterator[Hit]:
    """Find connections that fail; else whether traffic uses ports of both kinds."""
    clashes = facts.notices("nccl/ib-link-layer-mixed", "nccl/ib-devices-incompatible")
    # NCCL continues and uses the ports separately.
    unmerged = [notice for notice in clashes if value(notice, "__step") == "merge"]
    failed = [notice for notice in clashes if notice not in unmerged]
    lists = [n for n in networks.card_lists(facts) if set(_links(n).values()) >= _BOTH]
    kinds = {name: link for notice in lists for name, link in _links(notice).items()}
    paths = facts.inter_host_net_paths().where(lambda kind: kind.nic in kinds)
    used = sorted({kind.nic for kind in paths.kinds if kind.nic})
    both = {kinds[nic] for nic in used} == _BOTH
    notices = [*failed, *unmerged, *facts.notices("nccl/ib-merge-link-layer")]
    if not notices and not paths:
        yield from _find_apart(facts)
        return
    notices += lists
    named = {"failed": failed, "unlisted": not lists, "both": both, "used": [f"{nic} ({kinds[nic]})" for nic in used]}
    ranks = ranks_in(failed) or (paths.ends() if both else ranks_in(notices))
    yield Hit(notices, named, ranks, hosts_in(notices), [*notices[:3], *paths.first_lines()[:2]])


def _find_apart(facts: Facts) -> Iterator[Hit]:
    """Find hosts that list only InfiniBand ports while others list only RoCE ports, before hosts connect."""
    lists = networks.card_lists(facts)
    kinds = group_sets((host, link) for notice in lists for link in _links(notice).values() for host in notice.hosts)
    one_kind = {kind: sorted(host for host, links in kinds.items() if links == {kind}) for kind in sorted(_BOTH)}
    if all(one_kind.values()) and not facts.paths(transport="NET"):
        words = (
            f"{some_names(some)} {conjugate(len(some), 'list')} only {kind} ports" for kind, some in one_kind.items()
        )
        first = (next(one for one in lists if some[0] in one.hosts) for some in one_kind.values())
        refused = _find_unconnected(facts)[:1]
        named = {"apart": "; ".join(words), "refused": refused}
        yield Hit(refused, named, ranks_in(lists), kinds, [*first_evidence(refused), *first])


def _links(notice: Notice) -> dict[str, str]:
    """Return the kind of link of each InfiniBand or RoCE device in a list."""
    return {str(card[1]): str(card[-1]) for card in networks.cards_of(notice)}


def ib_timeout_err12(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the first failed transfers; where failover took over, NCCL continues and it is a warning."""
    late = transfers.echoes_of_another(facts)
    yield Effects(late)
    unanswered = [notice for notice in facts.completions(transfers.UNANSWERED) if notice not in late]
    lost = facts.notices("nccl/ib-error-fatal", "nccl/ib-failover-impossible")
    moved = {one for notice in facts.notices("nccl/ib-port-failed") for one in notice.processes if not lost}
    survived = [notice for notice in unanswered if moved and moved.issuperset(notice.processes)]
    failed = [notice for notice in unanswered if notice not in survived]
    if not facts.completions(transfers.UNANSWERED):
        resilient = facts.notices("nccl/ib-resilient-completion-error")
        survived = [notice for notice in resilient if value(notice, "status") == transfers.UNANSWERED]
    if not (failed or survived):
        return
    notices, silent = [*failed, *survived], transfers.silent_peers(facts, failed)
    if len(silent) > 1 and transfers.find_hub(facts, failed):
        silent = set()  # the NIC of the host that reports
    waits = [one for one in facts.user_settings("NCCL_IB_TIMEOUT") if one.value.isdigit()]
    short = [setting for setting in waits if 0 < int(setting.value) < 18]  # the default from 2.14 on; 20 from 2.23 on
    chosen = [*short, *(one for one in facts.user_settings("NCCL_IB_GID_INDEX") if one.value != "-1")]
    cards = {str(card) for notice in notices if (card := value(notice, "device"))}
    peers = {str(peer).partition("<")[0] for notice in notices if (peer := value(notice, "peer"))}
    common = [f"{what} {list_words(ends)}" for what, ends in (("card", cards), ("peer", peers)) if len(ends) == 1]
    named = {
        "common": " and ".join(common),
        "several": len(notices) > 1,
        "silent": silent,
        "chosen": chosen,
        "survived": not (failed or lost),
        "refused by others": facts.completions(*transfers.OTHER_ROOTS),
    }
    ranks = {rank for host in facts.job.hosts if host.name in silent for rank in host.ranks}
    devices = {str(value(notice, "device")) for notice in failed}
    on_rails = {  # those that use the NICs of these names, the rails of the reporters
        path.dst
        for path in facts.inter_host_rdma_paths()
        if path.dst in ranks and any(link.receive and link.receive.nic in devices for link in path.links)
    }
    yield Hit(notices, named, on_rails or ranks or None, silent or None, [*[*notices, *lost][:4], *chosen])


def socket_instead_of_ib(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths if some rank lists a NIC or the platform has them; before there are paths, the signs of them."""
    paths = networks.tcp_paths(facts)
    cards = networks.ib_cards(facts)
    verbs = networks.lacking_verbs(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    if networks.efa_hints(facts) and not expected:
        return
    unusable = facts.notices("nccl/ib-device-not-usable")
    without = networks.without_cards(facts)
    listed = [] if cards else facts.user_settings("NCCL_IB_HCA")
    named: dict[str, object] = {
        "without": hosts_in(without),
        "verbs": verbs,
        "named": [] if verbs else listed,
        "unusable": unusable[0].message if unusable else "",
        "listed": listed,
        "excluded": all(one.value.startswith("^") for one in listed),
    }
    hints = networks.ib_hints(facts)
    if paths and (expected or hints):
        devices = facts.with_event(NetDevices, lambda event: bool(event.devices))
        off = facts.enabled_settings("NCCL_IB_DISABLE")
        named |= {"disabled": off, "shown": hints, "certain": expected and off, "doubtful": not (expected or devices)}
        shown = hints[: 1 if without else 3]
        yield Hit(named=named, evidence=[*paths.first_lines()[:2], *without[:1], *shown, *off], paths=paths)
    tcp = None if paths else networks.fallback(facts)
    settings = [s for s in facts.job.environment if s.name.startswith("NCCL_IB_") and s.source != "plugin"]
    named_for = networks.notices_naming(facts, networks.FOR_RDMA.match)
    wishes = [*evidence_of_settings(settings, 1), *first_evidence([*facts.notices("hpcx/hpcx-p2p-plugin"), *named_for])]
    is_wanted = bool(expected or cards or wishes)
    is_likely = is_wanted or (verbs and facts.platform is None)
    if tcp and is_likely and not networks.settings_without_ib(facts) and not networks.slingshot_signs(facts):
        signs = [*cards[:2], *first_evidence(verbs)[:1], *wishes[:1]]
        named |= {"shown": cards, "expected": expected or cards}
        yield networks.suspect(tcp, signs, named, is_wanted, expected or cards)
