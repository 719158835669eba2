"""Each pod has one GPU, and pods of a node do not share memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.page_words import Hit

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find ranks of one machine that cannot access each other's memory by what their pods share."""
    faults = workloads.faults("pods-isolated", findings)
    cases = workloads.cases(facts, _is_isolated) if faults else []
    if faults := workloads.effects_on(facts, cases, faults) if cases else []:
        docker = cases[0].pod.kind == "container"
        gpus = () if docker else workloads.patches(cases, lambda case: [_all_gpus(facts, case)])
        shared = () if docker else workloads.patches(cases, lambda _: [Change(("hostIPC",), True, of_pod=True)])
        yield Hit(
            named={"pods": workloads.names_of(cases), "docker": docker, "steps": [*gpus, *shared]},
            evidence=[case.line(_words(case, workloads.nodes(facts))) for case in cases],
            effects=faults,
            cases=cases,
        )


def _is_isolated(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.gpus == 1 and not pod.host_ipc


def _words(case: Case, nodes: dict[str, str]) -> str:
    where = case.pod.node or nodes.get(case.pod.name, "")
    share = "IpcMode: private" if case.pod.kind == "container" else "no hostIPC"
    return f"one GPU, {share}" + (f", nodeName: {where}" if where else "")


def _all_gpus(facts: Facts, case: Case) -> Change:
    """One pod per node with all its GPUs."""
    machine = workloads.machine(facts, case.pod)
    gpus = (machine.gpus if machine else None) or "<GPUs of the node>"
    name = next(key for key in case.container.resources if "/gpu" in key or key.startswith("nvidia.com/"))
    return Change(("resources", "limits"), {name: gpus})
