"""What each path between two and four H200 gave (`tools/measure_paths.py`): logs and results of the same runs agree.

What is known of each log is in `tests/labels/measured.toml`.
"""

from __future__ import annotations

import json
import lzma
import re
from typing import Any

from known_labels import labels
from repository import ROOT

import nccl_inspect

FOLDERS = ROOT / "sample_logs" / "measured", ROOT / "sample_logs" / "measured-4"


def test_what_is_called_a_cost_costs() -> None:
    for folder in FOLDERS:
        best: dict[str, float] = {}
        for results in folder.glob("*/results.json"):
            rows: list[dict[str, Any]] = json.loads(results.read_text("utf-8"))
            best[results.parent.name] = max(row["busbw"] for row in rows if row["operation"] == "all_reduce")
        slow = {name for name, rate in best.items() if rate < 0.9 * best["default"]}
        logs = {name: next((folder / name).glob("job.log*")).relative_to(ROOT).as_posix() for name in best}
        assert slow == {name for name, log in logs.items() if labels()[log][1]["faults"]}, best


def test_a_slow_run_is_not_hidden_by_the_better_results_of_an_earlier_one() -> None:
    text = lzma.decompress((FOLDERS[1] / "default" / "nccl_tests.log.xz").read_bytes())
    first = text[: text.index(b"# Collective test concluded")]
    again = re.sub(rb"(Pid +|vm:)(\d)", rb"\g<1>1\2", first)
    slow = re.sub(rb"(float     sum      -1 +)[\d.]+ +[\d.]+ +[\d.]+", rb"\g<1>44000.0   24.40   36.60", again)
    slow = re.sub(rb"0 +[\d.]+ +[\d.]+ +[\d.]+( +0\n)", rb"0  44000.0   24.40   36.60\1", slow)
    job = nccl_inspect.read(first + slow)
    assert [(entry.measured_gbps > 100, entry.verdict) for entry in job.bandwidth] == [(True, "ok"), (False, "low")]
    assert (job.verdict, job.findings[0].rule) == ("degraded", "bandwidth-low")
