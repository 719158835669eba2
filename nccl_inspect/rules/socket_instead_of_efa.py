"""Traffic between hosts uses TCP although EFA was intended."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.clouds import is_ec2
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import clue_evidence, failed_plugins, fallback, is_of_libfabric, is_over_tcp
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="socket-instead-of-efa",
    category="network",
    cloud="AWS",
    title="Hosts talk over TCP sockets although EFA is available or was requested",
    may_cause=("no-gdr", "slow"),
    shows=("no-efa", "setting"),
    supersedes=("socket-instead-of-rdma",),
)
_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_NAMES = ("efa", "libfabric", "aws libfabric")
_INSTALL = "Put libfabric and aws-ofi-nccl of the EFA installer into the image and on LD_LIBRARY_PATH."


def judge(facts: Facts) -> Results:
    """Judge TCP paths if aws-ofi-nccl, a setting or the platform shows that EFA should carry them."""
    provider = fabrics.over_tcp_provider(facts)
    paths = fabrics.tcp_paths(facts) | provider
    network = facts.platform.network if facts.platform else None
    expected = network == "efa"
    hints = fabrics.efa_hints(facts)
    if network not in (None, "efa"):
        return  # another rule judges platforms with another network
    if not paths:
        yield from _clue(facts, expected)
        return
    if not (expected or hints):
        return
    was_tried = bool(_plugin_lines(facts))
    yield RULE.finding(
        f"{fabrics.paths_in_words(paths)} over {listed(kind.detail for kind in paths.kinds)} instead of EFA",
        cause=_cause(facts, was_tried, bool(provider)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confidence="certain" if expected and was_tried else "likely",
        evidence=[*first_lines(paths)[:2], *hints[:3]],
        paths=paths,
    )


def _clue(facts: Facts, expected: bool) -> Iterator[Finding]:
    """The signs before hosts talk: a plugin that did not come up or found TCP, or a platform with EFA."""
    tcp_fallback = fallback(facts)
    signs, hints, refused = _signs(facts), fabrics.efa_hints(facts), _refusals(facts)
    if not tcp_fallback or fabrics.ib_cards(facts) or slingshot.signs(facts):
        return
    in_ec2 = tcp_fallback.is_spread and bool(tcp_fallback.stated) and any(map(is_ec2, tcp_fallback.hosts))
    points_at_efa = expected or signs or hints or refused
    if not (points_at_efa or (in_ec2 and not fabrics.disabling_settings(facts))):
        return
    over_tcp_only = [notice for notice in facts.with_event(OfiProvider) if is_over_tcp(notice)]
    was_tried = bool(_plugin_lines(facts))
    gave_up = any(notice.production != _SEARCH_FAILED for notice in refused)
    if was_tried and not tcp_fallback.stated and (fabrics.dies_silently(facts) or not gave_up):
        return  # the log ends before the plugin has chosen a provider, or NCCL ends
    yield RULE.clue(
        "libfabric runs over TCP instead of EFA" if over_tcp_only else "hosts are left with TCP instead of EFA",
        cause=_cause(facts, bool(was_tried or refused), bool(over_tcp_only)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confirm="Run 'fi_info -p efa' in the container and 'lspci | grep -i elastic' on the node: both must list NICs.",
        severity=tcp_fallback.severity if points_at_efa else "info",
        confidence=tcp_fallback.confidence(bool(expected or signs or over_tcp_only or refused)),
        ranks=tcp_fallback.ranks,
        hosts=tcp_fallback.hosts,
        evidence=clue_evidence([*first_evidence([*over_tcp_only, *refused]), *signs, *hints], tcp_fallback),
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
    text = str(value(notice, "text"))
    return notice.production == "libfabric/libfabric-warning" and (
        value(notice, "provider") == "efa" or "provider efa" in text
    )


def _refusals(facts: Facts) -> list[Notice]:
    """The lines that show that aws-ofi-nccl does not come up, and why."""
    lines = _plugin_lines(facts)
    reasons = [n for n in lines if getattr(n.event, "tone", "") == "error" or n.production == _SEARCH_FAILED]
    broken = [*facts.plugin("NET", "load-failed"), *filter(fabrics.lacks_a_library, facts.plugin("NET", "not-found"))]
    without = [notice for notice in broken if "fabric" in str(getattr(notice.event, "detail", ""))]
    return [*reasons[:2], *[*filter(is_of_libfabric, failed_plugins(facts)), *without][:1]]


def _fixes(facts: Facts) -> list[str]:
    return [
        *(
            ["unset NCCL_NET_PLUGIN   # first: with 'none' NCCL does not look for a plugin"]
            if fabrics.plugins_off(facts)
            else []
        ),
        *([f"unset FI_PROVIDER   # {_wrong_provider(facts)} is not EFA"] if _wrong_provider(facts) else []),
        *([_INSTALL] if fabrics.sought_plugin(facts) else []),
        EFA_IN_POD,
        EFA_CHECK,
        *([] if fabrics.sought_plugin(facts) else [_INSTALL]),
        LOCKED_MEMORY_IN_POD,
        RDMA_IN_DOCKER,
        "NCCL_NET=Libfabric   # makes it fail early instead of falling back (until plugin 1.12: 'AWS Libfabric')",
    ]


def _wrong_provider(facts: Facts) -> str | None:
    return next((s.value for s in facts.settings("FI_PROVIDER") if s.value and "efa" not in s.value), None)


def _cause(facts: Facts, was_tried: bool, provider: bool) -> str:
    if other := _wrong_provider(facts):
        return f"FI_PROVIDER={other} prevents libfabric from using EFA"
    if provider:
        return (
            "libfabric found no EFA provider and runs over its tcp provider: EFA is not used, although the network is "
            "called Libfabric"
        )
    if was_tried:
        return "aws-ofi-nccl was tried and did not come up; NCCL fell back to TCP"
    if fabrics.plugins_off(facts):
        return "NCCL_NET_PLUGIN=none disables aws-ofi-nccl"
    if fabrics.sought_plugin(facts):
        return "aws-ofi-nccl was not loaded: NCCL did not find its file in the image or on LD_LIBRARY_PATH"
    return "aws-ofi-nccl was not loaded: the pod requested no vpc.amazonaws.com/efa, or the plugin is not in the image"
