"""The pod does not request an RDMA device, and hosts talk over TCP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, IN_CONTAINER, Case, Change, requests_device
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find TCP between hosts, and plugins without a device, by what the pods request."""
    faults = workloads.faults("rdma-device-not-requested", findings)
    if not faults:
        return
    of_efa = [effect for effect in faults if _is_of_efa(effect)]
    machines = (workloads.machine(facts, pod) for pod in workloads.pods(facts))
    is_efa = bool(of_efa) or any(machine.network == "efa" for machine in machines if machine)
    cases = workloads.cases(facts, _lacks_efa if is_efa else lacks_device)
    if touched := workloads.effects_on(facts, cases, faults) if cases else []:
        docker = cases[0].pod.kind == "container"
        steps = [RDMA_IN_DOCKER] if docker else workloads.patches(cases, lambda case: _changes(facts, case, is_efa))
        device = "/dev/infiniband" if docker else EFA if is_efa else "RDMA device (rdma/…, vpc.amazonaws.com/efa)"
        words = f"no {device} in its {'devices' if docker else 'resources'}"
        named = {
            "device": device,
            "node": workloads.node(facts, cases[0]),
            "doubtful": not is_efa and all(map(_is_unknown, touched)),
        }
        yield _hit(cases, touched, steps, named, [f"{words}{_requested(case)}" for case in cases])
        return
    nics = facts.platform.nics if facts.platform else None
    cases = workloads.cases(facts, lambda _, container: 0 < container.amount(EFA) < (nics or 0))
    few = [effect for effect in of_efa if workloads.shows(effect, "few-efa-devices")]
    if facts.platform and cases and (touched := workloads.effects_on(facts, cases, few)):
        amounts = [int(case.container.amount(EFA)) for case in cases]
        named = {"amount": amounts[0], "machine": facts.platform.name, "nics": nics}
        steps = workloads.patches(cases, lambda _: [Change(("resources", "limits"), {EFA: nics})])
        yield _hit(cases, touched, steps, named, [f"{EFA}: {amount}" for amount in amounts])


def _hit(
    cases: list[Case], effects: list[Finding], steps: Iterable[str], named: dict[str, object], lines: list[str]
) -> Hit:
    shown = [case.line(line) for case, line in zip(cases, lines, strict=True)]
    both = {"pods": workloads.names_of(cases), "one": workloads.are_one_pod(cases), "steps": list(steps)}
    return Hit(named=named | both, evidence=shown, effects=effects, cases=cases)


def _is_of_efa(effect: Finding) -> bool:
    is_shown = workloads.shows(effect, "no-efa", "no-efa-device") and not _is_unknown(effect)
    return is_shown or "ofi" in effect.summary.lower()


def _is_unknown(effect: Finding) -> bool:
    """Whether the log does not show which RDMA network the machines have."""
    return workloads.shows(effect, "no-efa") and workloads.shows(effect, "no-ib")


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


def _requested(case: Case) -> str:
    """The resources that a container requests instead."""
    asked = ", ".join(f"{name}: {amount}" for name, amount in sorted(case.container.resources.items()))
    return f" ({asked})" if asked else ""


def _changes(facts: Facts, case: Case, is_efa: bool) -> list[Change]:
    limits: dict[str, object] = {"rdma/<resource of the node>": 1}
    if is_efa:
        machine = workloads.machine(facts, case.pod)
        nics = machine.nics if machine and machine.network == "efa" else None
        hugepages = {} if case.container.asks("hugepages-2Mi") else {"hugepages-2Mi": "5120Mi"}
        limits = {EFA: nics or "<NICs of the node>", **hugepages}
    lock = [] if "IPC_LOCK" in case.container.capabilities else ["IPC_LOCK"]
    locked = [Change(("securityContext", "capabilities", "add"), lock)] if lock else []
    return [Change(("resources", "limits"), limits), *locked]
