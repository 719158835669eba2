"""What each path between two and four H200 gave (`tools/measure_paths.py`): logs and results of the same runs agree."""

from __future__ import annotations

import json
import lzma
import re
from typing import Any

from repository import ROOT

import nccl_inspect

FOLDERS = ROOT / "sample_logs" / "measured", ROOT / "sample_logs" / "measured-4"
RUNS = [run for folder in FOLDERS for run in sorted(folder.iterdir())]
RULES: dict[str, list[str]] = {
    "channels-1": ["channel-limit-by-env"],
    "channels-2": ["channel-limit-by-env"],
    "channels-4": ["channel-limit-by-env"],
    "copy-engine": ["p2p-copy-engine"],
    "nodes": ["one-gpu-per-pod", "socket-instead-of-rdma"],
    "measured-4/nodes": ["socket-instead-of-rdma"],
    "nodes-4": ["one-gpu-per-pod", "socket-instead-of-rdma"],
    "read": ["p2p-read-mode"],
    "ring-ll": ["algo-proto-forced"],
    "shm": ["p2p-disabled-by-env", "shm-instead-of-p2p"],
    "socket": ["shm-disabled-by-env", "p2p-disabled-by-env", "net-instead-of-p2p"],
    "tree": ["no-algorithm"],
}
"""What is found in the log of a run; of the others nothing that costs."""


def test_logs_are_judged_as_what_was_forced() -> None:
    wrong = []
    for run in RUNS:
        truth = json.loads((run / "truth.json").read_text("utf-8"))
        job = nccl_inspect.read(next(run.glob("job.log*")))
        found = [finding.rule for finding in job.findings if finding.severity != "info"]
        paths = {one.detail.partition("/direct")[0] for one in job.paths if truth["nodes"] == 1 or one.scope == "inter"}
        wanted = RULES.get(f"{run.parent.name}/{run.name}", RULES.get(run.name, []))
        if paths != {truth["path"]} or found != wanted:
            wrong.append(f"{run}: {found}, {paths}")
    assert not wrong, "\n".join(wrong)


def test_what_is_called_a_cost_costs() -> None:
    for folder in FOLDERS:
        best: dict[str, float] = {}
        for results in folder.glob("*/results.json"):
            rows: list[dict[str, Any]] = json.loads(results.read_text("utf-8"))
            best[results.parent.name] = max(row["busbw"] for row in rows if row["operation"] == "all_reduce")
        slow = {name for name, rate in best.items() if rate < 0.9 * best["default"]}
        assert slow == best.keys() & RULES.keys(), best


def test_each_program_of_a_log_is_judged_by_its_own_connections() -> None:
    verdicts = {}
    for run in FOLDERS[1].glob("*/nccl_tests.log.xz"):
        job = nccl_inspect.read(run)
        verdicts[run.parent.name] = {entry.operation: entry.verdict for entry in job.bandwidth}
        assert "bandwidth-low" not in [finding.rule for finding in job.findings if finding.root]  # the path explains it
    operations = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
    assert verdicts == {"default": dict.fromkeys(operations, "ok"), "shm": dict.fromkeys(operations, "low")}


def test_a_slow_run_is_not_hidden_by_the_better_results_of_an_earlier_one() -> None:
    text = lzma.decompress((FOLDERS[1] / "default" / "nccl_tests.log.xz").read_bytes())
    first = text[: text.index(b"# Collective test concluded")]
    again = re.sub(rb"(Pid +|vm:)(\d)", rb"\g<1>1\2", first)
    slow = re.sub(rb"(float     sum      -1 +)[\d.]+ +[\d.]+ +[\d.]+", rb"\g<1>44000.0   24.40   36.60", again)
    slow = re.sub(rb"0 +[\d.]+ +[\d.]+ +[\d.]+( +0\n)", rb"0  44000.0   24.40   36.60\1", slow)
    job = nccl_inspect.read(first + slow)
    assert [(entry.measured_gbps > 100, entry.verdict) for entry in job.bandwidth] == [(True, "ok"), (False, "low")]
    assert (job.verdict, job.findings[0].rule) == ("degraded", "bandwidth-low")
