"""Each pod has one GPU, and pods of a node do not share memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="pods-isolated",
    category="topology",
    layer=Layer.SYSTEM,
    title="The manifest gives each pod one GPU, and pods of a node do not share memory",
    may_cause=("resource", "call", "one-gpu-pods", "no-gpu-access", "no-shm-access", "net-path", "slow"),
    nest_under_effect=True,
)
_DOCKER = "--gpus all --ipc=host   # options of docker run: one container for all GPUs of the host, or shared memory"
_ALSO = (
    "Ranks of a node share a host name only if hostNetwork: true is set too, and P2P between them needs all GPUs "
    "visible in each pod: use one pod per node instead."
)


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge ranks of one machine that cannot access each other's memory by what their pods share."""
    faults = workloads.faults(RULE, effects)
    cases = workloads.cases(facts, _is_isolated) if faults else []
    faults = workloads.effects_on(facts, cases, faults)
    if not cases or not faults:
        return
    yield workloads.finding_of(
        RULE,
        facts,
        cases,
        faults,
        f"{workloads.names_of(cases)}: one GPU per pod, and no hostIPC"
        if cases[0].pod.kind != "container"
        else f"{workloads.names_of(cases)}: one GPU per container, and separate IPC namespaces",
        cause="CUDA's P2P and NCCL's shared memory need one IPC namespace and one /dev/shm, but each pod of a node has "
        "its own unless hostIPC is true; only the network is left",
        fix=list(_fix(facts, cases)),
        evidence=[case.line(_words(case, workloads.nodes(facts))) for case in cases],
    )


def _is_isolated(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.gpus == 1 and not pod.host_ipc


def _words(case: Case, nodes: dict[str, str]) -> str:
    where = case.pod.node or nodes.get(case.pod.name, "")
    share = "IpcMode: private" if case.pod.kind == "container" else "no hostIPC"
    return f"one GPU, {share}" + (f", nodeName: {where}" if where else "")


def _fix(facts: Facts, cases: list[Case]) -> Iterator[str]:
    if cases[0].pod.kind == "container":
        yield _DOCKER
        return
    yield from workloads.patches(cases, lambda case: [_all_gpus(facts, case)])
    yield from workloads.patches(cases, lambda _: [Change(("hostIPC",), True, of_pod=True)])
    yield _ALSO


def _all_gpus(facts: Facts, case: Case) -> Change:
    """One pod per node with all its GPUs."""
    machine = workloads.machine(facts, case.pod)
    gpus = (machine.gpus if machine else None) or "<GPUs of the node>"
    name = next(key for key in case.container.resources if "/gpu" in key or key.startswith("nvidia.com/"))
    return Change(("resources", "limits"), {name: gpus})
