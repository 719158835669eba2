"""Traffic between hosts uses TCP although the hosts have InfiniBand or RoCE NICs."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, unset_steps
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import CONFIRM, clue_evidence, fallback
from nccl_inspect.judging.networks.interfaces import is_for_rdma, notices_naming
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="socket-instead-of-ib",
    category="network",
    title="Hosts talk over TCP sockets although they have InfiniBand or RoCE NICs",
    may_cause=("slow",),
    shows=("no-ib",),
    supersedes=("socket-instead-of-rdma",),
)


def judge(facts: Facts) -> Results:
    """Judge TCP paths if some rank lists a NIC or the platform has them; before there are paths, the signs of them."""
    paths = fabrics.tcp_paths(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    if fabrics.efa_hints(facts) and not expected:
        return
    if not paths:
        yield from _clue(facts, expected)
        return
    hints = fabrics.ib_hints(facts)
    if not (expected or hints):
        return
    devices = facts.with_event(NetDevices, lambda event: bool(event.devices))
    off = facts.enabled_settings("NCCL_IB_DISABLE")
    without = fabrics.without_cards(facts)
    yield RULE.finding(
        f"{fabrics.paths_in_words(paths)} over {listed(kind.detail for kind in paths.kinds)} instead of InfiniBand or "
        "RoCE",
        cause="NCCL_IB_DISABLE disables InfiniBand and RoCE" if off else _cause(facts, bool(hints)),
        impact=over_tcp(facts.platform),
        fix=[*unset_steps(off), "ibv_devinfo; ls /dev/infiniband   # inside the container: are the NICs listed?"]
        if off
        else _fixes(facts),
        confidence="certain" if expected and off else "likely" if expected or devices else "possible",
        evidence=[
            *first_lines(paths)[:2],
            *first_evidence(without)[:1],
            *hints[: 1 if without else 3],
            *evidence_of_settings(off, 1),
        ],
        paths=paths,
    )


def _clue(facts: Facts, expected: bool) -> Iterator[Finding]:
    """The signs before hosts talk: a NIC, settings for one, or no library to look for one, while NCCL uses TCP."""
    tcp_fallback = fallback(facts)
    cards, expectations, no_verbs = fabrics.ib_cards(facts), _expectations(facts), fabrics.lacking_verbs(facts)
    is_wanted = bool(expected or cards or expectations)
    if (
        not tcp_fallback
        or not (is_wanted or (no_verbs and facts.platform is None))
        or fabrics.disabling_settings(facts)
        or slingshot.signs(facts)
    ):
        return
    yield RULE.clue(
        f"hosts are left with TCP{_instead(facts)}",
        cause=_cause(facts, bool(cards)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confirm=CONFIRM
        if expected or cards
        else "Run ibv_devices on a host, outside the container: does it list NICs?",
        severity=tcp_fallback.severity if is_wanted else "info",
        confidence=tcp_fallback.confidence(bool(expected or cards)),
        ranks=tcp_fallback.ranks,
        hosts=tcp_fallback.hosts,
        evidence=clue_evidence([*cards[:2], *first_evidence(no_verbs)[:1], *expectations[:1]], tcp_fallback),
    )


def _instead(facts: Facts) -> str:
    """The missing network, or the setting with which NCCL found no NIC."""
    named = [] if fabrics.lacking_verbs(facts) else _listed_nics(facts)
    return f": NCCL found no NIC with {as_shell(named)}" if named else " instead of InfiniBand or RoCE"


def _expectations(facts: Facts) -> list[Evidence]:
    """Signs that somebody expects RDMA NICs: settings, the plugin for them, and interfaces named after them."""
    settings = [s for s in facts.job.environment if s.name.startswith("NCCL_IB_") and s.source != "plugin"]
    return [
        *evidence_of_settings(settings, 1),
        *first_evidence([*facts.notices("hpcx/hpcx-p2p-plugin"), *notices_naming(facts, is_for_rdma)]),
    ]


def _cause(facts: Facts, hints: bool) -> str:
    unusable, without = facts.notices("nccl/ib-device-not-usable"), fabrics.without_cards(facts)
    named = _listed_nics(facts)
    if unusable:
        return f"a NIC was found but cannot be used: {unusable[0].message}"
    if without:
        return fabrics.no_cards_on(without)
    if fabrics.lacking_verbs(facts):
        return "libibverbs is not in the image, so NCCL cannot look for NICs; normal only where the hosts have none"
    if named:
        return (
            f"{as_shell(named)} {_verb(named)} NICs, but NCCL found none that matches: the names differ on these "
            "hosts, device nodes or verbs libraries are missing in the container, or the hosts have no such NIC; "
            "check with ibv_devices"
        )
    if hints:
        return (
            "the log shows NICs that NCCL does not use: device nodes or verbs libraries are missing in the container, "
            "or NCCL_IB_HCA excludes the NICs"
        )
    if facts.platform:
        return (
            "this machine type has RDMA NICs, but NCCL found none: device nodes or verbs libraries are missing in "
            "the container"
        )
    return (
        "settings of this job are for RDMA NICs, but NCCL found none: they are not in the container, or the hosts have "
        "none"
    )


def _listed_nics(facts: Facts) -> list[Setting]:
    """NCCL_IB_HCA, if the log shows no NIC."""
    return [] if fabrics.ib_cards(facts) else facts.user_settings("NCCL_IB_HCA")


def _fixes(facts: Facts) -> list[str]:
    named, no_verbs = _listed_nics(facts), fabrics.lacking_verbs(facts)
    return [
        *([fabrics.VERBS] if no_verbs else []),
        *(["ibv_devices   # in the container, on each host: does a NIC have that name?"] if named else []),
        *unset_steps(named),
        RDMA_IN_DOCKER,
        RDMA_IN_POD,
        "ibv_devinfo; ibstat   # inside the container"
        if no_verbs
        else "apt install libibverbs1 ibverbs-providers; ibv_devinfo; ibstat   # inside the container",
    ]


def _verb(named: list[Setting]) -> str:
    """Whether a setting names or excludes the NICs in its list (^)."""
    return "excludes" if all(setting.value.startswith("^") for setting in named) else "names"
