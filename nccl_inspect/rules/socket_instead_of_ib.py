"""Traffic between hosts uses TCP although the hosts have InfiniBand or RoCE NICs."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import clue_evidence, fallback
from nccl_inspect.judging.networks.interfaces import is_for_rdma, notices_naming
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths if some rank lists a NIC or the platform has them; before there are paths, the signs of them."""
    paths, cards, verbs = fabrics.tcp_paths(facts), fabrics.ib_cards(facts), fabrics.lacking_verbs(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    if fabrics.efa_hints(facts) and not expected:
        return
    unusable, without = facts.notices("nccl/ib-device-not-usable"), fabrics.without_cards(facts)
    listed = [] if cards else facts.user_settings("NCCL_IB_HCA")
    named = {
        "words": fabrics.paths_in_words(paths) if paths else "",
        "cost": over_tcp(facts.platform),
        "unusable": unusable[0].message if unusable else "",
        "without": without and fabrics.no_cards_on(without),
        "verbs": verbs,
        "listed": listed,
        "named": [] if verbs else listed,
        "excluded": all(setting.value.startswith("^") for setting in listed),
        "machine": facts.platform,
    }
    hints = fabrics.ib_hints(facts)
    if paths and (expected or hints):
        devices = facts.with_event(NetDevices, lambda event: bool(event.devices))
        off = facts.enabled_settings("NCCL_IB_DISABLE")
        named |= {"disabled": off, "shown": hints, "certain": expected and off, "doubtful": not (expected or devices)}
        shown = [*first_evidence(without)[:1], *hints[: 1 if without else 3], *evidence_of_settings(off, 1)]
        yield Hit(named=named, evidence=[*first_lines(paths)[:2], *shown], paths=paths)
    tcp = None if paths else fallback(facts)
    settings = [s for s in facts.job.environment if s.name.startswith("NCCL_IB_") and s.source != "plugin"]
    named_for = notices_naming(facts, is_for_rdma)
    wishes = [*evidence_of_settings(settings, 1), *first_evidence([*facts.notices("hpcx/hpcx-p2p-plugin"), *named_for])]
    is_wanted = bool(expected or cards or wishes)
    is_likely = is_wanted or (verbs and facts.platform is None)
    if tcp and is_likely and not fabrics.disabling_settings(facts) and not slingshot.signs(facts):
        named |= {
            "shown": cards,
            "expected": expected or cards,
            "idle": tcp.may_be_idle or not is_wanted,
            "doubtful": tcp.may_be_idle or not (expected or cards),
        }
        signs = [*cards[:2], *first_evidence(verbs)[:1], *wishes[:1]]
        yield Hit(named=named, ranks=tcp.ranks, hosts=tcp.hosts, evidence=clue_evidence(signs, tcp))
