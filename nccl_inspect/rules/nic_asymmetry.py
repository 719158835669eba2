"""Hosts of one job have different numbers of NICs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nccl_inspect.event.types import NetDevices, OfiProvider
from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, value
from nccl_inspect.judging.facts import hosts_with, ranks_concerned
from nccl_inspect.judging.remedies import EFA_CHECK
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="nic-asymmetry",
    category="network",
    severity="warning",
    title="Hosts of one job have different numbers of NICs",
    may_cause=("slow", "shared-nic", "idle-nic"),
    shows=("uneven-nics",),
    supersedes=("efa-nics-missing",),
)
_SEVERE = 5
"""This many times fewer NICs are an error."""
_REFUSED, _FEWER = "nccl/net-device-count-mixed", "nccl/net-device-count-low"
_CAUSE = (
    "NICs are missing on some hosts or in some pods: a port is down, the device plugin assigned fewer, or the "
    "variables that select NICs differ"
)
_SLOWEST = "the ring is as fast as its slowest host: NICs of the others are partly idle"
_FIX = (
    "kubectl describe pod <pod> | grep -A4 Limits   # same number of NICs (rdma/<resource>) in each pod?",
    "ibstat | grep -E 'CA |State'; ls /dev/infiniband   # on the hosts with fewer NICs",
    EFA_CHECK,
    "Give all ranks the same NCCL_IB_HCA.",
    "NCCL_IGNORE_NET_MISMATCH=0   # stops such a job early (2.30.3 and later)",
)


@frozen
class _Devices(Frozen):
    """Holds what NCCL counts, and what it does if ranks have different numbers (src/init.cc)."""

    name: str
    cause: str
    stops: str
    """The impact if NCCL does not ignore it."""
    continues: str
    fix: tuple[str, ...]


_NICS = _Devices("NICs", _CAUSE, "NCCL stops with an error (NCCL_IGNORE_NET_MISMATCH=0)", _SLOWEST, _FIX)
_COLLNET = _Devices(
    "devices for in-network reduction (CollNet)",
    "the plugin for in-network reduction (SHARP) is loaded, or finds its NICs, on some ranks only",
    "NCCL stops with an error: it does not ignore this difference by default",
    "in-network reduction (CollNet) does not work between all ranks",
    (
        "ldconfig -p | grep libnccl-net; env | grep -E 'NCCL_|SHARP_'   # on all ranks: the same plugin and settings?",
        "NCCL_IGNORE_COLLNET_MISMATCH=1   # on all ranks: continues despite the difference",
    ),
)


def _devices(notice: Notice) -> _Devices:
    return _COLLNET if "CollNet" in (value(notice, "kind"), value(notice, "net")) else _NICS


@frozen
class _Counts(Frozen):
    """Holds how many NICs ranks or hosts have."""

    low: int
    high: int
    notices: list[Notice]
    ranks: set[int] | None = None
    """The ranks with fewer, where NCCL names them."""
    hosts: Mapping[str, int] = MappingProxyType({})
    """The number of each host, where hosts were compared."""
    is_refused: bool = False
    """Whether NCCL stops because of it."""
    devices: _Devices = _NICS

    @property
    def by_host(self) -> str:
        """The number of each host in words."""
        return listed(f"{host} {self.hosts[host]}" for host in self.hosts)


_MOST_NICS = 1024
"""More than a host can have: a larger number is damaged, and not counted."""


def judge(facts: Facts) -> Results:
    """Judge NCCL's own lines (2.30.3 and later), else the NIC lists of hosts with equally many ranks."""
    if stated := _stated(facts):
        yield _finding(facts, stated, "certain")
    elif notices := facts.errors_of_rule(RULE.name):
        yield _of_one_side(facts, notices)
    elif compared := _compared(facts):
        shown = any(kind.net != "Socket" for kind in facts.inter_host_net_paths().kinds)
        yield _finding(facts, compared, "likely") if shown else _clue(compared)


def _stated(facts: Facts) -> _Counts | None:
    """The numbers that rank 0 prints after it has compared all ranks; a line for each rank with fewer comes first."""
    compared = facts.notices(_REFUSED, "nccl/net-device-mismatch")
    if not compared:
        return None
    compared.sort(key=lambda notice: notice.production != _REFUSED)
    devices = _devices(compared[0])
    compared = [notice for notice in compared if _devices(notice) is devices]
    fewer = [notice for notice in facts.notices(_FEWER) if _devices(notice) is devices]
    low, high = min(value(n, "min") for n in compared), max(value(n, "max") for n in compared)
    is_refused = compared[0].production == _REFUSED
    return _Counts(low, high, [*compared, *fewer], _named(facts, fewer), is_refused=is_refused, devices=devices)


def _compared(facts: Facts) -> _Counts | None:
    """The NIC lists of hosts that should have equally many; half a node has half its NICs, which is normal."""
    if len(facts.settings("NCCL_IB_HCA")) > 1 or _over_tcp(facts):
        return None
    nics = _nics(facts)
    counts = {host: len(nics[host]) for host in sorted(nics, key=lambda host: len(nics[host]))}
    peers = [host for host in facts.job.hosts if host.name in nics]
    if len(set(counts.values())) < 2 or len({len(host.ranks) for host in peers}) != 1 or _some_are_left_out(facts):
        return None
    low, *_, high = counts.values()
    if _is_odd_one(len(peers[0].ranks) or _usual(low), low, high):
        return None
    ordered = list(counts)
    lines = [notice for host in (*ordered[:2], ordered[-1]) for notice in list(nics[host].values())[:1]]
    return _Counts(low, high, lines, hosts=counts)


def _named(facts: Facts, fewer: list[Notice]) -> set[int] | None:
    """The ranks with fewer NICs, which rank 0 names."""
    return ranks_concerned(facts, fewer, "rank") if fewer else None


def _of_one_side(facts: Facts, notices: list[Notice]) -> Finding:
    """The lines about ranks with fewer NICs, without the line that compares all."""
    ranks, devices = _named(facts, notices), _devices(notices[0])
    return RULE.clue(
        f"ranks do not have the same number of {devices.name}: {notices[0].message}",
        cause=devices.cause,
        impact="connections use the NICs that both sides have: the slowest rank sets the pace, or the setup fails"
        if devices is _NICS
        else devices.continues,
        fix=[
            "kubectl describe pod <pod> | grep -A4 Limits   # same number of NICs (rdma/<resource>) in each pod?",
            "ibstat | grep -E 'CA |State'; ls /dev/infiniband   # on all hosts",
            EFA_CHECK,
        ]
        if devices is _NICS
        else devices.fix,
        confirm="Compare the NICs that each rank lists (NET/IB : Using …, Selected provider …).",
        notices=notices,
        ranks=ranks,
        hosts=_hosts(facts, ranks),
        explains_errors=notices,
    )


def _clue(counts: _Counts) -> Finding:
    """The NIC lists alone, without paths between the hosts in the log."""
    return RULE.clue(
        f"hosts of one job list between {counts.low} and {counts.high} NICs: {counts.by_host}",
        cause=_CAUSE,
        impact=_SLOWEST,
        fix=_FIX,
        confirm="Run ibstat on a host with fewer NICs: are all ports listed, with state Active?",
        notices=counts.notices,
    )


def _finding(facts: Facts, counts: _Counts, confidence: str) -> Finding:
    devices = counts.devices
    is_severe = devices is _NICS and counts.high >= _SEVERE * max(counts.low, 1)
    by_host = f": {counts.by_host}" if counts.hosts else ""
    return RULE.finding(
        f"ranks see between {counts.low} and {counts.high} {devices.name}{by_host}",
        cause=devices.cause,
        impact=devices.stops if counts.is_refused else devices.continues,
        fix=devices.fix,
        severity="error" if counts.is_refused or is_severe else "warning",
        confidence=confidence,
        notices=counts.notices,
        ranks=counts.ranks,
        hosts=_hosts(facts, counts.ranks),
        fatal=counts.is_refused,
    )


def _hosts(facts: Facts, ranks: set[int] | None) -> list[str] | None:
    """The hosts of ranks that NCCL names: the lines are printed elsewhere."""
    return None if ranks is None else hosts_with(facts.job, ranks)


def _over_tcp(facts: Facts) -> bool:
    """Whether hosts use TCP, as far as the log shows: then their NICs do not matter."""
    nets = {kind.net for kind in facts.inter_host_net_paths().kinds} or {
        net for c in facts.job.communicators for net in c.networks
    }
    return bool(nets) and nets == {"Socket"}


def _nics(facts: Facts) -> dict[str, dict[object, Notice]]:
    """The NICs of each host with a line that names them: those of all its ranks, as each may have its own.

    A link layer that only some hosts have is left out. Of EFA devices the plugin prints only the number.
    """
    lists = [notice for notice in facts.job.notices if _cards(notice)]
    kinds = [{device[-1] for device in _cards(notice)} for notice in lists]
    common = set.intersection(*kinds) if kinds else set()
    nics: dict[str, dict[object, Notice]] = {}
    for notice in lists or facts.with_event(
        OfiProvider, lambda event: event.provider == "efa" and event.nics is not None and event.nics <= _MOST_NICS
    ):
        number = getattr(notice.event, "nics", None) or 0
        names = [d[1:3] for d in _cards(notice) if not common or d[-1] in common] or [
            (index,) for index in range(number)
        ]
        for host in notice.hosts:
            of_host = nics.setdefault(host, {})
            for name in names:
                of_host.setdefault(name, notice)
    return nics


def _some_are_left_out(facts: Facts) -> bool:
    """Whether ranks of a host list different NICs, and hosts show more or fewer ranks: each rank has its own NICs."""
    lists: dict[str, set[object]] = {}
    ranks: dict[str, set[object]] = {}
    for notice in facts.job.notices:
        if cards := _cards(notice):
            for process in notice.processes:
                lists.setdefault(process.host, set()).add(tuple(device[1:3] for device in cards))
                ranks.setdefault(process.host, set()).add(process)
    return any(len(members) > 1 for members in lists.values()) and len({len(members) for members in ranks.values()}) > 1


def _cards(notice: Notice) -> tuple[tuple[object, ...], ...]:
    event = notice.event
    return event.devices if isinstance(event, NetDevices) and event.net == "IB" else ()


def _usual(nics: int) -> int:
    """Return how many ranks a host may have where the log has none: machines have 1, 2, 4 or 8 NICs for their GPUs."""
    return nics if nics.bit_count() == 1 else 0


def _is_odd_one(ranks: int, low: int, high: int) -> bool:
    """Whether the hosts with fewer NICs have all those for their GPUs, and the others extra ones for storage."""
    return ranks > 0 and low >= ranks and low % ranks == 0 and high < low + ranks
