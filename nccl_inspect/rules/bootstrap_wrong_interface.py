"""Hosts use an interface that other hosts cannot reach."""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    REFUSED,
    addresses,
    came_up,
    connected,
    gave_up,
    is_alone,
    is_one_of,
    of_one_link,
    peer,
    retried,
)
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, lines_of, ranks_in, words_of
from nccl_inspect.judging.networks.interfaces import (
    Interface,
    included,
    is_loopback,
    is_of_one_machine,
    leads_nowhere,
    offered,
    same_address,
)
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.util.wording import listed, some_names

RULE = Rule(
    name="bootstrap-wrong-interface",
    category="bootstrap",
    severity="error",
    title="An interface for set-up or TCP traffic does not reach the other hosts",
    causes=("watchdog-*",),
    echoes=("bootstrap-connect-refused", "bootstrap-failed", "bootstrap-no-route", "hang-in-init"),
)
_IPV4_ONLY = "NCCL_SOCKET_FAMILY=AF_INET   # IPv4 only: a link-local IPv6 address (fe80:) is of no use between hosts"
_SHARED = "ip -br addr   # on each host, inside the container: which interface do all share?"
_DOCKER = "172.17."
"""What Docker takes for its first bridge."""
_SOCKETS = ("Socket", "FastSocket")
"""Networks that use all interfaces."""
_CONFIRM = "Run 'nc -vz <address> <port>' on another host, or check that 'Init COMPLETE' follows on all ranks."
_LOOPS = (
    "the other side gave the address of its loopback interface. NCCL leaves that out where another one is up, unless a "
    "list of the user lets it in, as NCCL_SOCKET_IFNAME=^docker0 does, or fits no other"
)


class _Suspicion(NamedTuple):
    """What is told of interfaces that hosts most likely do not share."""

    summary: str
    cause: str
    impact: str
    fix: list[str]
    used: list[Interface]
    failed: list[Notice]


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge addresses that connections failed to, then interfaces that ranks start with or send data over."""
    given_up = [*gave_up(facts, *REFUSED, *NO_ROUTE), *of_one_link(facts)]
    again = [] if connected(facts) else retried(facts, *REFUSED, *NO_ROUTE)
    if lost := [notice for notice in (*given_up, *again) if _is_lost(facts, notice)]:
        dead = bool(facts.job.ended_by) or any(notice in given_up for notice in lost)
        yield _told(facts, _of_addresses(facts, lost), is_dead=dead)
        return
    if connected(facts) or is_alone(facts):
        return  # it works, whatever its name is, or need not reach another host
    failed = [*given_up, *again]
    ended = bool(failed or facts.job.ended_by)
    for_setup = [] if came_up(facts) else [one for one in offered(facts) if one.for_setup]
    if used := _unreachable(facts, for_setup):
        sure = ended or bool(same_address(used))
        weight = "warning" if ended or facts.several_hosts() else "info"
        yield _told(
            facts, _of_setup(facts, used, failed), is_dead=ended and facts.several_hosts(), sure=sure, severity=weight
        )
    elif used := [one for one in offered(facts) if one.is_of_one_machine] if _may_use_tcp(facts) else []:
        unnamed = [notice for notice in failed if not peer(notice)]
        ended = bool(unnamed or facts.job.ended_by)
        weight = "warning" if ended or facts.several_hosts() else "info"
        yield _told(facts, _of_data(facts, used, unnamed), sure=ended, severity=weight)
    elif named := [] if came_up(facts) or offered(facts) else _named(facts):
        yield _of_settings(facts, named)
    elif used := [one for one in for_setup if one.is_ipoib and _is_stuck(facts, failed)]:
        yield _told(facts, _of_ipoib(used, failed, ended), sure=False, severity="warning" if ended else "info")


def _is_stuck(facts: Facts, failed: list[Notice]) -> bool:
    """Whether nothing else went wrong than connections, as far as the log goes."""
    return not (facts.job.failed or facts.failures()) or bool(failed)


def _is_lost(facts: Facts, notice: Notice) -> bool:
    """Whether a connection failed to an address that holds within one host or link.

    On a host alone a refused loopback address is that of a process that ended.
    """
    address = peer(notice)
    is_refused = is_one_of(notice, REFUSED)
    return leads_nowhere(address) and not (address.startswith("127.") and is_refused and not facts.several_hosts())


def _unreachable(facts: Facts, used: list[Interface]) -> list[Interface]:
    """Those of interfaces that other hosts most likely cannot reach."""
    bridged = facts.several_hosts()
    return [one for one in used if one.is_of_one_machine or (bridged and one.address.startswith(_DOCKER))]


def _may_use_tcp(facts: Facts) -> bool:
    """Whether data goes over TCP, or may do so as far as the log tells."""
    if net := facts.job.network.name:
        return net in _SOCKETS
    cards = facts.said(NetDevices, lambda e: isinstance(e, NetDevices) and e.net == "IB" and bool(e.devices))
    return not (cards or facts.plugin("NET", "loaded"))


def _named(facts: Facts) -> list[Setting]:
    """The settings that name an interface of one machine, where no line shows which one was taken."""
    return [one for one in facts.chosen("NCCL_SOCKET_IFNAME") if any(map(is_of_one_machine, included(one)))]


def _of_addresses(facts: Facts, lost: list[Notice]) -> _Suspicion:
    """What connections that failed tell by their addresses alone."""
    where = addresses(lost)
    loops = any(is_loopback(peer(notice).partition("<")[0]) for notice in lost)
    used = [one for one in offered(facts) if one.is_of_one_machine or one.is_loopback]
    return _Suspicion(
        f"ranks connect to {where}, which {'leads back to their own host' if loops else 'holds on one link only'}"
        + (f"; they offer {_words(used)}" if used else ""),
        _LOOPS if loops else _cause(facts, used),
        "ranks cannot connect to each other: the job does not start, or fails when it connects",
        _fix(facts, used, where),
        used,
        lost,
    )


def _of_setup(facts: Facts, used: list[Interface], failed: list[Notice]) -> _Suspicion:
    return _Suspicion(
        f"set-up traffic uses {_words(used)}, which other hosts most likely cannot reach",
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
        "where hosts talk over TCP, some of their connections go there: the job fails or hangs when it connects",
        _fix(facts, used, _words(used)),
        used,
        failed,
    )


def _of_ipoib(used: list[Interface], failed: list[Notice], ended: bool) -> _Suspicion:
    """IP over InfiniBand works on most clusters: it is a suspect where ranks do not come together."""
    return _Suspicion(
        f"set-up traffic uses {_words(used)}, IP over InfiniBand" + (", and does not get through" if ended else ""),
        "NCCL takes interfaces whose names begin with 'ib' first; the fabric may carry RDMA while IP over it is not "
        "set up between all hosts (another partition or subnet, no multicast group)",
        "ranks that cannot reach each other over it build no communicator"
        if ended
        else "none where IP over InfiniBand works, as on most clusters; the log ends before that shows",
        [CHOOSE_INTERFACE, "nc -vz <address> <port>   # of that interface, from another host: does it get through?"],
        used,
        failed,
    )


def _of_settings(facts: Facts, named: list[Setting]) -> Finding:
    return RULE.clue(
        f"{words_of(named)} names an interface that other hosts most likely cannot reach",
        cause="the name is that of a bridge, a tunnel or an end of a container link",
        impact="if the job has several hosts, ranks cannot connect to each other: it does not start",
        fix=[CHOOSE_INTERFACE, _SHARED],
        confirm="Check 'Bootstrap: Using' on each host, and whether 'Init COMPLETE' follows.",
        severity="warning",
        confidence="likely" if facts.several_hosts() else "possible",
        ranks=facts.ranks_with(named),
        hosts=[host for setting in named for host in setting.hosts],
        evidence=lines_of(named),
    )


def _told(
    facts: Facts, suspicion: _Suspicion, *, is_dead: bool = False, sure: bool = True, severity: str = "warning"
) -> Finding:
    """The suspicion as a finding where the log shows that ranks do not come together over it, else as a clue."""
    summary, cause, impact, fix, used, failed = suspicion
    said = [one.said for one in used] or failed
    named = facts.chosen("NCCL_SOCKET_IFNAME")
    evidence = [*first_said(one.said for one in used)[:3], *first_said(failed)[:2], *lines_of(named, 1)]
    ranks, hosts = ranks_in(said), hosts_in(said)
    if is_dead:
        return RULE.finding(
            summary,
            cause=cause,
            impact=impact,
            fix=fix,
            confidence="likely",
            ranks=ranks,
            hosts=hosts,
            evidence=evidence,
            fatal=True,
        )
    return RULE.clue(
        summary,
        cause=cause,
        impact=impact,
        fix=fix,
        confirm=_CONFIRM,
        severity=severity,
        confidence="likely" if sure else "possible",
        ranks=ranks,
        hosts=hosts,
        evidence=evidence,
    )


def _cause(facts: Facts, used: list[Interface]) -> str:
    named = facts.chosen("NCCL_SOCKET_IFNAME")
    begin = f"{words_of(named)} lets it in" if named else "NCCL takes the interfaces that are up, and found this one"
    for address, hosts in list(same_address(used).items())[:1]:
        return f"{begin}: {some_names(sorted(hosts))} all have the address {address}, each in a network of its own"
    if any(one.address.startswith(_DOCKER) for one in used):
        return f"{begin}: an address of a Docker bridge, which exists on one host only"
    if not used or any(one.is_link_local for one in used):
        return f"{begin}: a link-local address is valid on one link only, and its zone is that of the own host"
    return f"{begin}: a bridge or tunnel for containers, or an address that holds on one link only"


def _fix(facts: Facts, used: list[Interface], words: str) -> list[str]:
    """The steps; the interface to take is named where the log shows only one other.

    Args:
        facts: about the job.
        used: the interfaces that are no good.
        words: the addresses that are no good, in words.
    """
    good = {one.name for one in offered(facts)} - {one.name for one in used} - {"lo"}
    step = [f"NCCL_SOCKET_IFNAME='={name}'   # the other interface of this log" for name in good if len(good) == 1]
    return [*step, *([_IPV4_ONLY] if "fe80:" in words else []), CHOOSE_INTERFACE, _SHARED]


def _words(used: list[Interface]) -> str:
    return listed((one.words for one in used), limit=2)
