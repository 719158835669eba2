"""The container may not lock memory, which NICs need to register buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="ipc-lock-missing",
    category="network",
    severity="error",
    title="The manifest does not let the container lock memory (IPC_LOCK, memlock)",
    explains=("ib-memlock", "memory-registration-failed", "efa-init-failed"),
)
_LOCK = "IPC_LOCK"
_ENOUGH = ("IPC_LOCK", "ALL", "CAP_IPC_LOCK")
_LARGE = 1 << 30
_SIGN = "locked memory"
_CHECK = "ulimit -l   # in the container: unlimited, or CapEff in /proc/self/status has bit 14 (0x4000)"


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge registrations that fail for want of locked memory by what the containers may do."""
    shown = [effect for effect in workloads.faults(effects) if _SIGN in effect.cause]
    if not shown:
        return
    found = workloads.cases(facts, _may_not_lock)
    if found and (touched := workloads.touched(facts, found, shown)):
        yield _missing(facts, found, touched)
        return
    found = workloads.cases(facts, _is_idle)
    if found and (touched := workloads.touched(facts, found, shown)):
        yield _of_user(facts, found, touched)


def _may_not_lock(pod: Pod, container: Container) -> bool:
    allowed = container.privileged or not container.capabilities.isdisjoint(_ENOUGH)
    return pod.is_whole and not allowed and (container.memlock or 0) < _LARGE


def _is_idle(pod: Pod, container: Container) -> bool:
    """Whether the capability is added for a user that does not get it: containers have no ambient capabilities."""
    return pod.is_whole and not container.privileged and bool(container.user) and (container.memlock or 0) < _LARGE


def _missing(facts: Facts, found: list[Case], shown: list[Finding]) -> Finding:
    case = found[0]
    is_docker = case.pod.kind == "container"
    change = Change(("securityContext", "capabilities", "add"), [_LOCK])
    doubtful = all(effect.confidence == "possible" for effect in shown)
    return workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'has', 'have')} no {_LOCK}"
        + (" and no --ulimit memlock" if is_docker else ""),
        cause="without the capability the limit on locked memory holds, which containers get from the runtime of the "
        "node: mostly 64 KiB or 8 MiB. NICs lock every buffer that they register",
        fix=[*([RDMA_IN_DOCKER] if is_docker else workloads.patches(found, lambda _: [change])), _CHECK],
        evidence=[
            one.line(f"no {_LOCK} in {'CapAdd, no memlock in Ulimits' if is_docker else 'securityContext'}")
            for one in found
        ],
        confidence="likely" if doubtful else "certain",
    )


def _of_user(facts: Facts, found: list[Case], shown: list[Finding]) -> Finding:
    user = found[0].container.user
    return workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} adds {_LOCK}, which user {user} does not get",
        cause="Kubernetes adds capabilities to the bounding set: a process of a user other than root has them only "
        "where the file it runs has them (setcap)",
        fix=[
            *workloads.patches(found, lambda _: [Change(("securityContext", "runAsUser"), 0)]),
            "LimitMEMLOCK=infinity   # systemd unit of containerd on the nodes, then restart it: for any user",
            _CHECK,
        ],
        evidence=[one.line(f"capabilities.add: {_LOCK}, runAsUser: {one.container.user}") for one in found],
        confidence="likely",
    )
