"""A variable that must be the same on all ranks differs, or reaches only some ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.agreement import (
    AGREEMENTS,
    Agreement,
    crashes_of,
    errors_of,
    owners,
    ranks_with_interface,
    ranks_without,
    with_own_ranks,
)
from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import count, ranks_word

RULE = Rule(
    name="env-mismatch-across-ranks",
    category="environment",
    title="A variable that must be the same on all ranks differs",
    may_cause=(
        "wait",
        "loss",
        "call",
        "stage",
        "resource",
        "end",
        "launcher",
        "refused",
        "no-interface",
        "no-gpu-access",
        "rings-differ",
        "topology-differs",
    ),
    shows=("setting",),
    local=True,
)

_SHOWN = 8
"""Limit of values in the report: there are thousands if each rank has its own."""


def judge(facts: Facts) -> Results:
    """Judge values that differ, and variables that only some of the ranks that came equally far print."""
    for agreement in AGREEMENTS:
        name, values = agreement.name, facts.settings(agreement.name)
        if not values:
            continue
        if outliers := _minority(agreement, values) or _on_some_ranks(facts, agreement, values):
            joined = _are_connected(facts, outliers)
            values, outliers = with_own_ranks(facts, values), with_own_ranks(facts, outliers)
            odd = {rank for setting in outliers for rank in setting.ranks or ()}
            if named := errors_of(facts, agreement.effect):
                yield _with_errors(facts, agreement, values, outliers, named)
            elif crashes := crashes_of(facts, agreement.effect, odd):
                yield _with_errors(facts, agreement, values, outliers, crashes)
            elif agreement.on_host and not agreement.is_choice and len(values) == 1 and joined:
                continue  # p2p-disabled-by-env reports its cost
            elif not agreement.is_choice or facts.job.failed or facts.errors(forced_ends=False):
                yield _finding(facts, name, values, outliers, harmless=False)
            elif len(values) == 1 or joined:
                yield _finding(facts, name, values, outliers, harmless=joined)
            else:
                yield _clue(name, values, outliers)


def _minority(agreement: Agreement, values: list[Setting]) -> list[Setting]:
    """Settings that fewer ranks have than the most common one."""
    several = _with_several(values)
    values = [setting for setting in values if not several.issuperset(setting.processes)]
    if len(values) < 2:
        return []
    if agreement.on_host:
        hosts = [host for setting in values for host in set(setting.hosts) if is_named(host)]
        if len(set(hosts)) == len(hosts):  # one value per host
            return []
    ranked = sorted(values, key=lambda setting: len(setting.processes), reverse=True)
    return ranked[1:]


def _with_several(values: list[Setting]) -> set[Process]:
    """Return the processes that print several values: one for each communicator, which says nothing of other ranks."""
    shown = Counter(process for setting in values for process in set(setting.processes))
    return {process for process, times in shown.items() if times > 1}


def _on_some_ranks(facts: Facts, agreement: Agreement, values: list[Setting]) -> list[Setting]:
    """A setting that only some ranks have; none if lines of the others may be missing."""
    setting = values[0]
    if len(values) > 1 or setting.ranks is None or any(source.damaged_lines for source in facts.job.sources):
        return []
    if agreement.name == "NCCL_SOCKET_IFNAME":
        if not (facts.job.failed or facts.errors(forced_ends=False)):
            return []  # the ranks connected, and the line of a peer may have been cut off
        return [setting] if _peers_came_up_without(facts, setting) else []
    if not agreement.echoed or not setting.ranks or facts.job.excerpt:  # lines may have been left out
        return []
    others = ranks_without(facts, agreement, setting)
    if setting.source == "plugin":  # plugins set it before NCCL announces the communicator
        others &= ranks_with_interface(facts)
    return [setting] if others else []


def _peers_came_up_without(facts: Facts, setting: Setting) -> bool:
    """Whether another process of the same host chose its interface without the setting."""
    chose = {process for notice in facts.with_event(BootstrapInterface) for process in notice.processes}
    return any(host in setting.hosts for host, *_ in chose - set(setting.processes))


def _are_connected(facts: Facts, outliers: list[Setting]) -> bool:
    """Whether the ranks connected to each other."""
    ranks = {rank for setting in outliers for rank in setting.ranks or ()}
    connected = any(comm.state == "connected" for comm in facts.job.communicators)
    return connected or (bool(ranks) and ranks <= facts.job.paths.ends())


def _with_errors(
    facts: Facts, agreement: Agreement, values: list[Setting], outliers: list[Setting], named: list[Notice]
) -> Finding:
    """The ranks disagree, and the log has errors that follow from it."""
    assert agreement.effect is not None
    finding = _finding(facts, agreement.name, values, outliers, harmless=False)
    return replace(
        finding,
        cause=f"{finding.cause}. So {agreement.effect.words}",
        impact="the connection cannot be made: the job stops",
        evidence=[*finding.evidence[:3], *first_evidence(named)[:2]],
        fatal=True,
    )


def _clue(name: str, values: list[Setting], outliers: list[Setting]) -> Finding:
    """Each rank has its own device, intended or not, and the log does not show whether they connect."""
    return RULE.clue(
        _summary(name, values),
        cause="a launcher gives each rank its own device, or the ranks got different values by mistake",
        impact="none if the ranks connect; otherwise they wait for each other",
        fix=_fixes(name),
        confirm="Look for 'Channel ... via' lines of these ranks: if they exist, the difference is harmless.",
        confidence="possible",
        ranks={rank for setting in outliers for rank in setting.ranks or ()},
        hosts={host for setting in outliers for host in setting.hosts},
        evidence=evidence_of_settings(values[:_SHOWN]),
    )


def _summary(name: str, values: list[Setting]) -> str:
    shown = "; ".join(f"{setting.value} on {owners(setting)}" for setting in values[:_SHOWN])
    shown += f"; and {count(len(values) - _SHOWN, 'other value')}" if len(values) > _SHOWN else ""
    return f"{name} differs between ranks: {shown}"


def _partial_summary(setting: Setting, others: set[int]) -> str:
    """The summary for a setting that only some ranks have."""
    words = as_shell([setting])
    few = setting.ranks is None or not others or len(setting.ranks) <= len(others)
    return f"{words} on {owners(setting)} only" if few else f"{words} on {owners(setting)}, not on {ranks_word(others)}"


def _fixes(name: str) -> list[str]:
    return [
        f"Give {name} the same value in 'env:' of all roles and in all launchers (mpirun -x, srun --export=ALL,…).",
        f"grep -s {name} /etc/nccl.conf ~/.nccl.conf; env | grep {name}   # on each host, in each container",
    ]


def _finding(facts: Facts, name: str, values: list[Setting], outliers: list[Setting], *, harmless: bool) -> Finding:
    alone = values[0] if len(values) == 1 else None
    agreement = next(candidate for candidate in AGREEMENTS if candidate.name == name)
    others = ranks_without(facts, agreement, alone) if alone else set[int]()
    ranks = {rank for setting in outliers for rank in setting.ranks or ()}
    odd = others if alone and 0 < len(others) < len(ranks) else ranks
    return RULE.finding(
        _partial_summary(alone, others) if alone else _summary(name, values),
        cause="the variable reaches only some ranks: it is set for one role, host or launcher shell only"
        if alone
        else "the ranks got different values: from their roles, their hosts or a launch script",
        impact="none in this log: the ranks connected. To choose the NIC of each GPU, and for PXN, NCCL needs to see "
        "all of them"
        if harmless
        else "ranks that disagree wait for each other (ALGO, PROTO), fail to connect (P2P, SHM, interfaces) or are "
        "limited by the slowest setting",
        fix=[
            *([f"unset {' '.join(alone.names)}   # on {owners(alone)}; or set it on all ranks"] if alone else []),
            *_fixes(name),
        ],
        severity="info" if harmless else RULE.severity,
        confidence="likely" if alone else "certain",
        ranks=odd,
        hosts={host for setting in outliers for host in setting.hosts},
        evidence=evidence_of_settings(values[:_SHOWN]),
    )
