"""NCCL_IB_DISABLE or NCCL_NET=Socket keeps hosts on TCP."""

from collections.abc import Iterator

from nccl_inspect.judging.connecting import is_single_host
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks.fabrics import disabling_settings, efa_hints, ib_cards, ib_hints, tcp_paths
from nccl_inspect.judging.networks.interfaces import listed_interfaces
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find settings by effect: they matter where hosts use TCP; EFA and other plugins ignore NCCL_IB_DISABLE."""
    settings = disabling_settings(facts)
    if not settings:
        return
    network = facts.platform.network if facts.platform else None
    by_plugin = bool(efa_hints(facts)) if network is None else network not in ("ib", "roce")
    slow = tcp_paths(facts).where(lambda _: not by_plugin)
    hardware = bool(ib_hints(facts)) or network in ("ib", "roce")
    ipoib = [interface.notice for interface in listed_interfaces(facts) if interface.is_ipoib]
    proved = [*ib_cards(facts), *first_evidence(ipoib[:2])]
    lines, cost = evidence_of_settings(settings), over_tcp(facts.platform)
    if (hardware or proved) and not (by_plugin or facts.job.paths or is_single_host(facts)):
        named = {"cards": True, "cost": cost, "sure": (proved or network in ("ib", "roce")) and facts.spans_hosts()}
        yield Hit([], named, evidence=[*lines, *(proved or ib_hints(facts))], settings=settings)
        return
    # From 2.29 on, GPU-initiated networking requests InfiniBand, which was never loaded.
    warned = facts.notices("nccl/library-not-initialized")
    warned = [notice for notice in warned if (notice.location or "").startswith("misc/ibvwrap.cc")]
    yield Hit(
        [],
        {"cost": cost, "by plugin": by_plugin, "hardware": hardware},
        ranks=facts.ranks_with(settings),
        hosts=slow.hosts() or {host for setting in settings for host in setting.hosts},
        evidence=[*lines, *first_evidence(warned), *first_lines(slow)[:2]],
        paths=slow,
        settings=settings,
    )
