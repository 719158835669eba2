"""The pods of each kind of workload with one fault: it is certain, and what is to be pasted mends it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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


def template(fault: str, name: str = "trainer") -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "llama"}}, "spec": spec(fault, name)}


def pytorch_job(fault: str) -> list[dict[str, Any]]:
    replicas = {role: {"replicas": 1, "template": template(fault, "pytorch")} for role in ("Master", "Worker")}
    return [made("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=replicas)]


def mpi_job(fault: str) -> list[dict[str, Any]]:
    launcher = {"spec": {"containers": [{"name": "mpi", "resources": {"limits": {"cpu": 2}}}]}}
    replicas = {"Launcher": {"template": launcher}, "Worker": {"replicas": 2, "template": template(fault)}}
    return [made("kubeflow.org/v2beta1", "MPIJob", slotsPerWorker=8, mpiReplicaSpecs=replicas)]


def job_set(fault: str) -> list[dict[str, Any]]:
    job = {"name": "workers", "template": {"spec": {"parallelism": 2, "template": template(fault)}}}
    return [made("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[job])]


def deployment(fault: str) -> list[dict[str, Any]]:
    return [made("apps/v1", "Deployment", replicas=2, template=template(fault))]


def batch_job(fault: str) -> list[dict[str, Any]]:
    return [made("batch/v1", "Job", completions=2, template=template(fault))]


def train_job(fault: str) -> list[dict[str, Any]]:
    """A TrainJob, which replaces what its runtime asks for, with that runtime."""
    inner = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": None}}]}}}
    inner["template"]["spec"]["replicatedJobs"][0]["template"] = {"spec": {"template": template(fault, "node")}}
    runtime = made("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", **inner)
    runtime["metadata"]["name"] = "torch"
    asked = dict(spec(fault, "node")["containers"][0]["resources"]["limits"])
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": asked}}
    job = made("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "torch"}, trainer=trainer)
    return [runtime, job]


def made(api: str, kind: str, **inner: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "llama", "namespace": "ml"}, "spec": inner}


KINDS: dict[str, tuple[Callable[[str], list[dict[str, Any]]], tuple[str, str]]] = {
    "PyTorchJob": (pytorch_job, ("llama-master-0", "llama-worker-0")),
    "MPIJob": (mpi_job, ("llama-worker-0", "llama-worker-1")),
    "JobSet": (job_set, ("llama-workers-0-0-x7kqp", "llama-workers-0-1-z9wlm")),
    "Deployment": (deployment, ("llama-7c6d9b8f5-x2v4q", "llama-7c6d9b8f5-k8mzp")),
    "Job": (batch_job, ("llama-0-x7kqp", "llama-1-z9wlm")),
    "TrainJob": (train_job, ("llama-node-0-0-x7kqp", "llama-node-0-1-z9wlm")),
}


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_certain_and_what_is_pasted_mends_it(fault: str, kind: str, tmp_path: Path) -> None:
    documents, hosts = KINDS[kind]
    text = written(documents(fault))
    _, finding = judged(fault, hosts, tmp_path, text)
    assert finding
    assert finding.confidence == "certain"
    assert all(line.source.endswith("job.yaml") and line.line > 9 for line in finding.evidence)
    mended = pasted(text, finding.fix)
    assert mended != text
    assert judged(fault, hosts, tmp_path, mended)[1] is None
    for document in yaml.safe_load_all(mended):
        for asked in resources(document):
            limits, requests = asked.get("limits", {}), asked.get("requests", asked.get("limits", {}))
            assert all(requests[key] == limits[key] for key in requests if "/" in key)  # else they are refused


def resources(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield from (node[key] for key in ("resources", "resourcesPerNode") if key in node)
        for entry in node.values():
            yield from resources(entry)
    elif isinstance(node, list):
        for entry in node:
            yield from resources(entry)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_sound_manifest_explains_nothing(fault: str, kind: str, tmp_path: Path) -> None:
    documents, hosts = KINDS[kind]
    assert judged(fault, hosts, tmp_path, written(documents("")))[1] is None


def test_a_value_that_is_there_is_replaced(tmp_path: Path) -> None:
    documents, hosts = KINDS["Deployment"]
    _, finding = judged("alone", hosts, tmp_path, written(documents("alone")))
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
    _, finding = judged("efa", hosts, tmp_path, written(train_job("efa")[1:]))
    assert finding
    assert finding.confidence == "certain"
    assert re.search(r"under spec\.trainer\.resourcesPerNode\.limits, indented by 8 spaces$", finding.fix[0])
    assert any("in the training runtime torch" in step for step in finding.fix)
    assert judged("lock", hosts, tmp_path, written(train_job("lock")[1:]))[1] is None


def test_a_trainjob_that_changes_its_pods_leaves_a_doubt(tmp_path: Path) -> None:
    runtime, job = train_job("lock")
    job["spec"]["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], "spec": {}}]
    assert judged("lock", KINDS["TrainJob"][1], tmp_path, written([runtime, job]))[1] is None
