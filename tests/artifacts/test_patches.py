"""The pods of each kind of workload with one fault: it is certain, and what is to be pasted mends it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import nccl_inspect
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

PREAMBLE = """---
# Source: trainer/templates/account.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: llama
---
# Source: trainer/templates/job.yaml
"""
GPUS = {"nvidia.com/gpu": 8, "memory": "512Gi"}
CARDS = {"vpc.amazonaws.com/efa": 4, "hugepages-2Mi": "5Gi"}


def spec(fault: str, name: str) -> dict[str, Any]:
    """A pod that lacks nothing but what the fault takes away."""
    asked = {**GPUS, **({} if fault == "efa" else {"rdma/hca": 1} if fault == "cards" else CARDS)}
    asked = {"nvidia.com/gpu": 1} if fault == "alone" else asked
    container = {
        "name": name,
        "image": "train:1",
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "RANK", "valueFrom": {"fieldRef": {}}}],
        "resources": {"limits": dict(asked), "requests": dict(asked)},
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    pod: dict[str, Any] = {"hostNetwork": True, "containers": [container], "volumes": volumes}
    if fault == "lock":
        del container["securityContext"]["capabilities"]  # type: ignore[attr-defined]
    elif fault == "shm":
        container["volumeMounts"].pop()  # type: ignore[attr-defined]
        volumes.pop()
    elif fault == "alone":
        pod.update(hostNetwork=False, hostIPC=False)
    elif fault in ("interface", "cards"):
        del pod["hostNetwork"]
    return pod


KINDS: dict[str, tuple[str, tuple[str, str]]] = {
    "PyTorchJob": (
        "kubeflow.org/v1 {pytorchReplicaSpecs: {Master: {replicas: 1, template: POD}, Worker: {template: POD}}}",
        ("llama-master-0", "llama-worker-0"),
    ),
    "MPIJob": (
        "kubeflow.org/v2beta1 {mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: mpi, resources: "
        "{limits: {cpu: 2}}}]}}}, Worker: {replicas: 2, template: POD}}}",
        ("llama-worker-0", "llama-worker-1"),
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2 {replicatedJobs: [{name: workers, template: {spec: {template: POD}}}]}",
        ("llama-workers-0-0-x7kqp", "llama-workers-0-1-z9wlm"),
    ),
    "Deployment": ("apps/v1 {replicas: 2, template: POD}", ("llama-7c6d9b8f5-x2v4q", "llama-7c6d9b8f5-k8mzp")),
    "Job": ("batch/v1 {completions: 2, template: POD}", ("llama-0-x7kqp", "llama-1-z9wlm")),
    "TrainJob": (
        "trainer.kubeflow.org/v1alpha1 {runtimeRef: {name: torch}, trainer: {numNodes: 2, resourcesPerNode: {limits: "
        "LIMITS}}}",
        ("llama-node-0-0-x7kqp", "llama-node-0-1-z9wlm"),
    ),
}
RUNTIME = "{template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: POD}}}]}}}"
CONTAINERS = {"PyTorchJob": "pytorch", "TrainJob": "node"}


def documents(kind: str, fault: str) -> list[dict[str, Any]]:
    """The documents of a workload; a TrainJob, which replaces what its runtime asks for, stands behind its runtime."""
    api, _, text = KINDS[kind][0].partition(" ")
    pod = spec(fault, CONTAINERS.get(kind, "trainer"))

    def made(kind: str, name: str, text: str) -> dict[str, Any]:
        text = text.replace("POD", json.dumps({"metadata": {"labels": {"app": "llama"}}, "spec": pod}))
        text = text.replace("LIMITS", json.dumps(pod["containers"][0]["resources"]["limits"]))
        about = {"name": name, "namespace": "ml"}
        return {"apiVersion": api, "kind": kind, "metadata": about, "spec": yaml.safe_load(text)}

    runtime = [made("ClusterTrainingRuntime", "torch", RUNTIME)] if kind == "TrainJob" else []
    return [*runtime, made(kind, "llama", text)]


def log(fault: str, hosts: tuple[str, str]) -> str:
    """What NCCL prints where pods have the fault."""
    return "".join(
        f"{host}:77:80 [0] NCCL {line}\n" for place, host in enumerate(hosts) for line in lines(fault, place)
    )


def lines(fault: str, place: int) -> Iterator[str]:
    if fault == "efa":
        yield "INFO NET/OFI Initializing aws-ofi-nccl 1.16.2"
        yield "INFO NET/OFI No eligible providers were found"
        yield "WARN NET/OFI Unable to find a protocol that worked.  Failing initialization."
        yield "INFO Using network Socket"
        yield f"INFO Channel 00/0 : {1 - place}[0] -> {place}[0] [receive] via NET/Socket/0"
    elif fault == "lock":
        yield "WARN Call to ibv_create_cq failed with error Cannot allocate memory"
    elif fault == "shm":
        yield "WARN Error: failed to extend /dev/shm/nccl-q3 to 34210180 bytes, error: No space left on device (28)"
    elif fault == "interface":
        yield "INFO NCCL_SOCKET_IFNAME set by environment to =ens1f0"
        yield "WARN Bootstrap : no socket interface found"
    else:
        about = f"comm 0x{place}1 rank {place} nranks 2 cudaDev 0 nvmlDev {place} busId {place + 1}000 commId 0xabc"
        yield "INFO NET/IB : No device found."
        yield "INFO Using network Socket"
        yield f"INFO ncclCommInitRankConfig {about} - Init START"
        yield f"INFO comm 0x{place}1 rank {place} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
        yield f"INFO ncclCommInitRankConfig {about} - Init COMPLETE"
        yield f"INFO Channel 00/0 : {1 - place}[{1 - place}] -> {place}[{place}] [receive] via NET/Socket/0"


FAULTS = {
    "efa": "rdma-device-not-requested",
    "lock": "ipc-lock-missing",
    "shm": "shm-volume-missing",
    "alone": "pods-isolated",
    "interface": "host-network-missing",
    "cards": "host-network-missing",
}


def judged(fault: str, hosts: tuple[str, str], folder: Path, text: str) -> tuple[Job, Finding | None]:
    (folder / "job.log").write_text(log(fault, hosts))
    (folder / "job.yaml").write_text(text)
    job = nccl_inspect.read(str(folder))
    return job, next((finding for finding in job.findings if finding.rule == FAULTS[fault]), None)


def written(documents: list[Any]) -> str:
    return PREAMBLE + "---\n".join(f"# kept\n{yaml.safe_dump(one, sort_keys=False)}" for one in documents)


def pasted(text: str, fixes: list[str]) -> str:
    """The documents with each piece where its comment says that it belongs."""
    documents = [document for document in yaml.safe_load_all(text) if document]
    for fix in fixes:
        match = re.match(r"(.+?)   # job\.yaml:\d+, under ([^\s,]+)", fix)
        if match is None:
            continue
        piece = yaml.safe_load(match[1])
        (node,) = (node for document in documents if (node := at(document, match[2])) is not None)
        if isinstance(piece, list):
            node.extend(piece)
        else:
            node.update(piece)
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def at(node: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        try:
            node = node[int(part[1:-1])] if part.startswith("[") else node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def resources(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield from (node[key] for key in ("resources", "resourcesPerNode") if key in node)
        for entry in node.values():
            yield from resources(entry)
    elif isinstance(node, list):
        for entry in node:
            yield from resources(entry)


def unmended(fault: str, kind: str, folder: Path) -> Iterator[str]:
    """Yield what is wrong with what is told of a fault in the pods of a kind, and of pods without it."""
    hosts = KINDS[kind][1]
    text = written(documents(kind, fault))
    _, finding = judged(fault, hosts, folder, text)
    if finding is None or finding.confidence != "certain":
        yield f"{finding and finding.confidence}"
        return
    if not all(line.source.endswith("job.yaml") and line.line > 9 for line in finding.evidence):
        yield f"evidence {finding.evidence}"
    mended = pasted(text, finding.fix)
    if mended == text or judged(fault, hosts, folder, mended)[1]:
        yield f"what is to be pasted does not mend it: {finding.fix}"
    for asked in resources([*yaml.safe_load_all(mended)]):
        limits, requests = asked.get("limits", {}), asked.get("requests", asked.get("limits", {}))
        if any(requests[key] != limits[key] for key in requests if "/" in key):
            yield f"refused: requests {requests}, limits {limits}"
    if judged(fault, hosts, folder, written(documents(kind, "")))[1]:
        yield "found in sound pods, too"


def test_a_fault_is_certain_and_what_is_pasted_mends_it(tmp_path: Path) -> None:
    wrong = [
        f"{FAULTS[fault]} in a {kind}: {what}"
        for fault in FAULTS
        for kind in KINDS
        for what in unmended(fault, kind, tmp_path)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_value_that_is_there_is_replaced(tmp_path: Path) -> None:
    _, finding = judged("alone", KINDS["Deployment"][1], tmp_path, written(documents("Deployment", "alone")))
    assert finding
    fix = [step for step in finding.fix if step.startswith(("nvidia.com/gpu: ", "hostIPC: "))]
    assert len(fix) == 3
    text = (tmp_path / "job.yaml").read_text().splitlines()
    for step in fix:
        line = int(step.rpartition("in place of line ")[2])
        assert text[line - 1].strip().partition(":")[0] == step.partition(":")[0]
    command = next(step for step in finding.fix if " patch deployment llama" in step)
    (container,) = json.loads(command.split("'")[1])["spec"]["template"]["spec"]["containers"]
    assert set(container["resources"]) == {"limits", "requests"}


def test_a_trainjob_without_its_runtime_says_where_the_rest_belongs(tmp_path: Path) -> None:
    _, hosts = KINDS["TrainJob"]
    _, finding = judged("efa", hosts, tmp_path, written(documents("TrainJob", "efa")[1:]))
    assert finding
    assert finding.confidence == "certain"
    assert re.search(r"under spec\.trainer\.resourcesPerNode\.limits, indented by 8 spaces$", finding.fix[0])
    assert any("in the training runtime torch" in step for step in finding.fix)
    assert judged("lock", hosts, tmp_path, written(documents("TrainJob", "lock")[1:]))[1] is None
    runtime, job = documents("TrainJob", "lock")
    job["spec"]["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], "spec": {}}]
    assert judged("lock", hosts, tmp_path, written([runtime, job]))[1] is None, "it changes its pods"
