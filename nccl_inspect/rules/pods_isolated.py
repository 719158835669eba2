"""Each pod has one GPU, and pods of a node share no memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="pods-isolated",
    category="topology",
    severity="error",
    title="The manifest gives each pod one GPU and shares no memory between pods of a node",
    explains=(
        "one-gpu-per-pod",
        "cuda-ipc-isolated-gpus",
        "p2p-import-failed",
        "shm-attach-failed",
        "net-instead-of-p2p",
    ),
    folds=True,
)
_DOCKER = "--gpus all --ipc=host   # options of docker run: one container for all GPUs of the host, or memory in common"
_ALSO = (
    "Only with hostNetwork: true as well do ranks of a node share the name of the host, and P2P between them needs all "
    "GPUs visible in each: one pod for each node is the better way."
)


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge ranks of one machine that cannot reach each other's memory by what their pods share."""
    shown = workloads.faults(effects)
    found = workloads.cases(facts, _is_alone) if shown else []
    shown = workloads.touched(facts, found, shown)
    if not found or not shown:
        return
    case = found[0]
    yield workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)}: one GPU for each pod, and no hostIPC"
        if case.pod.kind != "container"
        else f"{workloads.called(found)}: one GPU for each container, and IPC namespaces of their own",
        cause="CUDA's P2P and NCCL's shared memory need one IPC namespace and one /dev/shm: pods of a node have one "
        "each, unless hostIPC is true; what is left is the network",
        fix=list(_fix(facts, found)),
        evidence=[one.line(_words(one, workloads.nodes(facts))) for one in found],
    )


def _is_alone(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.gpus == 1 and not pod.host_ipc


def _words(case: Case, nodes: dict[str, str]) -> str:
    where = case.pod.node or nodes.get(case.pod.name, "")
    share = "IpcMode: private" if case.pod.kind == "container" else "no hostIPC"
    return f"one GPU, {share}" + (f", nodeName: {where}" if where else "")


def _fix(facts: Facts, found: list[Case]) -> Iterator[str]:
    if found[0].pod.kind == "container":
        yield _DOCKER
        return
    yield from workloads.patches(found, lambda case: [_all_gpus(facts, case)])
    yield from workloads.patches(found, lambda _: [Change(("hostIPC",), True, of_pod=True)])
    yield _ALSO


def _all_gpus(facts: Facts, case: Case) -> Change:
    """One pod for each node with all its GPUs."""
    machine = workloads.machine(facts, case.pod)
    gpus = (machine.gpus if machine else None) or "<GPUs of the node>"
    name = next(key for key in case.container.resources if "/gpu" in key or key.startswith("nvidia.com/"))
    return Change(("resources", "limits"), {name: gpus})
