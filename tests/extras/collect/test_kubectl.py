"""``kubectl nccl``: one command from the name of a job to its report; the cluster is a program that answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stub_cluster import POD, answer_as_kubernetes, calls

READING = {"get", "logs", "describe"}
pytestmark = pytest.mark.slow


def run(entry: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Return an entry point of the package, by its module and function, in a process of its own."""
    module, _, function = entry.partition(":")
    code = f"from {module} import {function}; {function}()"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, check=False)


def plugin(*args: str) -> subprocess.CompletedProcess[str]:
    return run("nccl_inspect.__main__:kubectl", *args)


def answer_as_a_job_by_its_name(programs: Path) -> None:
    """Answer as Kubernetes with the job ``llama``: its pods have other names, and the label of a PyTorchJob."""
    answer_as_kubernetes(programs)
    none = json.dumps({"kind": "List", "items": []})
    answers = json.loads((programs / "answers.json").read_text())
    found = [["get pods", "training.kubeflow.org/job-name=llama"], json.dumps({"kind": "List", "items": [POD]})]
    (programs / "answers.json").write_text(json.dumps([found, [["get pods", "--selector="], none], *answers[1:]]))
    stub = (programs / "kubectl").read_text()
    missing = (
        'if sys.argv[1:4] == ["get", "pods", "llama"]:\n    sys.exit("Error from server (NotFound): no pods llama")\n'
    )
    (programs / "kubectl").write_text(stub.replace("answers =", missing + "answers ="))


def test_the_report_of_a_job_comes_at_once(programs: Path, tmp_path: Path) -> None:
    answer_as_kubernetes(programs)
    done = plugin("job/llama", "-n", "training", "--context", "west", "--fail-on", "error")
    assert done.returncode == 1
    assert done.stdout.startswith("DEGRADED: ")
    assert str(tmp_path) not in done.stdout
    assert "trainer.log" in done.stdout
    assert "kubectl describe node node-7" in done.stderr, "what could not be had"
    assert {call[1] for call in calls(programs)} <= READING
    assert all("--context=west" in call for call in calls(programs))
    assert all("--namespace=training" in call for call in calls(programs) if call[1] != "describe")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"], "nothing is left"


def test_a_name_alone_is_looked_for_among_pods_and_jobs(programs: Path) -> None:
    answer_as_a_job_by_its_name(programs)
    done = plugin("llama", "--keep", "kept")
    assert done.stdout.startswith("DEGRADED: ")
    index = Path("kept/collection.txt").read_text()
    assert "training.kubeflow.org/job-name=llama" in index
    assert "NotFound" not in index, "what was tried before is no failure"


def test_labels_choose_pods_and_settings_are_those_of_the_folder(programs: Path) -> None:
    answer_as_kubernetes(programs)
    done = plugin("-l", "job-name=llama", "--format", "json", "-o", "job.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(Path("job.json").read_text())["verdict"] == "degraded"
    Path("nccl-inspect.toml").write_text('ignore = ["one-gpu-per-pod"]\n')
    done = plugin("job/llama")
    assert "settings from" in done.stderr
    assert "ERROR one-gpu-per-pod" not in done.stdout


def test_what_is_kept_is_not_mixed_with_another_collection(programs: Path) -> None:
    answer_as_kubernetes(programs)
    assert plugin("job/llama", "--keep", "kept").returncode == 0
    done = plugin("job/llama", "--keep", "kept")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "nccl-inspect: kept: already holds a collection; choose another folder with --keep",
    )


def test_what_is_wrong_is_one_line(programs: Path, tmp_path: Path) -> None:
    wrong: list[object] = []
    for args, says in {
        "": "name a job: kubectl nccl JOB",
        "x -l app=x": "JOB and -l exclude each other",
        "cronjob/x": "how pods of a cronjob are found is not known",
        "job/x": "kubectl: status 1: Error from server (Forbidden): not allowed",
        "x": "kubectl: status 1: Error from server (Forbidden): not allowed",
        "x --no-such": "--no-such",
    }.items():
        before = len(calls(programs))
        done = plugin(*args.split())
        asked = len(calls(programs)) - before
        is_alone = [path.name for path in tmp_path.iterdir()] == ["bin"]
        if (done.returncode, done.stdout, done.stderr.count("\n"), is_alone) != (2, "", 1, True):
            wrong.append((args, done))
        elif says not in done.stderr or asked > 1:  # a cluster that refuses is not asked again
            wrong.append((args, asked, done.stderr))
    (programs / "kubectl").unlink()
    wrong += [] if plugin("job/x").stderr.startswith("nccl-inspect: kubectl: not installed; ") else ["no kubectl"]
    assert not wrong


def test_pods_that_print_nothing_of_nccl_are_told(programs: Path) -> None:
    answer_as_kubernetes(programs)
    answers = json.loads((programs / "answers.json").read_text())
    answers[3][1] = "epoch 1\n"
    (programs / "answers.json").write_text(json.dumps(answers))
    done = plugin("job/llama")
    assert done.returncode == 3
    assert "NCCL_DEBUG=INFO" in done.stderr
