"""The pod does not request an RDMA device, and hosts talk over TCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, IN_CONTAINER, Case, Change, requests_device
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule

RULE = Rule(
    name="rdma-device-not-requested",
    category="network",
    title="The manifest requests no RDMA device, or fewer than the node has",
    may_cause=("no-efa", "no-efa-device", "few-efa-devices", "no-ib", "no-network"),
    nest_under_effect=True,
)


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge TCP between hosts, and plugins without a device, by what the pods request."""
    faults = workloads.faults(RULE, effects)
    if not faults:
        return
    of_efa = [effect for effect in faults if _is_of_efa(effect)]
    is_efa = bool(of_efa) or _is_on_efa(facts)
    cases = workloads.cases(facts, _lacks_efa if is_efa else lacks_device)
    faults = workloads.effects_on(facts, cases, faults)
    if cases and faults:
        yield _none_requested(facts, cases, faults, is_efa=is_efa)
    elif few := _too_few(facts, [effect for effect in of_efa if workloads.shows(effect, "few-efa-devices")]):
        yield few


def _is_of_efa(effect: Finding) -> bool:
    is_shown = workloads.shows(effect, "no-efa", "no-efa-device") and not _is_unknown(effect)
    return is_shown or "ofi" in effect.summary.lower()


def _is_unknown(effect: Finding) -> bool:
    """Whether the log does not show which RDMA network the machines have."""
    return workloads.shows(effect, "no-efa") and workloads.shows(effect, "no-ib")


def _is_on_efa(facts: Facts) -> bool:
    """Whether the pods request machines with EFA."""
    machines = (workloads.machine(facts, pod) for pod in workloads.pods(facts))
    return any(machine.network == "efa" for machine in machines if machine)


def lacks_device(pod: Pod, container: Container) -> bool:
    """Whether none of the container's devices can be an RDMA NIC."""
    return not requests_device(container) and _lists_devices(pod, container)


def _lacks_efa(pod: Pod, container: Container) -> bool:
    given = container.asks(EFA) or any(device.startswith(IN_CONTAINER) for device in container.devices)
    return not given and _lists_devices(pod, container)


def _lists_devices(pod: Pod, container: Container) -> bool:
    """Whether the file lists all devices: privileged containers have those of the node, and claims may add some."""
    has_claims = bool(container.tree.at("resources", "claims"))
    return (pod.is_whole or bool(container.resources)) and not container.privileged and not has_claims


def _none_requested(facts: Facts, cases: list[Case], faults: list[Finding], *, is_efa: bool) -> Finding:
    sure = is_efa or not all(map(_is_unknown, faults))
    docker = cases[0].pod.kind == "container"
    device = "/dev/infiniband" if docker else EFA if is_efa else "RDMA device (rdma/…, vpc.amazonaws.com/efa)"
    listing = "devices" if docker else "resources"
    return workloads.finding_of(
        RULE,
        facts,
        cases,
        faults,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'requests', 'request')} no {device}",
        cause="the container has no RDMA NIC, so libfabric and NCCL find none and use TCP",
        fix=[
            *([RDMA_IN_DOCKER] if docker else workloads.patches(cases, lambda case: _changes(facts, case, is_efa))),
            f"kubectl describe node {workloads.node(facts, cases[0])} | grep -A12 Allocatable   # which devices does "
            "the node offer, and how many?",
        ],
        evidence=[case.line(f"no {device} in its {listing}{_requested(case)}") for case in cases],
        confidence="certain" if sure else "possible",
        confirm="Run 'kubectl describe node' on the node: does it offer such a device?",
    )


def _requested(case: Case) -> str:
    """The resources that a container requests instead."""
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


def _too_few(facts: Facts, faults: list[Finding]) -> Finding | None:
    """Fewer devices requested than the machine has, as the plugin reports."""
    nics = facts.platform.nics if facts.platform else None
    cases = workloads.cases(facts, lambda _, container: 0 < container.amount(EFA) < (nics or 0))
    faults = workloads.effects_on(facts, cases, faults)
    if not cases or not faults or not facts.platform:
        return None
    requested = int(cases[0].container.amount(EFA))
    return workloads.finding_of(
        RULE,
        facts,
        cases,
        faults,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'requests', 'request')} {count(requested, 'EFA device')}, "
        f"but {facts.platform.name} has {nics}",
        cause="the container gets only the NICs that it requests, and all its GPUs share them",
        fix=workloads.patches(cases, lambda _: [Change(("resources", "limits"), {EFA: nics})]),
        evidence=[case.line(f"{EFA}: {int(case.container.amount(EFA))}") for case in cases],
    )
