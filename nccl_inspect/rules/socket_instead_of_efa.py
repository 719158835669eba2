"""Traffic between hosts over TCP although EFA was meant."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.clouds import is_ec2
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, first_said, lines_of
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import (
    dies_here,
    efa_hints,
    ib_cards,
    lacks_a_library,
    over_tcp_provider,
    plugins_off,
    sought_plugin,
    switched_off,
    tcp_paths,
    unusable_efa,
    wording,
)
from nccl_inspect.judging.networks.fallback import fallback, is_of_libfabric, is_over_tcp, tried, ways
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="socket-instead-of-efa",
    category="network",
    cloud="AWS",
    severity="error",
    title="Hosts talk over TCP sockets although EFA is there or was asked for",
    echoes=("gdr-disabled",),
    supersedes=("socket-instead-of-rdma",),
)
_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_NAMES = ("efa", "libfabric", "aws libfabric")
_INSTALL = "Put libfabric and aws-ofi-nccl of the EFA installer into the image and on LD_LIBRARY_PATH."


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge TCP paths where aws-ofi-nccl, a setting or the platform says that EFA should carry them."""
    provider = over_tcp_provider(facts)
    paths = tcp_paths(facts) | provider
    network = facts.platform.network if facts.platform else None
    expected = network == "efa"
    hints = efa_hints(facts)
    if network not in (None, "efa"):
        return  # a platform of another network leaves the judgement to its own rule
    if not paths:
        yield from _clue(facts, expected)
        return
    if not (expected or hints):
        return
    tried = [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]
    yield RULE.finding(
        f"{wording(paths)} over {listed(kind.detail for kind in paths.kinds)} instead of EFA",
        cause=_cause(facts, bool(tried), bool(provider)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confidence="certain" if expected and tried else "likely",
        evidence=[*first_lines(paths)[:2], *hints[:3]],
        paths=paths,
    )


def _clue(facts: Facts, expected: bool) -> Iterator[Finding]:
    """What suggests it before hosts talk: the plugin that did not come up, or found TCP, or a platform with EFA."""
    found = fallback(facts)
    signs, hints, refused = _signs(facts), efa_hints(facts), _refusals(facts)
    if not found or ib_cards(facts) or slingshot.signs(facts):
        return
    in_ec2 = found.is_spread and bool(found.stated) and any(map(is_ec2, found.hosts))
    known = expected or signs or hints or refused
    if not (known or (in_ec2 and not switched_off(facts))):
        return
    over_tcp_only = _tcp_provider(facts)
    was_tried = any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in facts.job.notices)
    gave_up = any(notice.production != _SEARCH_FAILED for notice in refused)
    if was_tried and not found.stated and (dies_here(facts) or not gave_up):
        return  # the log ends before the plugin has chosen a provider, or NCCL does
    yield RULE.clue(
        "libfabric runs over TCP instead of EFA" if over_tcp_only else "hosts are left with TCP instead of EFA",
        cause=_cause(facts, bool(was_tried or refused), bool(over_tcp_only)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confirm="Run 'fi_info -p efa' in the container and 'lspci | grep -i elastic' on the node: both list the NICs?",
        severity=found.severity if known else "info",
        confidence=found.confidence(bool(expected or signs or over_tcp_only or refused)),
        ranks=found.ranks,
        hosts=found.hosts,
        evidence=ways([*first_said([*over_tcp_only, *refused]), *signs, *hints], found),
    )


def _signs(facts: Facts) -> list[Evidence]:
    """What shows more than that the plugin is in the image, which it is in images for all kinds of machines."""
    asked = [s for s in facts.settings("FI_PROVIDER", "NCCL_NET") if s.value.lower() in _NAMES]
    own = [s for s in facts.job.environment if s.name.startswith("FI_EFA_") and s.source != "plugin"]
    said = [n for n in facts.job.notices if isinstance(n.event, OfiPlatform) or _is_of_efa(n)]
    on_aws = [n for n in _refusals(facts) if any(map(is_ec2, n.hosts))]
    named = [*said[:2], *on_aws[:1], *sought_plugin(facts)[:1], *unusable_efa(facts)[:1]]
    return first_said(named) + lines_of([*asked, *own], 1)


def _is_of_efa(notice: Notice) -> bool:
    """Whether libfabric itself speaks of its provider for EFA."""
    text = str(value(notice, "text"))
    return notice.production == "libfabric/libfabric-warning" and (
        value(notice, "provider") == "efa" or "provider efa" in text
    )


def _refusals(facts: Facts) -> list[Notice]:
    """Where aws-ofi-nccl says that it does not come up, and why."""
    said = [n for n in facts.job.notices if n.event and n.event.dialect == "aws-ofi-nccl"]
    reasons = [n for n in said if getattr(n.event, "tone", "") == "error" or n.production == _SEARCH_FAILED]
    broken = [*facts.plugin("NET", "load-failed"), *filter(lacks_a_library, facts.plugin("NET", "not-found"))]
    without = [notice for notice in broken if "fabric" in str(getattr(notice.event, "detail", ""))]
    return [*reasons[:2], *[*filter(is_of_libfabric, tried(facts)), *without][:1]]


def _tcp_provider(facts: Facts) -> list[Notice]:
    return [notice for notice in facts.said(OfiProvider) if is_over_tcp(notice)]


def _fixes(facts: Facts) -> list[str]:
    return [
        *(["unset NCCL_NET_PLUGIN   # first: 'none' lets NCCL look for no plugin"] if plugins_off(facts) else []),
        *([f"unset FI_PROVIDER   # {_wrong_provider(facts)} is not EFA"] if _wrong_provider(facts) else []),
        *([_INSTALL] if sought_plugin(facts) else []),
        EFA_IN_POD,
        EFA_CHECK,
        *([] if sought_plugin(facts) else [_INSTALL]),
        LOCKED_MEMORY_IN_POD,
        RDMA_IN_DOCKER,
        "NCCL_NET=Libfabric   # makes it fail early instead of falling back (until plugin 1.12: 'AWS Libfabric')",
    ]


def _wrong_provider(facts: Facts) -> str | None:
    return next((s.value for s in facts.settings("FI_PROVIDER") if s.value and "efa" not in s.value), None)


def _cause(facts: Facts, tried: bool, provider: bool) -> str:
    if other := _wrong_provider(facts):
        return f"FI_PROVIDER={other} keeps libfabric from EFA"
    if provider:
        return (
            "libfabric found no EFA provider and runs over its tcp provider: EFA is not used, although the network is "
            "called Libfabric"
        )
    if tried:
        return "aws-ofi-nccl was tried and did not come up; NCCL fell back to TCP"
    if plugins_off(facts):
        return "NCCL_NET_PLUGIN=none keeps aws-ofi-nccl out"
    if sought_plugin(facts):
        return "aws-ofi-nccl was not loaded: NCCL did not find its file in the image or on LD_LIBRARY_PATH"
    return "aws-ofi-nccl was not loaded: the pod asked for no vpc.amazonaws.com/efa, or the plugin is not in the image"
