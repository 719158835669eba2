"""No network interface for bootstrap traffic."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, hosts_in, ranks_in
from nccl_inspect.judging.networks.interfaces import included_names, listed_interfaces, without_family
from nccl_inspect.judging.remedies import CHOOSE_INTERFACE
from nccl_inspect.model.job import Setting
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranks_word, some_names

RULE = Rule(
    name="bootstrap-no-interface",
    category="bootstrap",
    title="A rank finds no network interface for bootstrap",
    may_cause=("wait", "loss", "call", "stage", "resource"),
    shows=("no-interface", "not-named", "setting"),
    local=True,
)

_NETWORK = "--network=host   # option of docker run; for a single host: NCCL_SOCKET_IFNAME=lo"
_INTERFACES = "ip -br addr   # on that host, inside the container: which interfaces have an address?"


def _unmatched_settings(facts: Facts) -> list[Setting]:
    """Settings that match no interface listed for their host, of processes that print none themselves."""
    listed: dict[str, set[str]] = {}
    choosers = set()
    for interface in listed_interfaces(facts):
        choosers.update(interface.notice.processes)
        for host in interface.notice.hosts:
            listed.setdefault(host, set()).add(interface.name)
    return [
        setting
        for setting in facts.user_settings("NCCL_SOCKET_IFNAME")
        if (names := included_names(setting))
        and choosers.isdisjoint(setting.processes)
        and any(listed.get(host) for host in setting.hosts)
        and not any(name.startswith(tuple(names)) for host in setting.hosts for name in listed.get(host, ()))
    ]


def _settings_without_interface(facts: Facts) -> list[Setting]:
    """Settings that name interfaces, of processes that print none."""
    choosers = {process for interface in listed_interfaces(facts) for process in interface.notice.processes}
    named = facts.user_settings("NCCL_SOCKET_IFNAME")
    return [setting for setting in named if included_names(setting) and choosers.isdisjoint(setting.processes)]


def _clue(facts: Facts, named: list[Setting], garbled: Sequence[Notice] = ()) -> Finding:
    """The clue that a setting may match nothing, by the host's interfaces or by an invalid address."""
    return RULE.clue(
        f"{as_shell(named)} may match no interface: a rank sent an invalid address"
        if garbled
        else f"{as_shell(named)} matches no interface that the log lists for that host",
        cause="a name without '=' is a prefix: no interface begins with it, or none of those is up",
        impact="a rank that finds no interface stops, and all others wait for it",
        fix=[_INTERFACES, CHOOSE_INTERFACE],
        confirm="Look for 'no socket interface found' or 'Bootstrap: Using' from these processes.",
        confidence="possible",
        ranks=facts.ranks_with(named),
        hosts=[host for setting in named for host in setting.hosts],
        evidence=[*evidence_of_settings(named), *first_evidence(garbled)],
    )


@frozen
class _Missing(Frozen):
    """Processes that found no interface."""

    notices: list[Notice]
    is_stated: bool
    """Whether they say so; else they requested a socket of no family."""
    named: list[Setting]
    """Their settings that choose interfaces."""


def judge(facts: Facts) -> Results:
    """Judge the warning of the rank itself; one of NET/Socket counts only if nothing connected in the end."""
    if missing := _missing(facts):
        yield _finding(missing)
    elif named := _unmatched_settings(facts):
        yield _clue(facts, named)
    elif (garbled := facts.with_role("garbled-address")) and (named := _settings_without_interface(facts)):
        yield _clue(facts, named, garbled)


def _missing(facts: Facts) -> _Missing | None:
    stated = facts.notices("nccl/bootstrap-no-interface")
    if not facts.job.paths:
        stated = [*stated, *facts.errors_of_rule(RULE.name)]
    notices = stated or without_family(facts)
    where = {process for notice in notices for process in notice.processes}
    named = [setting for setting in facts.settings("NCCL_SOCKET_IFNAME") if where & set(setting.processes)]
    return _Missing(notices, bool(stated), named) if notices else None


def _finding(missing: _Missing) -> Finding:
    ranks, hosts = ranks_in(missing.notices), hosts_in(missing.notices)
    on = some_names(sorted(filter(is_named, hosts)))
    who = (ranks_word(ranks) if ranks else "a process") + (f" on {on}" if on else "")
    setting = f" with {as_shell(missing.named)}" if missing.named else ""
    return RULE.finding(
        f"{who} finds no network interface{setting}",
        cause=_cause(missing),
        impact="this rank stops, and all others wait for it during initialization, without a time limit",
        fix=[CHOOSE_INTERFACE, _INTERFACES, *([] if missing.is_stated else [_NETWORK])],
        confidence="certain" if missing.is_stated else "likely",
        ranks=ranks,
        hosts=hosts,
        evidence=[*first_evidence(missing.notices), *evidence_of_settings(missing.named)],
        fatal=True,
    )


def _cause(missing: _Missing) -> str:
    if not missing.is_stated:
        return (
            "NCCL found no IP address to listen on and requests a socket of no family: the container has no network, "
            "or a setting excludes its interfaces"
        )
    if missing.named:
        return f"{as_shell(missing.named)} matches no interface of that host or pod (a name without '=' is a prefix)"
    return (
        "the pod or host has no interface with an address except loopback and docker's, or a setting that the log does "
        "not show excludes it"
    )
