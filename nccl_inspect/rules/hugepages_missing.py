"""The pod has EFA devices and no huge pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Change
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="hugepages-missing",
    category="network",
    severity="error",
    title="The manifest asks for EFA devices and for no huge pages",
    explains=(
        "efa-init-failed",
        "ib-memlock",
        "memory-registration-failed",
        "host-memory-exhausted",
        "process-crashed",
        "peer-death",
    ),
)
_PAGES = "hugepages-2Mi"
_NAMED = re.compile(r"huge[ _-]?page", re.IGNORECASE)
_CRASHED = re.compile(r"Bus error|SIGBUS|\bexitcode: -7\b|\bcode:? 135\b", re.IGNORECASE)
"""How the kernel ends a process that touches a huge page that its pod may not have."""


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge errors that name huge pages, and bus errors, by what the pods ask for."""
    named = [effect for effect in workloads.faults(effects) if _says(effect, _NAMED)]
    shown = named or [effect for effect in workloads.faults(effects) if _says(effect, _CRASHED)]
    found = workloads.cases(facts, _lacks_pages) if shown else []
    shown = workloads.touched(facts, found, shown)
    if not found or not shown:
        return
    yield workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'asks', 'ask')} for {EFA} and for no {_PAGES}",
        cause="libfabric keeps buffers for EFA in huge pages where the node has some; a pod that asks for none may use "
        "none, and is refused or ended by SIGBUS when it does",
        fix=[
            *workloads.patches(found, lambda _: [Change(("resources", "limits"), {_PAGES: "5120Mi"})]),
            "FI_EFA_USE_HUGE_PAGE=0   # a stop-gap: libfabric then takes ordinary pages",
        ],
        evidence=[case.line(f"{EFA}: {case.container.resources[EFA]}, no {_PAGES}") for case in found],
        confidence="certain" if named else "likely",
    )


def _lacks_pages(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.asks(EFA) and not container.asks("hugepages-")


def _says(effect: Finding, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for text in (effect.summary, *(line.text for line in effect.evidence)))
