"""The pod has EFA devices but no huge pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Change

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule
from nccl_inspect.util.patterns import later

RULE = Rule(
    name="hugepages-missing",
    category="network",
    layer=Layer.SYSTEM,
    title="The manifest requests EFA devices but no huge pages",
    may_cause=("system", "resource", "call", "end", "no-locked-memory", "death"),
)
_PAGES = "hugepages-2Mi"
_NAMED = later(r"huge[ _-]?page", re.IGNORECASE)
_CRASHED = later(r"Bus error|SIGBUS|\bexitcode: -7\b|\bcode:? 135\b", re.IGNORECASE)
"""How the kernel ends a process that touches a huge page beyond the limit of its pod."""


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge errors that name huge pages, and bus errors, by the requests of the pods."""
    named = [effect for effect in workloads.faults(RULE, effects) if _mentions(effect, _NAMED)]
    shown = named or [effect for effect in workloads.faults(RULE, effects) if _mentions(effect, _CRASHED)]
    cases = workloads.cases(facts, _lacks_pages) if shown else []
    shown = workloads.effects_on(facts, cases, shown)
    if not cases or not shown:
        return
    yield workloads.finding_of(
        RULE,
        facts,
        cases,
        shown,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'requests', 'request')} {EFA} but no {_PAGES}",
        cause="libfabric keeps EFA buffers in huge pages where the node has some; a pod that requests none may not use "
        "them, and gets an error or SIGBUS when it does",
        fix=[
            *workloads.patches(cases, lambda _: [Change(("resources", "limits"), {_PAGES: "5120Mi"})]),
            "FI_EFA_USE_HUGE_PAGE=0   # a workaround: libfabric then uses regular pages",
        ],
        evidence=[case.line(f"{EFA}: {case.container.resources[EFA]}, no {_PAGES}") for case in cases],
        confidence="certain" if named else "likely",
    )


def _lacks_pages(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.asks(EFA) and not container.asks("hugepages-")


def _mentions(effect: Finding, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for text in (effect.summary, *(line.text for line in effect.evidence)))
