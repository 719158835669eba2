"""The container may not lock memory, which NICs require to register buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="ipc-lock-missing",
    category="network",
    layer=Layer.SYSTEM,
    title="The manifest does not allow the container to lock memory (IPC_LOCK, memlock)",
    may_cause=("system", "resource", "call", "end", "no-locked-memory"),
)
_LOCK = "IPC_LOCK"
_ENOUGH = ("IPC_LOCK", "ALL", "CAP_IPC_LOCK")
_LARGE = 1 << 30
_SIGN = "locked memory"
_CHECK = "ulimit -l   # in the container: unlimited, or CapEff in /proc/self/status has bit 14 (0x4000)"


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge registrations that fail for lack of locked memory by the capabilities of the containers."""
    shown = [effect for effect in workloads.faults(RULE, effects) if _SIGN in effect.cause]
    if not shown:
        return
    cases = workloads.cases(facts, _may_not_lock)
    if cases and (touched := workloads.effects_on(facts, cases, shown)):
        yield _missing(facts, cases, touched)
        return
    cases = workloads.cases(facts, _is_idle)
    if cases and (touched := workloads.effects_on(facts, cases, shown)):
        yield _of_user(facts, cases, touched)


def _may_not_lock(pod: Pod, container: Container) -> bool:
    allowed = container.privileged or not container.capabilities.isdisjoint(_ENOUGH)
    return pod.is_whole and not allowed and (container.memlock or 0) < _LARGE


def _is_idle(pod: Pod, container: Container) -> bool:
    """Whether a non-root user does not get the added capability: containers have no ambient capabilities."""
    return pod.is_whole and not container.privileged and bool(container.user) and (container.memlock or 0) < _LARGE


def _missing(facts: Facts, cases: list[Case], shown: list[Finding]) -> Finding:
    is_docker = cases[0].pod.kind == "container"
    change = Change(("securityContext", "capabilities", "add"), [_LOCK])
    doubtful = all(effect.confidence == "possible" for effect in shown)
    return workloads.finding_of(
        RULE,
        facts,
        cases,
        shown,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'has', 'have')} no {_LOCK}"
        + (" and no --ulimit memlock" if is_docker else ""),
        cause="without this capability the limit on locked memory applies, which containers inherit from the runtime "
        "of the node: usually 64 KiB or 8 MiB. NICs lock every buffer that they register",
        fix=[*([RDMA_IN_DOCKER] if is_docker else workloads.patches(cases, lambda _: [change])), _CHECK],
        evidence=[
            case.line(f"no {_LOCK} in {'CapAdd, no memlock in Ulimits' if is_docker else 'securityContext'}")
            for case in cases
        ],
        confidence="likely" if doubtful else "certain",
    )


def _of_user(facts: Facts, cases: list[Case], shown: list[Finding]) -> Finding:
    user = cases[0].container.user
    return workloads.finding_of(
        RULE,
        facts,
        cases,
        shown,
        f"{workloads.names_of(cases)} adds {_LOCK}, but user {user} does not get it",
        cause="Kubernetes adds capabilities to the bounding set: a process of a non-root user has them only if "
        "its executable has them (setcap)",
        fix=[
            *workloads.patches(cases, lambda _: [Change(("securityContext", "runAsUser"), 0)]),
            "LimitMEMLOCK=infinity   # systemd unit of containerd on the nodes, then restart it: for any user",
            _CHECK,
        ],
        evidence=[case.line(f"capabilities.add: {_LOCK}, runAsUser: {case.container.user}") for case in cases],
        confidence="likely",
    )
