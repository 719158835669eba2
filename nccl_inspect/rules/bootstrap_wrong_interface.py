"""Hosts use an interface that other hosts cannot reach."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    REFUSED,
    addresses,
    failed_connections,
    has_built_communicator,
    has_error,
    is_connected,
    is_single_host,
    link_local_refused,
    peer,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.networks.fabrics import card_lists
from nccl_inspect.judging.networks.interfaces import (
    Interface,
    included_names,
    is_loopback,
    is_of_one_machine,
    is_unreachable_elsewhere,
    listed_interfaces,
    same_address,
)
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed, some_names

RULE = Rule(
    name="bootstrap-wrong-interface",
    category="bootstrap",
    layer=Layer.SETTING,
    title="An interface for bootstrap or TCP traffic does not reach the other hosts",
    may_cause=("wait", "loss", "call", "stage"),
    shows=("no-interface", "not-reached", "setting"),
)
_IPV4_ONLY = "NCCL_SOCKET_FAMILY=AF_INET   # IPv4 only: link-local IPv6 addresses (fe80:) do not work between hosts"
_SHARED = "ip -br addr   # on each host, inside the container: which interface do all share?"
_DOCKER = "172.17."
"""Docker's first bridge."""
_SOCKETS = ("Socket", "FastSocket")
"""Networks that use all interfaces."""
_CONFIRM = "Run 'nc -vz <address> <port>' on another host, or check that 'Init COMPLETE' follows on all ranks."
_LOOPS = (
    "the other side sent the address of its loopback interface. NCCL skips loopback if another interface is up, unless "
    "the user's list allows it, as NCCL_SOCKET_IFNAME=^docker0 does, or matches no other"
)


class _Suspicion(NamedTuple):
    """Holds what is known about interfaces that hosts most likely do not share."""

    summary: str
    cause: str
    impact: str
    fix: list[str]
    used: list[Interface]
    failed: list[Notice]


def judge(facts: Facts) -> Results:
    """Judge addresses of failed connections, then interfaces used for bootstrap or data."""
    given_up = [*failed_connections(facts, *REFUSED, *NO_ROUTE), *link_local_refused(facts)]
    again = [] if is_connected(facts) else retried_connections(facts, *REFUSED, *NO_ROUTE)
    if lost := [notice for notice in (*given_up, *again) if _is_unroutable(facts, notice)]:
        dead = bool(facts.job.ended_by) or any(notice in given_up for notice in lost)
        yield _finding(facts, _of_addresses(facts, lost), is_dead=dead)
        return
    if is_connected(facts) or is_single_host(facts):
        return  # the interface works, or need not reach another host
    failed = [*given_up, *again]
    ended = bool(failed or facts.job.ended_by)
    for_setup = (
        []
        if has_built_communicator(facts)
        else [interface for interface in listed_interfaces(facts) if interface.for_setup]
    )
    if used := _unreachable(facts, for_setup):
        sure = ended or bool(same_address(used))
        weight = "warning" if ended or facts.spans_hosts() else "info"
        yield _finding(
            facts, _of_setup(facts, used, failed), is_dead=ended and facts.spans_hosts(), sure=sure, severity=weight
        )
    elif _may_use_tcp(facts) and (
        used := [interface for interface in listed_interfaces(facts) if interface.is_of_one_machine]
    ):
        unnamed = [notice for notice in failed if not peer(notice)]
        ended = bool(unnamed or facts.job.ended_by)
        weight = "warning" if ended or facts.spans_hosts() else "info"
        yield _finding(facts, _of_data(facts, used, unnamed), sure=ended, severity=weight)
    elif named := [] if has_built_communicator(facts) or listed_interfaces(facts) else _settings_of_one_machine(facts):
        yield _of_settings(facts, named)
    elif used := [
        interface for interface in for_setup if interface.is_ipoib and _only_connections_failed(facts, failed)
    ]:
        yield _finding(facts, _of_ipoib(used, failed, ended), sure=False, severity="warning" if ended else "info")


def _only_connections_failed(facts: Facts, failed: list[Notice]) -> bool:
    """Whether nothing but connections failed in this log."""
    return not (facts.job.failed or facts.errors(forced_ends=False)) or bool(failed)


def _is_unroutable(facts: Facts, notice: Notice) -> bool:
    """Whether a connection failed to an address that is valid only within one host or link.

    On a single host a refused loopback address belongs to a process that ended.
    """
    address = peer(notice)
    is_refused = has_error(notice, REFUSED)
    return is_unreachable_elsewhere(address) and not (
        address.startswith("127.") and is_refused and not facts.spans_hosts()
    )


def _unreachable(facts: Facts, used: list[Interface]) -> list[Interface]:
    """The interfaces that other hosts most likely cannot reach."""
    bridged = facts.spans_hosts()
    return [
        interface
        for interface in used
        if interface.is_of_one_machine or (bridged and interface.address.startswith(_DOCKER))
    ]


def _may_use_tcp(facts: Facts) -> bool:
    """Whether data goes over TCP, or may as far as the log shows."""
    if net := facts.job.network.name:
        return net in _SOCKETS
    return not (card_lists(facts) or facts.plugin("NET", "loaded"))


def _settings_of_one_machine(facts: Facts) -> list[Setting]:
    """The settings that name an interface of one machine, if no line shows which one NCCL chose."""
    return [
        setting
        for setting in facts.user_settings("NCCL_SOCKET_IFNAME")
        if any(map(is_of_one_machine, included_names(setting)))
    ]


def _of_addresses(facts: Facts, lost: list[Notice]) -> _Suspicion:
    """Return what the addresses of failed connections alone show."""
    where = addresses(lost)
    loops = any(is_loopback(peer(notice).partition("<")[0]) for notice in lost)
    used = [interface for interface in listed_interfaces(facts) if interface.is_of_one_machine or interface.is_loopback]
    return _Suspicion(
        f"ranks connect to {where}, which {'leads back to their own host' if loops else 'is valid on one link only'}"
        + (f"; they offer {_words(used)}" if used else ""),
        _LOOPS if loops else _cause(facts, used),
        "ranks cannot connect to each other: the job does not start, or fails while connecting",
        _fix(facts, used, where),
        used,
        lost,
    )


def _of_setup(facts: Facts, used: list[Interface], failed: list[Notice]) -> _Suspicion:
    return _Suspicion(
        f"bootstrap traffic uses {_words(used)}, which other hosts most likely cannot reach",
        _cause(facts, used),
        "ranks of different hosts cannot connect to each other: the job does not start",
        _fix(facts, used, _words(used)),
        used,
        failed,
    )


def _of_data(facts: Facts, used: list[Interface], failed: list[Notice]) -> _Suspicion:
    return _Suspicion(
        f"NCCL also offers {_words(used)} for TCP traffic: other hosts most likely cannot reach it",
        _cause(facts, used),
        "if hosts communicate over TCP, some connections use it: the job fails or hangs while connecting",
        _fix(facts, used, _words(used)),
        used,
        failed,
    )


def _of_ipoib(used: list[Interface], failed: list[Notice], ended: bool) -> _Suspicion:
    """IP over InfiniBand works on most clusters: it is a suspect only if ranks fail to connect."""
    return _Suspicion(
        f"bootstrap traffic uses {_words(used)}, IP over InfiniBand" + (", and does not get through" if ended else ""),
        "NCCL prefers interfaces whose names begin with 'ib'; the fabric may carry RDMA although IP is not set up "
        "between all hosts (different partition or subnet, no multicast group)",
        "ranks that cannot reach each other over it cannot build a communicator"
        if ended
        else "none if IP over InfiniBand works, as on most clusters; the log ends too early to show it",
        [CHOOSE_INTERFACE, "nc -vz <address> <port>   # of that interface, from another host: does it connect?"],
        used,
        failed,
    )


def _of_settings(facts: Facts, named: list[Setting]) -> Finding:
    return RULE.clue(
        f"{as_shell(named)} names an interface that other hosts most likely cannot reach",
        cause="the name is that of a bridge, a tunnel or one end of a container link",
        impact="if the job has several hosts, their ranks cannot connect to each other: it does not start",
        fix=[CHOOSE_INTERFACE, _SHARED],
        confirm="Check 'Bootstrap: Using' on each host, and whether 'Init COMPLETE' follows.",
        confidence="likely" if facts.spans_hosts() else "possible",
        ranks=facts.ranks_with(named),
        hosts=[host for setting in named for host in setting.hosts],
        evidence=evidence_of_settings(named),
    )


def _finding(
    facts: Facts, suspicion: _Suspicion, *, is_dead: bool = False, sure: bool = True, severity: str = "warning"
) -> Finding:
    """A finding if the log shows that ranks failed to connect over the interfaces, else a clue."""
    summary, cause, impact, fix, used, failed = suspicion
    notices = [interface.notice for interface in used] or failed
    named = facts.user_settings("NCCL_SOCKET_IFNAME")
    evidence = [
        *first_evidence(interface.notice for interface in used)[:3],
        *first_evidence(failed)[:2],
        *evidence_of_settings(named, 1),
    ]
    return RULE.finding(
        summary,
        cause=cause,
        impact=impact,
        fix=fix,
        confirm="" if is_dead else _CONFIRM,
        severity=None if is_dead else severity,
        confidence="likely" if is_dead or sure else "possible",
        ranks=ranks_in(notices),
        hosts=hosts_in(notices),
        evidence=evidence,
        fatal=is_dead,
    )


def _cause(facts: Facts, used: list[Interface]) -> str:
    named = facts.user_settings("NCCL_SOCKET_IFNAME")
    begin = f"{as_shell(named)} allows it" if named else "NCCL uses interfaces that are up, and found this one"
    for address, hosts in list(same_address(used).items())[:1]:
        return f"{begin}: {some_names(sorted(hosts))} all have the address {address}, each in its own network"
    if any(interface.address.startswith(_DOCKER) for interface in used):
        return f"{begin}: an address of a Docker bridge, which exists on one host only"
    if not used or any(interface.is_link_local for interface in used):
        return f"{begin}: a link-local address is valid on one link only, and its zone only on its own host"
    return f"{begin}: a bridge or tunnel for containers, or an address valid on one link only"


def _fix(facts: Facts, used: list[Interface], words: str) -> list[str]:
    """The steps; they name the interface to use if the log shows only one other than the unreachable ones (`used`)."""
    good = {interface.name for interface in listed_interfaces(facts)} - {interface.name for interface in used} - {"lo"}
    step = [f"NCCL_SOCKET_IFNAME='={name}'   # the other interface of this log" for name in good if len(good) == 1]
    return [*step, *([_IPV4_ONLY] if "fe80:" in words else []), CHOOSE_INTERFACE, _SHARED]


def _words(used: list[Interface]) -> str:
    return listed((interface.words for interface in used), limit=2)
