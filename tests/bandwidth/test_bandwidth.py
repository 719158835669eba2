"""Result tables of all formats are read as rows, and each figure of hardware has a source. All tables are made up.

What is compared with what is in `tests/labels/built_bandwidth.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import nccl_inspect
from nccl_inspect.bandwidth import measured, tables
from nccl_inspect.bandwidth.lines import select_lines
from nccl_inspect.extras.gate import differences
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.text import decode

FORMATS = Path(__file__).with_name("tables.txt")


def lines_of(text: str) -> list[Evidence]:
    return [Evidence("job.log", place + 1, decode(line)) for place, line in select_lines(text.encode())]


def test_tables_of_all_formats_are_rows() -> None:
    wrong = []
    for part in FORMATS.read_text(encoding="utf-8").split("=== ")[1:]:
        name, *lines = part.split("\n")
        expected = [line for line in lines if line.startswith("--- ")]
        found = [
            f"--- {table.tool} | {table.operation} | {table.ranks} | {len(table.rows)} rows, "
            f"{len(table.wrong_rows)} wrong | {best.size} | {best.busbw:g}"
            for table in tables.tables(lines_of("\n".join(lines[len(expected) :])))
            for best in [max(table.rows, key=lambda row: row.busbw)]
        ]
        if found != expected:
            wrong.append(f"{name}: {found}")
    assert not wrong, "\n".join(wrong)


ROW = " 1073741824  268435456     float     sum      -1   4478.8  239.74  449.51      0   4463.7  240.55  451.03      0"
RANKS = "".join(
    f"#  Rank {r:2} Group  0 Pid   {100 + r} on      node{r // 8} device {r % 8:2} [0x{r:02x}] NVIDIA H100 80GB HBM3\n"
    for r in range(16)
)
STEP, ALL = "seconds per step", "seconds in all"
TRAININGS = {
    "| elapsed time per iteration (ms): 401.0 |\n| elapsed time per iteration (ms): 403.0 |": {STEP: 0.402},
    "{'train_runtime': 981.45, 'train_samples_per_second': 13.04}": {"samples per second": 13.04, ALL: 981.45},
    "  train_runtime   = 0:16:21.45\n  train_steps_per_second = 0.051\n  eval_runtime = 0:00:10": {
        ALL: 981.45,
        STEP: 19.608,
    },
    "Loading shards: 100%|##| 4/4 [1:00:05<00:00, 1.4s/it]\n  2%|  | 1/50 [00:20<16:40, 20.4s/it]\r100%|##| 50/50 "
    "[16:21<00:00, 19.63s/it]": {STEP: 19.62, ALL: 981},
    "step: 10  loss:  8.1  tps: 5,123  tflops: 312.00": {"tokens per second and GPU": 5123},
    "Epoch 0: 10%| 10/100 [00:10<01:30, v_num=0, train_step_timing in s=1.23]": {STEP: 1.23},
    "completed step: 5, seconds: 1.234, Tokens/s/device: 1234.5": {STEP: 1.234, "tokens per second and GPU": 1234.5},
    "Training time 1 day, 0:00:01": {ALL: 86401},
    "num_input_tokens_seen: 55\nMap: 100%|#| 5/5 [00:01<00:00, 4.2it/s]": {},
}


def test_speeds_of_a_training_are_stated() -> None:
    jobs = {text: nccl_inspect.read(f"{ROW}\n{text}\n".encode()) for text in TRAININGS}
    found = {text: {speed.what: round(speed.median, 3) for speed in job.training} for text, job in jobs.items()}
    assert found == TRAININGS


def test_the_end_of_a_long_log_is_read() -> None:
    noise = "".join(f"2026-01-02 03:04:05 worker {n} says nothing of interest\n" for n in range(30_000))
    job = nccl_inspect.read(f"{noise}{ROW}\n{{'train_runtime': 981.45}}\n".encode())
    assert [entry.line.line for entry in job.bandwidth if entry.line] == [30_001]
    assert [(speed.what, speed.line.line) for speed in job.training] == [(ALL, 30_002)]


def test_every_figure_is_a_range_with_a_source() -> None:
    file = Path(measured.__file__).parent / "figures" / "published.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    wrong = [
        entry
        for entry in (*data["figure"], *data["network"])
        if not (entry["low"] < entry["high"] and entry["source"].startswith("https://"))
        or entry.get("floor", 0) >= entry["low"]
        or not ({"names", "platforms"} & entry.keys())
    ]
    assert not wrong, wrong


def test_a_change_of_paths_explains_that_a_training_takes_longer() -> None:
    line = "node0:1:2 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/{}/0\n"
    rdma, tcp = line.format("Libfabric"), line.format("Socket")
    runs = {"rdma": rdma + "train_runtime = 0:10:00\n", "tcp": tcp + "train_runtime = 0:25:00\n", "silent": tcp}
    jobs = {name: nccl_inspect.read(text.encode()) for name, text in runs.items()}
    found = differences.compare(jobs["rdma"], jobs["tcp"])
    assert [change.after for change in found.changes_in_area("bandwidth")] == ["0:25:00 in all, 2.5 times slower"]
    explained = [[finding.what for finding in chain.findings] for chain in found.explanations]
    assert explained == [["socket-instead-of-rdma"]]
    silent = differences.compare(jobs["rdma"], jobs["silent"]).open
    assert "training: not in the log of B (0:10:00 in all in the other)" in silent
