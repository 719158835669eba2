"""A NIC reports that its port went down or that it failed."""

from __future__ import annotations

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="ib-async-event",
    category="network",
    layer=Layer.HARDWARE,
    severity="warning",
    title="A NIC reports an event: port down, new GIDs, or a fatal error",
    may_cause=("slow", "lost-transfer", "uneven-nics"),
    local=True,
)
_FATAL = ("catastrophic", "access violation", "invalid request", "CQ error", "fatal")
_PORT_DOWN = ("port error",)
_NEW_GIDS = ("GID table change",)
_EVERYDAY = ("last WQE reached", "communication established", "send queue drained")
"""Routine events of a connection, which releases before 2.23 also print as warnings."""


@frozen
class _Events(Frozen):
    """Holds what NICs report, by kind."""

    fatal: list[Notice]
    down: list[Notice]
    """The link went down or changed its speed."""
    gids: list[Notice]
    """The addresses of the port changed."""
    other: list[Notice]

    @property
    def worth_reading(self) -> list[Notice]:
        """All of a known kind, else the others."""
        return [*self.fatal, *self.down, *self.gids] or self.other


def judge(facts: Facts) -> Results:
    """Judge by the kind of event, and whether transfers failed afterwards."""
    events = _events(facts)
    notices = events.worth_reading
    if not notices:
        return
    outcome = _outcome(events, has_failures=facts.job.failed or bool(facts.completions(5, 12)))
    ports = listed(str(card) for notice in notices if (card := value(notice, "device") or value(notice, "name")))
    yield RULE.finding(
        f"{ports or 'a NIC'} reports: {listed(_event(notice) for notice in notices)}",
        cause=_cause(events),
        impact=outcome.impact,
        fix=[
            "ibstat; mlxlink -d <device> -m -e; dmesg -T | grep -i mlx5   # on the host named here",
            "perfquery -x   # InfiniBand; also check the log of the subnet manager",
            "ethtool -S <netdev>   # RoCE; who changed addresses (NetworkManager, DHCP)?",
        ],
        severity=outcome.severity,
        notices=notices,
        evidence=first_evidence([*notices, *facts.notices("nccl/ib-fatal-error")]),
        fatal=outcome.is_fatal,
    )


def _events(facts: Facts) -> _Events:
    plain = facts.notices("nccl/ib-async-event", "nccl/ib-async-error-event")
    return _Events(
        fatal=[*facts.notices("nccl/ib-async-fatal-event"), *_of_kind(plain, _FATAL)],
        down=[*_of_kind(plain, _PORT_DOWN), *facts.notices("nccl/ib-speed-change")],
        gids=[*_of_kind(plain, _NEW_GIDS), *facts.notices("nccl/ib-gid-table-changed")],
        other=[notice for notice in plain if not any(word in _event(notice) for word in _EVERYDAY)],
    )


def _outcome(events: _Events, *, has_failures: bool) -> Outcome:
    if events.fatal:
        return Outcome("error", "the communicators on this card are lost", is_fatal=True)
    if has_failures:
        severity = "error" if events.down else "warning" if events.gids else "info"
        return Outcome(severity, "transfers failed at about the same time")
    if events.down:
        wait = "transfers wait until the link is back (30 s by default, 7.5 s before 2.23: NCCL_IB_TIMEOUT)"
        return Outcome("warning", f"{wait}, then the job continues")
    return Outcome("info", "none in this log")


def _cause(events: _Events) -> str:
    if events.fatal:
        return "the card reports an error of its own or of a connection: hardware, firmware, or unreachable memory"
    if events.down:
        return "the link went down or changed its speed: cable, transceiver, switch port, or maintenance"
    if events.gids:
        return "the addresses of the card changed: an interface was reconfigured while NCCL ran"
    return "the subnet manager or the driver reports a change; connections continue"


def _event(notice: Notice) -> str:
    if event := value(notice, "event"):
        return str(event)
    return notice.message.partition(" : ")[2] or notice.message


def _of_kind(notices: list[Notice], words: tuple[str, ...]) -> list[Notice]:
    return [notice for notice in notices if any(word in _event(notice) for word in words)]
