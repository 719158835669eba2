"""The pod has EFA devices but no huge pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Change
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

_PAGES = "hugepages-2Mi"
_NAMED = later(r"huge[ _-]?page", re.IGNORECASE)
_CRASHED = later(r"Bus error|SIGBUS|\bexitcode: -7\b|\bcode:? 135\b", re.IGNORECASE)
"""How the kernel ends a process that touches a huge page beyond the limit of its pod."""


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find errors that name huge pages, and bus errors, in pods that request EFA without huge pages."""
    faults = workloads.faults("hugepages-missing", findings)
    stated = [effect for effect in faults if _mentions(effect, _NAMED)]
    shown = stated or [effect for effect in faults if _mentions(effect, _CRASHED)]
    cases = workloads.cases(facts, _lacks_pages) if shown else []
    if touched := workloads.effects_on(facts, cases, shown) if cases else []:
        change = Change(("resources", "limits"), {_PAGES: "5120Mi"})
        named = {
            "pods": workloads.names_of(cases),
            "one": workloads.are_one_pod(cases),
            "steps": list(workloads.patches(cases, lambda _: [change])),
            "stated": stated,
        }
        lines = [case.line(f"{EFA}: {case.container.resources[EFA]}, no {_PAGES}") for case in cases]
        yield Hit([], named, evidence=lines, effects=touched, cases=cases)


def _lacks_pages(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.asks(EFA) and not container.asks("hugepages-")


def _mentions(effect: Finding, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for text in (effect.summary, *(line.text for line in effect.evidence)))
