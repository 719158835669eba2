"""The pod asks for no RDMA device, and hosts talk over TCP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, IN_CONTAINER, Case, Change, asks_for_device
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="rdma-device-not-requested",
    category="network",
    severity="error",
    title="The manifest asks for no RDMA device, or for fewer than the node has",
    explains=(
        "socket-instead-of-efa",
        "efa-provider-missing",
        "efa-nics-missing",
        "socket-instead-of-ib",
        "socket-instead-of-rdma",
        "network-not-found",
    ),
    folds=True,
)
_OF_EFA = ("socket-instead-of-efa", "efa-provider-missing", "efa-nics-missing")
_UNKNOWN = "socket-instead-of-rdma"
_FEWER = "efa-nics-missing"


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge TCP between hosts, and plugins without a device, by what the pods ask for."""
    shown = workloads.faults(effects)
    if not shown:
        return
    of_efa = [effect for effect in shown if effect.rule in _OF_EFA or "ofi" in effect.summary.lower()]
    is_efa = bool(of_efa) or _is_on_efa(facts)
    found = workloads.cases(facts, _lacks_efa if is_efa else lacks_device)
    shown = workloads.touched(facts, found, shown)
    if found and shown:
        yield _without(facts, found, shown, is_efa=is_efa)
    elif few := _too_few(facts, [effect for effect in of_efa if effect.rule == _FEWER]):
        yield few


def _is_on_efa(facts: Facts) -> bool:
    """Whether the pods ask for machines with EFA."""
    machines = (workloads.machine(facts, pod) for pod in workloads.pods(facts))
    return any(machine.network == "efa" for machine in machines if machine)


def lacks_device(pod: Pod, container: Container) -> bool:
    """Whether nothing that a container is given can be a card for RDMA."""
    return not asks_for_device(container) and _is_told(pod, container)


def _lacks_efa(pod: Pod, container: Container) -> bool:
    given = container.asks(EFA) or any(device.startswith(IN_CONTAINER) for device in container.devices)
    return not given and _is_told(pod, container)


def _is_told(pod: Pod, container: Container) -> bool:
    """Whether the file tells all devices: privileged containers have those of the node, and claims may bring some."""
    has_claims = bool(container.tree.at("resources", "claims"))
    return (pod.is_whole or bool(container.resources)) and not container.privileged and not has_claims


def _without(facts: Facts, found: list[Case], shown: list[Finding], *, is_efa: bool) -> Finding:
    case = found[0]
    sure = is_efa or any(effect.rule != _UNKNOWN for effect in shown)
    what = EFA if is_efa else "RDMA device (rdma/…, vpc.amazonaws.com/efa)"
    docker = case.pod.kind == "container"
    what = "/dev/infiniband" if docker else what
    return workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'asks', 'ask')} for no {what}",
        cause="the container sees no card, so that libfabric and NCCL find none, and TCP is left",
        fix=[
            *([RDMA_IN_DOCKER] if docker else workloads.patches(found, lambda case: _changes(facts, case, is_efa))),
            f"kubectl describe node {workloads.node(facts, case)} | grep -A12 Allocatable   # which of them the node "
            "offers, and how many",
        ],
        evidence=[one.line(f"no {what} in its {'devices' if docker else 'resources'}{_given(one)}") for one in found],
        confidence="certain" if sure else "possible",
        confirm="Run 'kubectl describe node' on the node: does it offer such a device?",
    )


def _given(case: Case) -> str:
    """What a container asks for instead."""
    asked = ", ".join(f"{name}: {amount}" for name, amount in sorted(case.container.resources.items()))
    return f" ({asked})" if asked else ""


def _changes(facts: Facts, case: Case, is_efa: bool) -> list[Change]:
    if not is_efa:
        return [Change(("resources", "limits"), {"rdma/<resource of the node>": 1}), *_locked(case)]
    machine = workloads.machine(facts, case.pod)
    nics = machine.nics if machine and machine.network == "efa" else None
    limits: dict[str, object] = {EFA: nics or "<NICs of the node>"}
    if not case.container.asks("hugepages-2Mi"):
        limits["hugepages-2Mi"] = "5120Mi"
    return [Change(("resources", "limits"), limits), *_locked(case)]


def _locked(case: Case) -> list[Change]:
    has = "IPC_LOCK" in case.container.capabilities
    return [] if has else [Change(("securityContext", "capabilities", "add"), ["IPC_LOCK"])]


def _too_few(facts: Facts, shown: list[Finding]) -> Finding | None:
    """Fewer devices asked for than the machine has, as the plugin found."""
    nics = facts.platform.nics if facts.platform else None
    found = workloads.cases(facts, lambda _, container: 0 < container.amount(EFA) < (nics or 0))
    shown = workloads.touched(facts, found, shown)
    if not found or not shown or not facts.platform:
        return None
    asked = int(found[0].container.amount(EFA))
    return workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'asks', 'ask')} for {count(asked, 'EFA device')}, "
        f"{facts.platform.name} has {nics}",
        cause="the container sees only as many NICs as it asks for, and all its GPUs share them",
        fix=workloads.patches(found, lambda _: [Change(("resources", "limits"), {EFA: nics})]),
        evidence=[case.line(f"{EFA}: {int(case.container.amount(EFA))}") for case in found],
    )
