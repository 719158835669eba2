"""Traffic between hosts over TCP although there are InfiniBand or RoCE cards."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, first_said, lines_of, unset, words_of
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import (
    VERBS,
    efa_hints,
    ib_cards,
    ib_hints,
    lacking_verbs,
    no_cards_on,
    switched_off,
    tcp_paths,
    without_cards,
    wording,
)
from nccl_inspect.judging.networks.fallback import CONFIRM, fallback, ways
from nccl_inspect.judging.networks.interfaces import is_for_rdma, naming
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="socket-instead-of-ib",
    category="network",
    severity="error",
    title="Hosts talk over TCP sockets although InfiniBand or RoCE cards are there",
    supersedes=("socket-instead-of-rdma",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge TCP paths where some rank lists a card, or the platform has them; before there are paths, what says so."""
    paths = tcp_paths(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    if efa_hints(facts) and not expected:
        return
    if not paths:
        yield from _clue(facts, expected)
        return
    hints = ib_hints(facts)
    if not (expected or hints):
        return
    found = facts.said(NetDevices, lambda event: isinstance(event, NetDevices) and bool(event.devices))
    off = facts.switched_on("NCCL_IB_DISABLE")
    without = without_cards(facts)
    yield RULE.finding(
        f"{wording(paths)} over {listed(kind.detail for kind in paths.kinds)} instead of InfiniBand or RoCE",
        cause="NCCL_IB_DISABLE switches InfiniBand and RoCE off" if off else _cause(facts, bool(hints)),
        impact=over_tcp(facts.platform),
        fix=[*unset(off), "ibv_devinfo; ls /dev/infiniband   # inside the container: are the cards there?"]
        if off
        else _fixes(facts),
        confidence="certain" if expected and off else "likely" if expected or found else "possible",
        evidence=[*first_lines(paths)[:2], *first_said(without)[:1], *hints[: 1 if without else 3], *lines_of(off, 1)],
        paths=paths,
    )


def _clue(facts: Facts, expected: bool) -> Iterator[Finding]:
    """What suggests it before hosts talk: a card, or what somebody set for one, and NCCL that takes TCP."""
    found = fallback(facts)
    cards, meant = ib_cards(facts), _meant(facts)
    if not found or not (expected or cards or meant) or switched_off(facts) or slingshot.signs(facts):
        return
    yield RULE.clue(
        f"hosts are left with TCP{_instead(facts)}",
        cause=_cause(facts, bool(cards)),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confirm=CONFIRM
        if expected or cards
        else "Run ibv_devices on a host, outside the container: does it list cards?",
        severity=found.severity,
        confidence=found.confidence(bool(expected or cards)),
        ranks=found.ranks,
        hosts=found.hosts,
        evidence=ways([*cards[:2], *first_said(lacking_verbs(facts))[:1], *meant[:1]], found),
    )


def _instead(facts: Facts) -> str:
    """What they miss, or the setting with which they have no card."""
    named = [] if lacking_verbs(facts) else _named(facts)
    return f": NCCL found no card with {words_of(named)}" if named else " instead of InfiniBand or RoCE"


def _meant(facts: Facts) -> list[Evidence]:
    """Settings for cards, the plugin that is made for them, and interfaces named after them: somebody expects cards."""
    settings = [s for s in facts.job.environment if s.name.startswith("NCCL_IB_") and s.source != "plugin"]
    return [*lines_of(settings, 1), *first_said([*facts.notices("hpcx/hpcx-p2p-plugin"), *naming(facts, is_for_rdma)])]


def _cause(facts: Facts, hints: bool) -> str:
    unusable, without = facts.notices("nccl/ib-device-not-usable"), without_cards(facts)
    named = _named(facts)
    if unusable:
        return f"a card is there and cannot be used: {unusable[0].message}"
    if without:
        return no_cards_on(without)
    if lacking_verbs(facts):
        return "libibverbs is not in the image, so NCCL cannot look for cards"
    if named:
        return (
            f"{words_of(named)} {_speaks(named)} cards, and NCCL found none that fits: the names differ on these "
            "hosts, device nodes or verbs libraries are missing in the container, or the hosts have no such card; "
            "ibv_devices tells"
        )
    if hints:
        return (
            "the log shows cards, and NCCL does not use them; device nodes or verbs libraries are missing "
            "in the container, or NCCL_IB_HCA leaves the card out"
        )
    if facts.platform:
        return (
            "this machine type has cards, and NCCL found none: device nodes or verbs libraries are missing in "
            "the container"
        )
    return "settings of this job are for cards, and NCCL found none: they are not in the container, or not there at all"


def _named(facts: Facts) -> list[Setting]:
    """NCCL_IB_HCA, where the log shows no card."""
    return [] if ib_cards(facts) else facts.chosen("NCCL_IB_HCA")


def _fixes(facts: Facts) -> list[str]:
    named, no_verbs = _named(facts), lacking_verbs(facts)
    return [
        *([VERBS] if no_verbs else []),
        *(["ibv_devices   # in the container, on each host: has a card such a name?"] if named else []),
        *unset(named),
        RDMA_IN_DOCKER,
        RDMA_IN_POD,
        "ibv_devinfo; ibstat   # inside the container"
        if no_verbs
        else "apt install libibverbs1 ibverbs-providers; ibv_devinfo; ibstat   # inside the container",
    ]


def _speaks(named: list[Setting]) -> str:
    """What a setting says of the cards that it lists: with a ^ in front these are the ones not to take."""
    return "leaves out" if all(setting.value.startswith("^") for setting in named) else "names"
