"""Manifests, docker inspect and Slurm's files beside a log: what is recognised, refused, and explained by them."""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from repository import TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import containers, docker_inspect, located, manifest, slurm_job, slurm_script
from nccl_inspect.cli import cli
from nccl_inspect.judging.engine import registered
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

BESIDE = TESTS / "data" / "beside"
SOUND = (BESIDE / "pods-sound" / "pods.yaml").read_text()
KINDS = (manifest, docker_inspect, slurm_job, slurm_script)
EXPLAINING = {entry.rule.name for entry in registered() if entry.rule.explains}
LINE = "llama-3-8b-node-0-0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
EFA = (
    "llama-3-8b-node-0-0:2511:2511 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n"
    "llama-3-8b-node-0-0:2511:2511 [0] NCCL INFO NET/OFI No eligible providers were found\n"
    "llama-3-8b-node-0-0:2511:2511 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259 NCCL WARN NET/OFI "
    "Unable to find a protocol that worked.  Failing initialization.\n"
    "llama-3-8b-node-0-0:2511:2511 [0] NCCL INFO Using network Socket\n"
    "llama-3-8b-node-0-0:2511:2550 [0] NCCL INFO Channel 00/0 : 3[3] -> 0[0] [receive] via NET/Socket/0\n"
)
LOCKED = (
    "llama-3-8b-node-0-0:1:2 [0] misc/ibvwrap.cc:171 NCCL WARN Call to ibv_create_cq failed with error "
    "Cannot allocate memory\n"
)
SHM = (
    "llama-3-8b-node-0-0:1:2 [2] os/linux.cc:795 (ncclOsShmOpen) NCCL WARN Error: failed to extend "
    "/dev/shm/nccl-q3MaAd to 34210180 bytes, error: No space left on device (28)\n"
)
TEMPLATE = """# the training job
apiVersion: {api}
kind: {kind}
metadata:
  name: llama-3-8b-node
spec:
  replicas: 2
  template:
    metadata:
      labels: {{app: llama}}
    spec:
      containers:
        - name: main
          image: train:1
          env:
            - {{name: NCCL_P2P_DISABLE, value: "1"}}
          resources:
            limits:
              nvidia.com/gpu: 8
"""


def judged(log: str, *files: Path, tmp_path: Path | None = None, **texts: str) -> Job:
    """A log with files beside it, some of them written for the test."""
    names = [str(file) for file in files]
    for name, text in texts.items():
        assert tmp_path
        (tmp_path / name.replace("__", ".")).write_text(text)
        names.append(str(tmp_path / name.replace("__", ".")))
    return nccl_inspect.read([log.encode(), *names])


def found(job: Job, rule: str) -> Finding:
    (finding,) = (finding for finding in job.findings if finding.rule == rule)
    return finding


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pods-sound", manifest),
        ("docker-default", docker_inspect),
        ("slurm-timeout", slurm_job),
        ("script-sound", slurm_script),
    ],
)
def test_a_file_is_recognised_by_what_is_in_it(name: str, kind: Any) -> None:
    (file,) = (BESIDE / name).iterdir()
    data = file.read_bytes()
    assert artifacts.kind_of("anything", data[: artifacts.HEAD]) is kind
    quoted = data + LINE.encode()
    assert artifacts.kind_of("job.log", quoted[: artifacts.HEAD]) is None or len(data) > artifacts.HEAD
    assert artifacts.kind_of("job.log", (b"+ cat it\n" + data)[: artifacts.HEAD]) is None or kind is docker_inspect


def test_a_log_that_prints_its_manifest_first_is_a_log() -> None:
    for text in (SOUND, (BESIDE / "slurm-timeout" / "scontrol.txt").read_text()):
        assert not nccl_inspect.read((text[:3000] + "\nstarting\n" + LINE).encode()).artifacts
        assert artifacts.kind_of("x", (text[:3000].rpartition("\n")[0] + "\nStarting the job now\n").encode()) is None


def test_all_of_a_pod_is_read() -> None:
    first, second = manifest.read("pods.yaml", SOUND.encode()).pods
    (container,) = first.containers
    assert (first.kind, first.owner, first.node) == ("Pod", "llama-3-8b-node-0", "ip-10-20-1-17.ec2.internal")
    assert second.hostname == "llama-3-8b-node-0-1"
    assert (container.gpus, container.amount("vpc.amazonaws.com/efa"), container.shm) == (8, 4, 64 << 30)
    assert container.capabilities == {"IPC_LOCK"}
    assert [variable.name for variable in container.env] == ["NCCL_DEBUG"]
    assert "hf_not_a_real_token" not in repr(first)
    assert first.machine == "p4d.24xlarge"


def test_json_says_the_same_as_yaml() -> None:
    import yaml

    as_json = json.dumps(yaml.safe_load(SOUND), indent=4).encode()
    assert artifacts.kind_of("pods.json", as_json[: artifacts.HEAD]) is manifest
    pods = manifest.read("pods.json", as_json).pods
    assert [pod.name for pod in pods] == [pod.name for pod in manifest.read("x", SOUND.encode()).pods]
    assert pods[0].containers[0].amount("vpc.amazonaws.com/efa") == 4


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs.Worker.template.spec"),
        ("MPIJob", "mpiReplicaSpecs.Worker.template.spec"),
        ("JobSet", "replicatedJobs[0].template.spec.template.spec"),
        ("LeaderWorkerSet", "leaderWorkerTemplate.workerTemplate.spec"),
        ("Deployment", "template.spec"),
        ("Unheard", "a.b.c.spec"),
    ],
)
def test_pods_are_found_by_their_shape(kind: str, path: str) -> None:
    inner: Any = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}], "hostIPC": True}
    for key in reversed(path.split(".")):
        inner = {key[:-3]: [inner]} if key.endswith("[0]") else {key: inner}
    text = json.dumps({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "llama"}, "spec": inner})
    (pod,) = manifest.read("x.json", text.encode()).pods
    assert (pod.path, pod.host_ipc, pod.is_template) == (f"spec.{path}", True, True)
    assert pod.containers[0].gpus == 8


def test_several_documents_and_a_trainjob() -> None:
    text = TEMPLATE.format(api="apps/v1", kind="Deployment") + (
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n"
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  trainer:\n"
        "    numNodes: 4\n    resourcesPerNode:\n      limits: {nvidia.com/gpu: 1}\n"
    )
    deployment, trainer = manifest.read("x", text.encode()).pods
    assert (deployment.is_whole, trainer.is_whole, trainer.containers[0].gpus) == (True, False, 1)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64Gi", 64 << 30), ("500M", 5e8), ("1", 1), ("1.5Gi", 1.5 * (1 << 30)), ("2e9", 2e9), ("$SHM", None), ("", None)],
)
def test_quantities(text: str, size: float | None) -> None:
    assert containers.quantity(text) == size


HEAD = "apiVersion: v1\nkind: Pod\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD + "a: &a [*a]\n", "stands for nothing, or for itself"),
        (HEAD + "a: *b\n", "stands for nothing"),
        (HEAD + "a: " + "[" * 5000 + "]" * 5000, "nested more than"),
        (HEAD + "a: " + "{a: " * 5000, "nested more than"),
        (HEAD + "a: !!python/object/apply:os.system ['true']\n", "describes no pod"),
        (HEAD + "a: [1, 2\nb: {", "no YAML in line"),
        (HEAD + "spec:\n\tcontainers: []\n", "no YAML in line"),
        (HEAD + "spec: {containers: []}\n", "describes no pod"),
    ],
)
def test_hostile_yaml_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        manifest.read("pod.yaml", text.encode())


def test_aliases_may_not_stand_for_too_much() -> None:
    lines = ["apiVersion: v1", "kind: Pod", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ValueError, match="aliases stand for"):
        manifest.read("pod.yaml", "\n".join(lines).encode())


def test_what_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(located, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="larger than"):
        manifest.read("pod.yaml", SOUND.encode())


def test_anchors_and_merge_keys_are_understood() -> None:
    text = HEAD + (
        "x: &limits {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}\nspec:\n  containers:\n"
        "  - name: a\n    resources:\n      limits: {<<: *limits, hugepages-2Mi: 1Gi}\n"
    )
    (pod,) = manifest.read("x", text.encode()).pods
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


@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_wrong_types_anywhere_are_read_or_refused(changes: list[tuple[str, Any]]) -> None:
    import yaml

    document = yaml.safe_load(SOUND)["items"][0]
    for place, value in changes:
        *way, last = (int(key) if key.isdigit() else key for key in place.split("."))
        around = document
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in way:
                around = around[key]
            around[last] = value
    with contextlib.suppress(ValueError):
        for pod in manifest.read("pod.json", json.dumps(document).encode()).pods:
            assert pod.label is not None
            assert all(container.gpus >= 0 for container in pod.workers)


@given(st.sampled_from(KINDS), st.text(max_size=200))
def test_no_text_makes_a_reader_fall(kind: Any, text: str) -> None:
    with contextlib.suppress(ValueError):
        kind.read("x", text.encode())


@given(VALUES, VALUES, VALUES)
def test_docker_may_say_anything(host: Any, config: Any, state: Any) -> None:
    text = json.dumps([{"Id": "1", "HostConfig": host, "Config": config, "State": state}])
    with contextlib.suppress(ValueError):
        docker_inspect.read("x", text.encode())


def test_what_docker_says() -> None:
    (default,) = docker_inspect.read("x", (BESIDE / "docker-default" / "docker.json").read_bytes()).pods
    (sound,) = docker_inspect.read("x", (BESIDE / "docker-sound" / "docker.json").read_bytes()).pods
    assert (default.containers[0].shm, sound.containers[0].shm) == (64 << 20, math.inf)
    assert (default.host_network, sound.host_network) == (False, True)
    assert default.ended[0].code == 1
    assert [one.name for one in default.containers[0].env] == ["NCCL_DEBUG", "NCCL_P2P_DISABLE"]


def test_what_a_script_sets_and_asks_for() -> None:
    script = slurm_script.read("x", (BESIDE / "script-one-gpu-per-task" / "train.sbatch").read_bytes())
    assert {(one.name, one.value, one.line) for one in script.env} == {
        ("NCCL_DEBUG", "INFO", 8),
        ("NCCL_P2P_DISABLE", "1", 9),
        ("NCCL_SOCKET_IFNAME", "eth7", 10),
    }
    assert ("--gpus-per-task", "1") in {(one.name, one.value) for one in script.options}


FAULTS = [
    ("pods-without-efa", EFA, "rdma-device-not-requested", "vpc.amazonaws.com/efa: 4   # under spec.containers[0]"),
    (
        "pods-without-ipc-lock",
        LOCKED,
        "ipc-lock-missing",
        "capabilities: {add: [IPC_LOCK]}   # under spec.containers[0]",
    ),
    ("pods-without-shm", SHM, "shm-volume-missing", "- {name: dshm, mountPath: /dev/shm}   # under spec.containers[0]"),
]


@pytest.mark.parametrize(("name", "log", "rule", "patch"), FAULTS)
def test_a_fault_is_certain_and_has_a_patch(name: str, log: str, rule: str, patch: str) -> None:
    job = judged(log, BESIDE / name / "pods.yaml")
    finding = found(job, rule)
    assert finding.confidence == "certain"
    assert finding.fix[0].startswith(patch)
    assert all(line.source.endswith("pods.yaml") and line.line > 1 for line in finding.evidence)
    (effect,) = finding.explains[:1]
    assert rule in found(job, effect).because
    assert found(job, effect).confidence == "certain"


@pytest.mark.parametrize("log", [fault[1] for fault in FAULTS])
def test_a_correct_manifest_explains_nothing(log: str) -> None:
    job = judged(log, BESIDE / "pods-sound" / "pods.yaml")
    assert EXPLAINING.isdisjoint(finding.rule for finding in job.findings)
    assert job.findings


@pytest.mark.parametrize(
    "name", sorted(folder.name for folder in BESIDE.iterdir() if folder.name[:4] in ("pods", "dock", "slur", "scri"))
)
def test_a_faulty_manifest_beside_a_sound_log_raises_nothing(name: str) -> None:
    job = judged(LINE, *(BESIDE / name).iterdir())
    assert not job.findings
    problems = [artifact.problem for artifact in job.artifacts if artifact.problem]
    assert not [problem for problem in problems if "; the log's hosts are llama-3-8b-node-0-0" not in problem]


def test_a_template_gets_lines_with_their_place_and_a_command(tmp_path: Path) -> None:
    text = TEMPLATE.format(api="apps/v1", kind="StatefulSet")
    lock = found(judged(LOCKED, tmp_path=tmp_path, sts__yaml=text), "ipc-lock-missing")
    assert lock.fix[0] == (
        "securityContext: {capabilities: {add: [IPC_LOCK]}}"
        "   # sts.yaml:13, under spec.template.spec.containers[0], indented by 10 spaces"
    )
    assert lock.fix[1].startswith('kubectl patch statefulset llama-3-8b-node -p \'{"spec":{"template":')
    patch = json.loads(lock.fix[1].split("'")[1])
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "main", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    efa = found(judged(EFA, tmp_path=tmp_path, sts__yaml=text), "rdma-device-not-requested")
    assert "sts.yaml:19, under spec.template.spec.containers[0].resources.limits, indented by 14 spaces" in efa.fix[0]


def test_a_number_that_is_not_written_yet_is_no_fault(tmp_path: Path) -> None:
    text = TEMPLATE.format(api="batch/v1", kind="Job").replace(
        "gpu: 8", "gpu: 8\n              vpc.amazonaws.com/efa: $EFA"
    )
    job = judged(EFA, tmp_path=tmp_path, job__yaml=text)
    assert EXPLAINING.isdisjoint(finding.rule for finding in job.findings)


def test_privileged_containers_have_what_they_need(tmp_path: Path) -> None:
    text = TEMPLATE.format(api="batch/v1", kind="Job").replace("image: train:1", "securityContext: {privileged: true}")
    for log in (EFA, LOCKED):
        job = judged(log, tmp_path=tmp_path, job__yaml=text)
        assert EXPLAINING.isdisjoint(finding.rule for finding in job.findings)


def test_a_capability_of_another_user_is_told(tmp_path: Path) -> None:
    text = re.sub(r"^( +)(securityContext:)\n", r"\1\2\n\1  runAsUser: 1000\n", SOUND, flags=re.MULTILINE)
    job = judged(LOCKED, tmp_path=tmp_path, pods__yaml=text)
    assert found(job, "ipc-lock-missing").confidence == "likely"
    assert "user 1000" in found(job, "ipc-lock-missing").summary


def test_the_pods_of_another_job_explain_nothing(tmp_path: Path) -> None:
    other = (BESIDE / "pods-without-efa" / "pods.yaml").read_text().replace("llama-3-8b", "mistral")
    job = judged(EFA, BESIDE / "pods-sound" / "pods.yaml", tmp_path=tmp_path, other__yaml=other)
    assert EXPLAINING.isdisjoint(finding.rule for finding in job.findings)


def test_pods_on_nodes_of_their_own_are_no_fault() -> None:
    lines = "".join(
        f"llama-3-8b-node-0-{rank}:1:1 [0] NCCL INFO ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks 4 cudaDev 0 "
        f"nvmlDev {rank} busId {rank + 1}0 commId 0xb0 - Init START\n"
        f"llama-3-8b-node-0-{rank}:1:1 [0] NCCL INFO comm 0x{rank + 1} rank {rank} nRanks 4 nNodes 4 localRanks 1 "
        "localRank 0 MNNVL 0\n"
        f"llama-3-8b-node-0-{rank}:1:9 [0] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % 4}"
        f"[{(rank + 1) % 4}] [send] via NET/Libfabric/0/GDRDMA\n"
        for rank in range(4)
    )
    assert found(judged(lines), "one-gpu-per-pod").confidence == "likely"
    shared = judged(lines, BESIDE / "pods-of-one-gpu" / "pods.yaml")
    assert found(shared, "one-gpu-per-pod").confidence == "certain"
    assert found(shared, "pods-isolated").fix[0].startswith("nvidia.com/gpu: 8   # under spec.containers[0]")
    apart = judged(lines, BESIDE / "pods-of-one-gpu-apart" / "pods.yaml")
    assert not [finding for finding in apart.findings if finding.rule in ("one-gpu-per-pod", "pods-isolated")]


def test_a_folder_with_a_log_and_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(SHM)
    (tmp_path / "pods.yaml").write_text((BESIDE / "pods-without-shm" / "pods.yaml").read_text())
    (tmp_path / "broken.yaml").write_text(HEAD + "spec: [\n")
    result = CliRunner().invoke(cli, ["summarize", str(tmp_path)])
    assert "Traceback" not in result.output
    assert "get 64 MiB of /dev/shm" in " ".join(result.output.split())
    assert re.search(
        r"not used broken.yaml \(Kubernetes manifest\): damaged: no YAML in line", " ".join(result.output.split())
    )


def test_the_first_failure_is_told_beside_a_manifest() -> None:
    alone, beside = judged(SHM), judged(SHM, BESIDE / "pods-without-shm" / "pods.yaml")
    assert alone.first_failure == beside.first_failure


def test_a_large_list_is_read_in_time() -> None:
    import time

    import yaml

    pod = yaml.safe_load(SOUND)["items"][0]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod] * 500}, indent=1).encode()
    begin = time.perf_counter()
    assert len(manifest.read("x", text).pods) == 500
    assert time.perf_counter() - begin < 30


STATUS = """apiVersion: v1
kind: Pod
metadata:
  name: llama-3-8b-node-0-1
spec:
  containers:
  - name: node
    resources:
      limits:
        memory: 1100Gi
        nvidia.com/gpu: "8"
  nodeName: gpu-7
status:
{status}
"""
EVICTED = "  phase: Failed\n  reason: Evicted\n  message: 'The node was low on resource: memory.'\n"
RESTARTED = """  containerStatuses:
  - name: node
    restartCount: 1
    lastState:
      terminated: {exitCode: 137, reason: OOMKilled, finishedAt: "2026-11-20T23:13:07Z"}
    state:
      running: {startedAt: "2026-11-20T23:14:07Z"}
"""
DEATH = "".join(
    f"llama-3-8b-node-0-{host}:{pid}:{pid} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 4 "
    f"cudaDev {rank % 2} nvmlDev {rank} busId {rank + 6}0 commId 0x86adc82babd983d1 - Init COMPLETE\n"
    for host, pid, rank in ((0, 11, 0), (0, 12, 1), (1, 13, 2), (1, 14, 3))
) + (
    "llama-3-8b-node-0-0:11:70 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer \n"
    "llama-3-8b-node-0-0:12:71 [1] NCCL INFO comm 0x51 rank 1 nranks 4 cudaDev 1 busId 70 - Abort COMPLETE\n"
    "llama-3-8b-node-0-0:11:72 [0] NCCL INFO comm 0x50 rank 0 nranks 4 cudaDev 0 busId 60 - Abort COMPLETE\n"
)


@pytest.mark.parametrize(("status", "reason"), [(EVICTED, "Evicted"), (RESTARTED, "OOMKilled")])
def test_the_pod_of_a_dead_rank_is_named_with_the_reason(status: str, reason: str, tmp_path: Path) -> None:
    job = judged(DEATH, tmp_path=tmp_path, pod__yaml=STATUS.format(status=status))
    killed, death = found(job, "container-killed"), found(job, "peer-death")
    assert f"Pod llama-3-8b-node-0-1, ranks 2-3: {reason}" in killed.summary
    assert killed.confidence == ("certain" if reason == "Evicted" else "likely")
    assert job.findings[0] is killed
    assert death.because[0] == "container-killed"
    assert not death.root
    assert job.verdict == "failed"


def test_a_pod_that_was_killed_in_an_earlier_life_beside_a_sound_log(tmp_path: Path) -> None:
    job = judged(LINE, tmp_path=tmp_path, pod__yaml=STATUS.format(status=RESTARTED))
    assert not job.findings


@pytest.mark.parametrize(("name", "confidence"), [("ens1f0", "certain"), ("nope0", "likely")])
def test_an_interface_of_the_node_is_not_in_the_pod(name: str, confidence: str, tmp_path: Path) -> None:
    log = (
        f"llama-3-8b-node-0-1:49:49 [1] NCCL INFO NCCL_SOCKET_IFNAME set by environment to {name}\n"
        "llama-3-8b-node-0-1:49:49 [1] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found\n"
    )
    text = TEMPLATE.format(api="batch/v1", kind="Job")
    missing = found(judged(log, tmp_path=tmp_path, job__yaml=text), "host-network-missing")
    assert missing.confidence == confidence
    assert missing.fix[0] == "hostNetwork: true   # job.yaml:12, under spec.template.spec, indented by 6 spaces"
    hosted = text.replace("    spec:\n", "    spec:\n      hostNetwork: true\n")
    job = judged(log, tmp_path=tmp_path, job__yaml=hosted)
    assert "host-network-missing" not in [finding.rule for finding in job.findings]


TCP = (
    "llama-3-8b-node-0:1:1 [0] NCCL INFO NET/IB : No device found.\n"
    "llama-3-8b-node-0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    "llama-3-8b-node-1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
)


def test_machines_without_a_known_network_leave_a_doubt(tmp_path: Path) -> None:
    text = TEMPLATE.format(api="batch/v1", kind="Job")
    doubt = found(judged(TCP, tmp_path=tmp_path, job__yaml=text), "rdma-device-not-requested")
    assert doubt.confidence == "possible"
    asked = text.replace(
        "      containers:", "      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}\n      containers:"
    )
    sure = found(judged(TCP, tmp_path=tmp_path, job__yaml=asked), "rdma-device-not-requested")
    assert sure.confidence == "certain"
    assert sure.fix[0].startswith("vpc.amazonaws.com/efa: 32   # job.yaml:20")


def test_a_command_names_the_namespace(tmp_path: Path) -> None:
    text = TEMPLATE.format(api="apps/v1", kind="Deployment").replace("metadata:\n", "metadata:\n  namespace: ml\n", 1)
    log = "".join(
        f"vm:{pid}:{pid} [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
        f"vm:{pid}:9 [0] NCCL INFO Channel 00 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via SHM/direct/direct\n"
        for pid, rank in ((11, 0), (12, 1))
    )
    setting = found(judged(log, tmp_path=tmp_path, job__yaml=text), "setting-from-file")
    assert setting.summary == "NCCL_P2P_DISABLE=1 is set in job.yaml:17 (container main)"
    assert setting.fix == ["kubectl -n ml set env deployment/llama-3-8b-node NCCL_P2P_DISABLE-   # removes it"]
    assert setting.explains == ["p2p-disabled-by-env"]


@pytest.mark.parametrize(("value", "differs"), [("0", True), ("1", False), ("$(P2P)", False)])
def test_a_manifest_that_the_log_contradicts_is_named(value: str, differs: bool, tmp_path: Path) -> None:
    log = (
        "llama-3-8b-node-0-0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
        "llama-3-8b-node-0-0:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
    )
    text = TEMPLATE.format(api="batch/v1", kind="Job").replace('value: "1"', f'value: "{value}"')
    job = judged(log, tmp_path=tmp_path, job__yaml=text)
    if "$" in value:
        assert "setting-from-file" not in {finding.rule for finding in job.findings}
        return
    said = found(job, "setting-from-file")
    if differs:
        assert said.summary == "job.yaml:16 sets NCCL_P2P_DISABLE=0, and the log shows NCCL_P2P_DISABLE=1"
        assert said.confidence == "likely"
        assert [line.line for line in said.evidence] == [16, 1]
    else:
        assert said.confidence == "certain"
