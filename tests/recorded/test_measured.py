"""What each path between two H200 gave (`tools/measure_paths.py`): logs and results of the same runs agree."""

from __future__ import annotations

import json
from typing import Any

from repository import ROOT

import nccl_inspect

RUNS = sorted((ROOT / "sample_logs" / "measured").iterdir())
RULES: dict[str, list[str]] = {
    "channels-1": ["channel-limit-by-env"],
    "channels-2": ["channel-limit-by-env"],
    "channels-4": ["channel-limit-by-env"],
    "copy-engine": ["p2p-copy-engine"],
    "nodes": ["one-gpu-per-pod", "socket-instead-of-rdma"],
    "read": ["p2p-read-mode"],
    "shm": ["p2p-disabled-by-env", "shm-instead-of-p2p"],
    "socket": ["shm-disabled-by-env", "p2p-disabled-by-env", "net-instead-of-p2p"],
    "tree": ["no-algorithm"],
}
"""What is found in the log of a run; of the others nothing that costs."""


def test_logs_are_judged_as_what_was_forced() -> None:
    wrong = []
    for run in RUNS:
        path = json.loads((run / "truth.json").read_text("utf-8"))["path"]
        job = nccl_inspect.read(run / "job.log")
        found = [finding.rule for finding in job.findings if finding.severity != "info"]
        if {one.detail.partition("/direct")[0] for one in job.paths} != {path} or found != RULES.get(run.name, []):
            wrong.append(f"{run.name}: {found}, {[one.detail for one in job.paths]}")
    assert not wrong, "\n".join(wrong)


def test_what_is_called_a_cost_costs() -> None:
    best: dict[str, float] = {}
    for run in RUNS:
        rows: list[dict[str, Any]] = json.loads((run / "results.json").read_text("utf-8")) if run.name != "tree" else []
        best |= {run.name: max(row["busbw"] for row in rows if row["operation"] == "all_reduce")} if rows else {}
    slow = {name for name, rate in best.items() if rate < 0.9 * best["default"]}
    assert slow == RULES.keys() - {"tree"} | {"ring-ll"}, best
