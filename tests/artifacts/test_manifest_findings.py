"""What manifests beside a log explain: faults, patches, pods of dead ranks; and what they do not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from call_count import calls
from click.testing import CliRunner
from manifest_logs import BESIDE, HEAD, LINE, SOUND, TEMPLATE

import nccl_inspect
from nccl_inspect.artifacts import manifest
from nccl_inspect.cli import cli
from nccl_inspect.judging.engine import registered
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

EXPLAINING = {entry.rule.name for entry in registered() if entry.rule.explains}
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


def test_work_is_linear_in_pods() -> None:
    import yaml

    pod = yaml.safe_load(SOUND)["items"][0]

    def work(size: int) -> int:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod] * size}, indent=1).encode()
        assert len(manifest.read("x", text).pods) == size
        return calls(lambda: manifest.read("x", text))

    assert work(200) < 5 * work(50)


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
        assert said.summary == "job.yaml:16 sets NCCL_P2P_DISABLE=0, but the log shows NCCL_P2P_DISABLE=1"
        assert said.confidence == "likely"
        assert [line.line for line in said.evidence] == [16, 1]
    else:
        assert said.confidence == "certain"
