"""InfiniBand and RoCE."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging import networks, transfers
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.wording import conjugate, list_words, some_names


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
    lines, cost = evidence_of_settings(settings), over_tcp(facts.platform)
    if (hardware or proved) and not (by_plugin or facts.job.paths or networks.is_on_one_host(facts)):
        named = {"cards": True, "cost": cost, "sure": (proved or network in ("ib", "roce")) and facts.spans_hosts()}
        yield Hit([], named, evidence=[*lines, *(proved or networks.ib_hints(facts))], settings=settings)
        return
    # From 2.29 on, GPU-initiated networking requests InfiniBand, which was never loaded.
    warned = facts.notices("nccl/library-not-initialized")
    warned = [notice for notice in warned if (notice.location or "").startswith("misc/ibvwrap.cc")]
    yield Hit(
        [],
        {"cost": cost, "by plugin": by_plugin, "hardware": hardware},
        ranks=facts.ranks_with(settings),
        hosts=slow.hosts() or {host for setting in settings for host in setting.hosts},
        evidence=[*lines, *warned, *slow.first_lines()[:2]],
        paths=slow,
        settings=settings,
    )


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
    named = {
        "error": value(failed[0], "error"),
        "both": value(failed[0], "local_gid") and value(failed[0], "remote_gid"),
        "chosen": chosen,
        "link-local card": any(str(value(n, "local_gid")).startswith("fe:80:") for n in own),
        "link-local": any(gid == "::" or gid.startswith("fe80:") for pair in gids for gid in pair),
        "of two families": any(local.startswith("::ffff:") != remote.startswith("::ffff:") for local, remote in gids),
        "known": links,  # else, without addresses, the card may be InfiniBand
    }
    yield Hit(failed, named, evidence=[*failed, *own, *chosen])


def _find_unconnected(facts: Facts) -> list[Notice]:
    """Return the queue pairs that a NIC refuses to connect to their peer."""
    calls = facts.notices("nccl/ib-call-failed")
    # The second is the error of an empty row of the GID table.
    errors = ("Invalid argument", "No data available", "Connection timed out", "No route to host")
    return [
        notice
        for notice in (*facts.notices("nccl/ib-modify-qp-failed"), *calls)
        if (notice not in calls or value(notice, "name") == "modify_qp")
        and str(value(notice, "error")).startswith((*errors, "Network is unreachable"))  # markup may follow
        and value(notice, "to_state") in (None, "RTR")
        and value(notice, "local_gid") != "N/A"
    ]


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
    failed = [notice for notice in facts.completions(transfers.UNANSWERED) if notice not in late]
    lost = facts.notices("nccl/ib-error-fatal", "nccl/ib-failover-impossible")
    moved = {one for notice in facts.notices("nccl/ib-port-failed") for one in notice.processes if not lost}
    survived = [notice for notice in failed if moved and moved.issuperset(notice.processes)]
    failed = [notice for notice in failed if not (moved and moved.issuperset(notice.processes))]
    if not facts.completions(transfers.UNANSWERED):
        resilient = facts.notices("nccl/ib-resilient-completion-error")
        survived = [notice for notice in resilient if value(notice, "status") == transfers.UNANSWERED]
    if not (failed or survived):
        return
    notices, silent = [*failed, *survived], transfers.silent_peers(facts, failed)
    waits = [one for one in facts.user_settings("NCCL_IB_TIMEOUT") if one.value.isdigit()]
    short = [setting for setting in waits if 0 < int(setting.value) < 18]  # the default from 2.14 on; 20 from 2.23 on
    chosen = [*short, *(one for one in facts.user_settings("NCCL_IB_GID_INDEX") if one.value != "-1")]
    cards = {str(card) for notice in notices if (card := value(notice, "device"))}
    peers = {str(peer).partition("<")[0] for notice in notices if (peer := value(notice, "peer"))}
    common = [f"{what} {list_words(ends)}" for what, ends in (("card", cards), ("peer", peers)) if len(ends) == 1]
    named = {
        "common": " and ".join(common),
        "several": len(notices) > 1,
        "silent": list_words(silent),
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
    paths, cards, verbs = networks.tcp_paths(facts), networks.ib_cards(facts), networks.lacking_verbs(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    if networks.efa_hints(facts) and not expected:
        return
    unusable, without = facts.notices("nccl/ib-device-not-usable"), networks.without_cards(facts)
    listed = [] if cards else facts.user_settings("NCCL_IB_HCA")
    named = {
        "words": networks.paths_in_words(paths) if paths else "",
        "cost": over_tcp(facts.platform),
        "unusable": unusable[0].message if unusable else "",
        "without": hosts_in(without),
        "verbs": verbs,
        "listed": listed,
        "named": [] if verbs else listed,
        "excluded": all(setting.value.startswith("^") for setting in listed),
        "machine": facts.platform,
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
        named |= {
            "shown": cards,
            "expected": expected or cards,
            "idle": tcp.may_be_idle or not is_wanted,
            "doubtful": tcp.may_be_idle or not (expected or cards),
        }
        signs = [*cards[:2], *first_evidence(verbs)[:1], *wishes[:1]]
        yield Hit(named=named, ranks=tcp.ranks, hosts=tcp.hosts, evidence=networks.clue_evidence(signs, tcp))
