"""Manifests, docker inspect and Slurm's files beside a log: what is recognised, read and refused.

What they explain is on the pages of rules (`beside=`) and in `tests/labels/built_artifacts.toml`; what is to be
pasted mends the fault.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from answers import inputs_of
from call_count import calls
from few_examples import every
from hypothesis import given
from hypothesis import strategies as st
from repository import TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import containers, located, slurm
from nccl_inspect.model.finding import Finding

BESIDE = TESTS / "data" / "beside"
SOUND = (BESIDE / "pods-sound" / "pods.yaml").read_text()
LINE = "llama-3-8b-node-0-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
HEAD = "apiVersion: v1\nkind: Pod\n"


def test_a_file_is_recognised_by_what_is_in_it() -> None:
    for name, kind in {
        "pods-sound": "manifest",
        "docker-default": "docker_inspect",
        "slurm-timeout": "slurm_job",
        "script-sound": "slurm_script",
    }.items():
        (file,) = (BESIDE / name).iterdir()
        data = file.read_bytes()
        found = artifacts.kind_of(data[: artifacts.HEAD])
        assert found and found.name == kind
        quoted = data + LINE.encode()
        assert artifacts.kind_of(quoted[: artifacts.HEAD]) is None or len(data) > artifacts.HEAD
        printed = b"+ cat it\n" + data
        assert artifacts.kind_of(printed[: artifacts.HEAD]) is None or kind == "docker_inspect"


def test_a_log_that_prints_its_manifest_first_is_a_log() -> None:
    for text in (SOUND, (BESIDE / "slurm-timeout" / "scontrol.txt").read_text()):
        assert not nccl_inspect.read((text[:3000] + "\nstarting\n" + LINE).encode()).artifacts
        assert artifacts.kind_of((text[:3000].rpartition("\n")[0] + "\nStarting the job now\n").encode()) is None


def test_a_faulty_manifest_beside_a_sound_log_raises_nothing() -> None:
    wrong = []
    for folder in BESIDE.iterdir():
        if folder.name.startswith(("pods", "dock", "slur", "scri")):
            job = nccl_inspect.read([LINE.encode(), *map(str, folder.iterdir())])
            problems = [artifact.problem for artifact in job.artifacts if artifact.problem]
            wrong += [f"{folder.name}: {finding.rule}" for finding in job.findings]
            wrong += [f"{folder.name}: {problem}" for problem in problems if "; the log's hosts are" not in problem]
    assert not wrong, "\n".join(wrong)


def test_all_of_a_pod_is_read() -> None:
    first, second = containers.read_manifest("pods.yaml", SOUND.encode()).pods
    (container,) = first.containers
    assert (first.kind, first.owner, first.node) == ("Pod", "llama-3-8b-node-0", "ip-10-20-1-17.ec2.internal")
    assert second.hostname == "llama-3-8b-node-0-1"
    assert (container.gpus, container.amount("vpc.amazonaws.com/efa"), container.shm) == (8, 4, 64 << 30)
    assert container.capabilities == {"IPC_LOCK"}
    assert [variable.name for variable in container.env] == ["NCCL_DEBUG"]
    assert "hf_not_a_real_token" not in repr(first)
    assert first.machine == "p4d.24xlarge"


SHAPES = {
    "PyTorchJob": "pytorchReplicaSpecs.Worker.template.spec",
    "MPIJob": "mpiReplicaSpecs.Worker.template.spec",
    "JobSet": "replicatedJobs[0].template.spec.template.spec",
    "LeaderWorkerSet": "leaderWorkerTemplate.workerTemplate.spec",
    "Deployment": "template.spec",
    "Unheard": "a.b.c.spec",
}


def test_pods_are_found_by_their_shape() -> None:
    for kind, path in SHAPES.items():
        limits = {"limits": {"nvidia.com/gpu": 8}}
        inner: Any = {"containers": [{"name": "main", "resources": limits}], "hostIPC": True}
        for key in reversed(path.split(".")):
            inner = {key[:-3]: [inner]} if key.endswith("[0]") else {key: inner}
        text = json.dumps({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "llama"}, "spec": inner})
        (pod,) = containers.read_manifest("x.json", text.encode()).pods
        assert (pod.path, pod.host_ipc, pod.is_template) == (f"spec.{path}", True, True)
        assert pod.containers[0].gpus == 8


def test_several_documents_and_a_trainjob() -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llama}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - name: main\n        resources:\n          limits: {nvidia.com/gpu: 8}\n"
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n"
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  trainer:\n"
        "    numNodes: 4\n    resourcesPerNode:\n      limits: {nvidia.com/gpu: 1}\n"
    )
    deployment, trainer = containers.read_manifest("x", text.encode()).pods
    assert (deployment.is_whole, trainer.is_whole, trainer.containers[0].gpus) == (True, False, 1)


def test_quantities() -> None:
    sizes = {"64Gi": 64 << 30, "500M": 5e8, "1": 1, "1.5Gi": 1.5 * (1 << 30), "2e9": 2e9, "$SHM": None, "": None}
    assert {text: containers.quantity(text) for text in sizes} == sizes


ALIASES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
HOSTILE = {
    "a: &a [*a]\n": "stands for nothing, or for itself",
    "a: *b\n": "stands for nothing",
    "a: " + "[" * 5000 + "]" * 5000: "nested more than",
    "a: " + "{a: " * 5000: "nested more than",
    "a: !!python/object/apply:os.system ['true']\n": "describes no pod",
    "a: [1, 2\nb: {": "no YAML in line",
    "spec:\n\tcontainers: []\n": "no YAML in line",
    "spec: {containers: []}\n": "describes no pod",
    "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *ALIASES]): "aliases stand for",
}


def test_hostile_yaml_is_refused_with_the_reason() -> None:
    for text, reason in HOSTILE.items():
        with pytest.raises(ValueError, match=re.escape(reason)):
            containers.read_manifest("pod.yaml", (HEAD + text).encode())
    with pytest.raises(ValueError, match="larger than"):
        located.documents(bytes(located.MAX_BYTES + 1))


def test_anchors_and_merge_keys_are_understood() -> None:
    text = HEAD + (
        "x: &limits {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}\nspec:\n  containers:\n"
        "  - name: a\n    resources:\n      limits: {<<: *limits, hugepages-2Mi: 1Gi}\n"
    )
    (pod,) = containers.read_manifest("x", text.encode()).pods
    assert pod.containers[0].amount("vpc.amazonaws.com/efa") == 4
    assert pod.containers[0].asks("hugepages-2Mi")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PLACES = [
    *("spec", "spec.containers", "spec.containers.0", "spec.containers.0.resources", "spec.containers.0.env"),
    *("spec.containers.0.securityContext", "spec.containers.0.resources.limits", "spec.containers.0.volumeMounts"),
    *("spec.volumes", "status", "status.containerStatuses", "status.containerStatuses.0", "metadata", "spec.hostIPC"),
    *("metadata.ownerReferences", "metadata.annotations", "spec.containers.0.name", "metadata.name", "kind"),
]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_wrong_types_anywhere_are_read_or_refused(changes: list[tuple[str, Any]]) -> None:
    document = yaml.safe_load(SOUND)["items"][0]
    for place, value in changes:
        *way, last = (int(key) if key.isdigit() else key for key in place.split("."))
        around = document
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in way:
                around = around[key]
            around[last] = value
    with contextlib.suppress(ValueError):
        for pod in containers.read_manifest("pod.json", json.dumps(document).encode()).pods:
            assert pod.label is not None
            assert all(container.gpus >= 0 for container in pod.workers)


@given(VALUES, VALUES, VALUES)
def test_docker_may_say_anything(host: Any, config: Any, state: Any) -> None:
    text = json.dumps([{"Id": "1", "HostConfig": host, "Config": config, "State": state}])
    with contextlib.suppress(ValueError):
        containers.read_docker("x", text.encode())


def test_what_docker_says() -> None:
    (default,) = containers.read_docker("x", (BESIDE / "docker-default" / "docker.json").read_bytes()).pods
    (sound,) = containers.read_docker("x", (BESIDE / "docker-sound" / "docker.json").read_bytes()).pods
    assert (default.containers[0].shm, sound.containers[0].shm) == (64 << 20, math.inf)
    assert (default.host_network, sound.host_network) == (False, True)
    assert default.ended[0].code == 1
    assert [one.name for one in default.containers[0].env] == ["NCCL_DEBUG", "NCCL_P2P_DISABLE"]


def test_what_a_script_sets_and_asks_for() -> None:
    script = slurm.read_script("x", (BESIDE / "script-one-gpu-per-task" / "train.sbatch").read_bytes())
    assert {(one.name, one.value, one.line) for one in script.env} == {
        ("NCCL_DEBUG", "INFO", 8),
        ("NCCL_P2P_DISABLE", "1", 9),
        ("NCCL_SOCKET_IFNAME", "eth7", 10),
    }
    assert ("--gpus-per-task", "1") in {(one.name, one.value) for one in script.options}


@pytest.mark.slow
def test_work_is_linear_in_pods() -> None:
    pod = yaml.safe_load(SOUND)["items"][0]

    def work(size: int) -> int:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod] * size}, indent=1).encode()
        assert len(containers.read_manifest("x", text).pods) == size
        return calls(lambda: containers.read_manifest("x", text))

    assert work(200) < 5 * work(50)


# --- What is to be pasted into the pods of a workload mends the fault that is told of them

FAULTY = {
    one.name.rpartition("/")[2]: dict(one.texts)
    for one in inputs_of("built")
    if one.name.startswith("artifacts/patches/") and " in a " in one.name
}
"""Named for the rule and the kind of workload; each is a log, and the workload in `job.yaml`."""


def find_patches(folder: Path, name: str, log: bytes, text: str) -> Finding | None:
    (folder / "job.log").write_bytes(log)
    (folder / "job.yaml").write_text(text)
    rule = name.partition(" ")[0]
    return next((one for one in nccl_inspect.read(str(folder)).findings if one.rule == rule), None)


def paste_patch(text: str, fixes: list[str]) -> str:
    """Return the documents with each piece where its comment says that it belongs."""
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
    for entry in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from resources(entry)


def list_unmended(folder: Path, name: str, log: bytes, text: str) -> Iterator[str]:
    finding = find_patches(folder, name, log, text)
    if finding is None or not all(one.source.endswith("job.yaml") and one.line > 9 for one in finding.evidence):
        yield f"not found in the workload: {finding and finding.evidence}"
        return
    mended = paste_patch(text, finding.fix)
    if mended == text or find_patches(folder, name, log, mended):
        yield f"what is to be pasted does not mend it: {finding.fix}"
    for asked in resources([*yaml.safe_load_all(mended)]):
        limits, requests = asked.get("limits", {}), asked.get("requests", asked.get("limits", {}))
        if any(requests[key] != limits[key] for key in requests if "/" in key):
            yield f"refused: requests {requests}, limits {limits}"


@every(7)
def test_what_is_pasted_mends_a_fault(step: int, tmp_path: Path) -> None:
    wrong = [
        f"tests/answers/built/artifacts.zip, patches/{name}: {what}"
        for name, texts in [*FAULTY.items()][::step]
        for what in list_unmended(tmp_path, name, texts["job.log"], texts["job.yaml"].decode())
    ]
    assert len(FAULTY) == 36
    assert not wrong, "\n".join(wrong)
