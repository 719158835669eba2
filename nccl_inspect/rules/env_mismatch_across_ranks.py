"""A variable that must be the same on all ranks differs, or reaches only some ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
from nccl_inspect.judging.engine import Facts, Notice, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Setting

_SHOWN = 8
"""Limit of values in the report: there are thousands if each rank has its own."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find values that differ, and variables that only some of the ranks that came equally far print."""
    for agreement in AGREEMENTS:
        values = facts.settings(agreement.name)
        outliers = values and (_minority(agreement, values) or _on_some_ranks(facts, agreement, values))
        if not outliers:
            continue
        joined = _are_connected(facts, outliers)
        values, outliers = with_own_ranks(facts, values), with_own_ranks(facts, outliers)
        odd = {rank for setting in outliers for rank in setting.ranks or ()}
        errors = errors_of(facts, agreement.effect) or crashes_of(facts, agreement.effect, odd)
        if errors:
            yield _find(facts, agreement, values, outliers, "errors", errors)
        elif agreement.on_host and not agreement.is_choice and len(values) == 1 and joined:
            continue  # p2p-disabled-by-env reports its cost
        elif not agreement.is_choice or facts.job.failed or facts.errors(forced_ends=False):
            yield _find(facts, agreement, values, outliers, "harmful")
        elif len(values) == 1 or joined:
            yield _find(facts, agreement, values, outliers, "harmless" if joined else "harmful")
        else:
            yield _find(facts, agreement, values, outliers, "choice")


def _find(
    facts: Facts,
    agreement: Agreement,
    values: list[Setting],
    outliers: list[Setting],
    what: str,
    errors: list[Notice] | None = None,
) -> Hit:
    alone = values if len(values) == 1 else []
    others = ranks_without(facts, agreement, alone[0]) if alone else set[int]()
    ranks = {rank for setting in outliers for rank in setting.ranks or ()}
    named = {
        "variable": agreement.name,
        "values": "; ".join(f"{setting.value} on {owners(setting)}" for setting in values[:_SHOWN]),
        "more": max(len(values) - _SHOWN, 0),
        "alone": alone,
        "names": " ".join(alone[0].names) if alone else "",
        "owners": owners(alone[0]) if alone else "",
        "few": alone and (alone[0].ranks is None or not others or len(alone[0].ranks) <= len(others)),
        "others": others,
        "effect": agreement.effect.words if errors and agreement.effect else "",
    }
    lines = evidence_of_settings(values[:_SHOWN])
    return Hit(
        [],
        named,
        (what,),
        ranks=others if alone and 0 < len(others) < len(ranks) else ranks,
        hosts={host for setting in outliers for host in setting.hosts},
        evidence=[*lines[:3], *first_evidence(errors)[:2]] if errors else lines,
    )


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
