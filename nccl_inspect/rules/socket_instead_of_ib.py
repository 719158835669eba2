"""Traffic between hosts over TCP although there are InfiniBand or RoCE cards."""

from collections.abc import Iterator

from nccl_inspect.event_types import NetDevices
from nccl_inspect.impact import over_tcp
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Setting
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import (
    Facts,
    ends,
    first_lines,
    first_said,
    hosts_of,
    lines_of,
    listed,
    unset,
    words_of,
)
from nccl_inspect.rules.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.rules.socket_instead_of_rdma import (
    efa_hints,
    ib_cards,
    ib_hints,
    no_cards_on,
    tcp_paths,
    without_cards,
    wording,
)

RULE = Rule(
    name="socket-instead-of-ib",
    category="network",
    severity="error",
    title="Hosts talk over TCP sockets although InfiniBand or RoCE cards are there",
    echo_of=("ib-disabled-by-env", "mixed-networks"),
    because=("ib-bad-device", "plugin-load-failed", "plugin-not-found"),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge TCP paths where some rank lists a card, or the platform has them."""
    paths = tcp_paths(facts)
    expected = facts.platform is not None and facts.platform.network in ("ib", "roce")
    hints = ib_hints(facts)
    if not paths or not (expected or hints) or (efa_hints(facts) and not expected):
        return
    found = facts.said(NetDevices, lambda event: isinstance(event, NetDevices) and bool(event.devices))
    facts.mark(paths, RULE.name)
    off = facts.switched_on("NCCL_IB_DISABLE")
    unusable = facts.notices("ib-device-not-usable")
    cards, without = ib_cards(facts), without_cards(facts)
    named = [] if cards else facts.chosen("NCCL_IB_HCA")
    yield RULE.finding(
        f"{wording(paths)} over {listed(path.detail for path in paths)} instead of InfiniBand or RoCE",
        cause="NCCL_IB_DISABLE switches InfiniBand and RoCE off"
        if off
        else f"a card is there and cannot be used: {unusable[0].message}"
        if unusable
        else no_cards_on(without)
        if without
        else f"{words_of(named)} {_speaks(named)} cards, and NCCL found none that fits: the names differ on these "
        "hosts, device nodes or verbs libraries are missing in the container, or the hosts have no such card; "
        "ibv_devices tells"
        if named
        else "the log shows cards, and these paths do not use them; device nodes or verbs libraries are missing "
        "in the container, or NCCL_IB_HCA leaves the card out"
        if hints
        else "this machine type has cards, and NCCL found none: device nodes or verbs libraries are missing in "
        "the container",
        impact=over_tcp(facts.platform),
        fix=[*unset(off), "ibv_devinfo; ls /dev/infiniband   # inside the container: are the cards there?"]
        if off
        else [
            *(["ibv_devices   # in the container, on each host: has a card such a name?"] if named else []),
            *unset(named),
            RDMA_IN_DOCKER,
            RDMA_IN_POD,
            "apt install libibverbs1 ibverbs-providers; ibv_devinfo; ibstat   # inside the container",
        ],
        confidence="certain" if expected and off else "likely" if expected or found else "possible",
        ranks=ends(paths),
        hosts=hosts_of(paths),
        evidence=[*first_lines(paths)[:2], *first_said(without)[:1], *hints[: 1 if without else 3], *lines_of(off, 1)],
    )


def _speaks(named: list[Setting]) -> str:
    """What a setting says of the cards that it lists: with a ^ in front these are the ones not to take."""
    return "leaves out" if all(setting.value.startswith("^") for setting in named) else "names"
