"""The container may not lock memory, which NICs require to register buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.page_words import Hit

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

_ENOUGH = ("IPC_LOCK", "ALL", "CAP_IPC_LOCK")
_LARGE = 1 << 30


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find registrations that fail for lack of locked memory, and containers without the capability."""
    faults = workloads.faults("ipc-lock-missing", findings)
    shown = [effect for effect in faults if "locked memory" in effect.cause]
    for lacks in (_may_not_lock, _is_of_user) if shown else ():
        cases = workloads.cases(facts, lacks)
        if touched := workloads.effects_on(facts, cases, shown) if cases else []:
            docker, user = cases[0].pod.kind == "container", cases[0].container.user if lacks is _is_of_user else None
            lock = Change(("securityContext", "capabilities", "add"), ["IPC_LOCK"])
            changes = [lock if user is None else Change(("securityContext", "runAsUser"), 0)]
            words = "no IPC_LOCK in " + ("CapAdd, no memlock in Ulimits" if docker else "securityContext")
            yield Hit(
                named={
                    "pods": workloads.names_of(cases),
                    "one": workloads.are_one_pod(cases),
                    "docker": docker and user is None,
                    "user": user,
                    "steps": [] if docker and user is None else list(workloads.patches(cases, partial(_take, changes))),
                    "doubtful": all(effect.confidence == "possible" for effect in touched),
                },
                evidence=[
                    case.line(
                        words if user is None else f"capabilities.add: IPC_LOCK, runAsUser: {case.container.user}"
                    )
                    for case in cases
                ],
                effects=touched,
                cases=cases,
            )
            return


def _take(changes: list[Change], _: Case) -> list[Change]:
    return changes


def _may_not_lock(pod: Pod, container: Container) -> bool:
    allowed = container.privileged or not container.capabilities.isdisjoint(_ENOUGH)
    return pod.is_whole and not allowed and (container.memlock or 0) < _LARGE


def _is_of_user(pod: Pod, container: Container) -> bool:
    """Whether a non-root user does not get the added capability: containers have no ambient capabilities."""
    return pod.is_whole and not container.privileged and bool(container.user) and (container.memlock or 0) < _LARGE
