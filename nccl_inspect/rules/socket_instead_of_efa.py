"""Traffic between hosts uses TCP although EFA was intended."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.clouds import is_ec2
from nccl_inspect.judging.engine import Evidence, Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import clue_evidence, failed_plugins, fallback, is_of_libfabric, is_over_tcp
from nccl_inspect.judging.page_words import Hit

_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_NAMES = ("efa", "libfabric", "aws libfabric")


def find(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths that aws-ofi-nccl, a setting or the platform shows EFA should carry, or signs before hosts talk.

    Another rule judges platforms with another network.
    """
    provider = fabrics.over_tcp_provider(facts)
    paths = fabrics.tcp_paths(facts) | provider
    network = facts.platform.network if facts.platform else None
    hints, lines = fabrics.efa_hints(facts), _plugin_lines(facts)
    providers = facts.settings("FI_PROVIDER")
    named = {
        "words": fabrics.paths_in_words(paths) if paths else "",
        "cost": over_tcp(facts.platform),
        "off": fabrics.plugins_off(facts),
        "other": next((one.value for one in providers if one.value and "efa" not in one.value), None),
        "sought": fabrics.sought_plugin(facts),
    }
    if network not in (None, "efa"):
        return
    if not paths:
        yield from _suspect(facts, named, lines)
    elif network or hints:
        named |= {"provider": provider, "tried": lines, "certain": network and lines}
        yield Hit(named=named, evidence=[*first_lines(paths)[:2], *hints[:3]], paths=paths)


def _suspect(facts: Facts, named: dict[str, object], lines: list[Notice]) -> Iterator[Hit]:
    """Find the signs before hosts talk: a plugin that did not come up or found TCP, or a platform with EFA."""
    tcp, expected = fallback(facts), bool(facts.platform and facts.platform.network)
    signs, hints, refused = _signs(facts), fabrics.efa_hints(facts), _refusals(facts)
    if not tcp or fabrics.ib_cards(facts) or slingshot.signs(facts):
        return
    in_ec2 = tcp.is_spread and bool(tcp.stated) and any(map(is_ec2, tcp.hosts))
    points_at_efa = expected or signs or hints or refused
    gave_up = any(notice.production != _SEARCH_FAILED for notice in refused)
    if not points_at_efa and (not in_ec2 or fabrics.disabling_settings(facts)):
        return
    if lines and not tcp.stated and (fabrics.dies_silently(facts) or not gave_up):
        return  # the log ends before the plugin has chosen a provider, or NCCL ends
    over_tcp_only = [notice for notice in facts.with_event(OfiProvider) if is_over_tcp(notice)]
    is_sure = bool(expected or signs or over_tcp_only or refused)
    yield Hit(
        named=named
        | {
            "provider": over_tcp_only,
            "tried": lines or refused,
            "idle": tcp.may_be_idle or not points_at_efa,
            "doubtful": tcp.may_be_idle or not is_sure,
        },
        ranks=tcp.ranks,
        hosts=tcp.hosts,
        evidence=clue_evidence([*first_evidence([*over_tcp_only, *refused]), *signs, *hints], tcp),
    )


def _signs(facts: Facts) -> list[Evidence]:
    """Signs stronger than the plugin's presence: images for all kinds of machines contain it."""
    requests = [s for s in facts.settings("FI_PROVIDER", "NCCL_NET") if s.value.lower() in _NAMES]
    own = [s for s in facts.job.environment if s.name.startswith("FI_EFA_") and s.source != "plugin"]
    of_efa = [n for n in facts.job.notices if isinstance(n.event, OfiPlatform) or _is_of_efa(n)]
    on_aws = [n for n in _refusals(facts) if any(map(is_ec2, n.hosts))]
    notices = [*of_efa[:2], *on_aws[:1], *fabrics.sought_plugin(facts)[:1], *fabrics.unusable_efa(facts)[:1]]
    return first_evidence(notices) + evidence_of_settings([*requests, *own], 1)


def _plugin_lines(facts: Facts) -> list[Notice]:
    """The lines of aws-ofi-nccl."""
    return [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]


def _is_of_efa(notice: Notice) -> bool:
    """Whether it is a message of libfabric about its EFA provider."""
    is_named = value(notice, "provider") == "efa" or "provider efa" in str(value(notice, "text"))
    return notice.production == "libfabric/libfabric-warning" and is_named


def _refusals(facts: Facts) -> list[Notice]:
    """The lines that show that aws-ofi-nccl does not come up, and why."""
    lines = _plugin_lines(facts)
    reasons = [n for n in lines if getattr(n.event, "tone", "") == "error" or n.production == _SEARCH_FAILED]
    broken = [*facts.plugin("NET", "load-failed"), *filter(fabrics.lacks_a_library, facts.plugin("NET", "not-found"))]
    without = [notice for notice in broken if "fabric" in str(getattr(notice.event, "detail", ""))]
    return [*reasons[:2], *[*filter(is_of_libfabric, failed_plugins(facts)), *without][:1]]
