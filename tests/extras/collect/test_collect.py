"""``collect``: what is run, what is kept, and that nothing is changed; the clusters are programs that answer."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from command_line import execute, invoke
from repository import ROOT
from stub_cluster import POD, answer_as_kubernetes, calls

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras import collect as collecting
from nccl_inspect.extras.collect import host, kubernetes, slurm
from nccl_inspect.extras.collect.collection import Command, mask_manifest

SAMPLE = ROOT / "sample_logs" / "field-notes" / "p4d-4pod-1gpu-efa.log"
READING: dict[str, set[tuple[str, ...]]] = {
    "kubectl": {("get",), ("logs",), ("describe",)},
    "scontrol": {("show", "job"), ("show", "step"), ("show", "node")},
    "sacct": {()},
    "nvidia-smi": {("-L",), ("-q",), ("topo", "-m"), ("nvlink", "-s"), ("nvlink", "-e")},
    "ibstat": {()},
    "ibv_devinfo": {("-v",)},
    "rdma": {("link",)},
    "show_gids": {()},
    "fi_info": {("-p", "efa")},
    "grep": {("-H", ".")},
    "lsmod": {()},
    "bash": {("-c", "ulimit -a")},
    "cat": {("/proc/self/limits",)},
    "df": {("-h", "/dev/shm")},
    "ip": {("addr",)},
    "dmesg": {("-T",)},
    "uname": {("-a",)},
}
"""Commands that only read, by how they begin."""
FORBIDDEN = {
    *("delete", "apply", "create", "patch", "edit", "exec", "scale", "update", "cancel", "set", "write", "-C", "-c")
}


def reads_only(argv: tuple[str, ...]) -> bool:
    program, *rest = argv
    return any(tuple(rest[: len(begin)]) == begin for begin in READING[program])


def tables() -> list[Command]:
    return [command for module in (kubernetes, slurm, host) for command in module.COMMANDS.values()]


def test_tables_have_commands_that_read_only() -> None:
    assert not [command.argv for command in tables() if not reads_only(command.argv)]
    assert not [c.argv for c in tables() if c.argv[0] != "bash" and FORBIDDEN & set(c.argv)]
    assert collecting.names() == ("host", "kubernetes", "slurm")
    assert all(collecting.load(name).HELP for name in collecting.names())


def test_a_job_on_kubernetes(programs: Path, tmp_path: Path) -> None:
    """All is kept, secrets are masked, and the folder is read like a log."""
    answer_as_kubernetes(programs)
    done = invoke("collect", "kubernetes", "job/llama", "-n", "training", "-o", "got")
    assert done.return_value == 0
    files = {path.relative_to(tmp_path / "got").as_posix(): path for path in (tmp_path / "got").rglob("*")}
    assert {name for name, path in files.items() if path.is_file()} == {
        *("collection.txt", "events", "owners/Job.v1.batch-llama.json", "pods.json"),
        *("logs/llama-0/fetch.log", "logs/llama-0/trainer.log", "logs/llama-0/trainer.previous.log"),
    }
    assert all(reads_only(tuple(call)) for call in calls(programs))
    assert all("--namespace=training" in call for call in calls(programs) if call[1] != "describe")
    shown = [line.removeprefix("nccl-inspect: + ") for line in done.stderr.splitlines() if " + " in line]
    assert len(shown) == len(calls(programs))
    index = files["collection.txt"].read_text()
    assert "kubectl describe node node-7\n      status 1: Error from server (Forbidden): not allowed" in index
    assert "PyTorchJob.v1.kubeflow.org llama" in index, "what owns the owner"
    others = (path for name, path in files.items() if path.is_file() and not name.startswith("logs"))
    assert not [path for path in others if "sesame" in path.read_text()]
    container = json.loads(files["pods.json"].read_text())["items"][0]["spec"]["containers"][0]
    assert container["env"][0] == {"name": "HF_TOKEN", "value": "***"}
    assert container["env"][1] == {"name": "NCCL_DEBUG", "value": "INFO"}
    assert container["env"][3] == POD["spec"]["containers"][0]["env"][3]
    assert container["command"] == ["train", "--api-key", "***", "--token=***", "--rank", "3"]
    job = nccl_inspect.read(str(tmp_path / "got"))
    assert "one-gpu-per-pod" in [finding.rule for finding in job.findings]
    assert "collection.txt" not in " ".join(source.name for source in job.sources)
    with pytest.raises(NcclInspectError, match="already holds a collection"):
        invoke("collect", "kubernetes", "job-name=llama", "-o", "got")


@pytest.mark.slow
def test_an_archive_has_the_same(programs: Path, tmp_path: Path) -> None:
    answer_as_kubernetes(programs)
    assert invoke("collect", "kubernetes", "job-name=llama", "-o", "got.tar.gz").return_value == 0
    with tarfile.open(tmp_path / "got.tar.gz") as archive:
        assert "got/logs/llama-0/trainer.log" in archive.getnames()
    assert (tmp_path / "got.tar.gz").stat().st_mode & 0o077 == 0
    assert "one-gpu-per-pod" in [finding.rule for finding in nccl_inspect.read(str(tmp_path / "got.tar.gz")).findings]


def test_a_dry_run_runs_nothing(programs: Path, tmp_path: Path) -> None:
    for args in (["kubernetes", "job/llama"], ["slurm", "4711"], ["host"]):
        done = invoke("collect", *args, "--dry-run")
        assert done.return_value == 0
        assert " + " in done.stderr
    assert calls(programs) == []
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


@pytest.mark.slow
def test_what_cannot_be_collected_is_one_line(programs: Path, tmp_path: Path) -> None:
    wrong: list[object] = []
    for args, says in {
        "kubernetes": "needs SELECTOR",
        "slurm": "needs JOBID",
        "host x": "omit 'x'",
        "kubernetes cronjob/x": "how pods of a cronjob are found is not known",
        "kubernetes job/x": "kubectl: status 1: Error from server (Forbidden): not allowed",
        "slurm -- -x": "not the number of a job",
        "slurm 4711": "Slurm says nothing of job 4711",
    }.items():
        done = execute("collect", *args.split())
        last = done.stderr.decode().splitlines()[-1]
        if done.returncode != 2 or says not in last or [path.name for path in tmp_path.iterdir()] != ["bin"]:
            wrong.append((args, done))
    assert not wrong


@pytest.mark.slow
def test_names_from_a_cluster_are_data_only(programs: Path, tmp_path: Path) -> None:
    evil = [{"metadata": {"name": name}} for name in ("--kubeconfig=x", "../../etc", "a b", "")]
    container = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "../../../out"}], "nodeName": "-n"}}
    owner = {"metadata": {"name": "pod-2", "ownerReferences": [{"kind": "--all", "name": "x", "apiVersion": "v1"}]}}
    (programs / "answers.json").write_text(
        json.dumps([(["get pods"], json.dumps({"items": [*evil, container, owner]})), (["logs"], "a line\n")])
    )
    invoke("collect", "kubernetes", "a=b", "-o", "got")
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "got"}
    assert [call[1:3] for call in calls(programs)] == [["get", "pods"], ["logs", "pod"], ["get", "events"]]


SAID = """JobId=4711 JobName=llama
   JobState=FAILED Reason=NonZeroExitCode
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=node[001-002]
   Command=/home/me/train.sbatch --token sesame
   StdErr={folder}/job-4711.out
   StdOut={folder}/job-4711.out
"""


def test_a_job_of_slurm(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "job-4711.out").write_bytes(SAMPLE.read_bytes())
    answers = [
        (["show job", "4711"], SAID.format(folder=tmp_path)),
        (["show node", "node[001-002]"], "NodeName=node001 State=DOWN\n"),
    ]
    (programs / "answers.json").write_text(json.dumps(answers))
    assert invoke("collect", "slurm", "4711", "-o", "got").return_value == 0
    assert (tmp_path / "got" / "logs" / "job-4711.out").read_bytes() == SAMPLE.read_bytes()
    assert "--token ***" in (tmp_path / "got" / "scontrol-job").read_text()
    assert (tmp_path / "got" / "scontrol-nodes").exists()
    assert "sacct" in (tmp_path / "got" / "collection.txt").read_text().partition("failed")[2]
    assert all(reads_only(tuple(call)) for call in calls(programs))
    assert nccl_inspect.read(str(tmp_path / "got")).verdict == "degraded"
    for task in range(3):
        (tmp_path / f"job-4711-{task}.out").touch()
    said = f"   StdErr={tmp_path}/job-4711-%t.out\n   StdOut=(null)\n"
    assert [path.name for path in slurm._files(said)] == [f"job-4711-{task}.out" for task in range(3)]


@pytest.mark.slow
def test_this_machine(programs: Path, tmp_path: Path) -> None:
    (programs / "answers.json").write_text(json.dumps([(["nvidia-smi -L"], "GPU 0: NVIDIA H100 (UUID: GPU-1)\n")]))
    assert invoke("collect", "host", "-o", "got").return_value == 0
    folder = tmp_path / "got" / host.folder()
    assert (folder / "nvidia-smi-L").read_text().startswith("GPU 0")
    index = (folder / "collection.txt").read_text()
    assert "  ibstat\n" in index.partition("not installed")[2]
    assert all(reads_only(tuple(call)) for call in calls(programs))


@pytest.mark.slow
def test_a_command_that_hangs_is_given_up(programs: Path, tmp_path: Path) -> None:
    (programs / "nvidia-smi").write_text("#!/bin/sh\n/bin/sleep 60\n")
    done = invoke("collect", "host", "--timeout", "0.2", "-o", "got")
    assert done.return_value in (0, 1)
    assert "no end after 0.2 s" in (tmp_path / "got" / host.folder() / "collection.txt").read_text()


def test_no_ras_and_what_is_no_manifest_are_errors_in_words() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        mask_manifest(b"Unable to connect to the server: TOKEN=x")
    for where in ("nowhere", "host:port", "localhost:9"):
        with pytest.raises(OSError, match=r"HOST:PORT|refused"):
            host.answer(where, "text", 1)
