"""Result tables of all formats are read as rows, and each figure of hardware has a source. All tables are made up.

What is compared with what is in `tests/labels/built_bandwidth.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import nccl_inspect
from nccl_inspect.bandwidth import measured, tables
from nccl_inspect.bandwidth.lines import select_lines
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


def test_the_end_of_a_long_log_is_read() -> None:
    noise = "".join(f"2026-01-02 03:04:05 worker {n} says nothing of interest\n" for n in range(30_000))
    job = nccl_inspect.read(f"{noise}{ROW}\n{{'train_runtime': 981.45}}\n".encode())
    assert [entry.line.line for entry in job.bandwidth if entry.line] == [30_001]
    assert [(speed.what, speed.line.line) for speed in job.training] == [("seconds in all", 30_002)]


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


def test_as_many_slow_nics_as_connections_use_are_the_least_of_nodes_whose_gpus_are_known() -> None:
    gpu = "#  Rank {0} Group 0 Pid {0} on host{1} device {2} [0000:1b:00] NVIDIA H100 80GB HBM3\n"
    start = "host{1}:{0}:{0} [{2}] NCCL INFO comm 0x{0} rank {0} nranks 16 cudaDev {2} busId {2}000 - Init COMPLETE\n"
    way = "host{1}:{0}:{0} [{2}] NCCL INFO Channel 00/0 : {0}[{2}] -> {3}[{2}] [send] via NET/IB/{4}/GDRDMA\n"
    row = " 1073741824 268435456 float sum -1 {0:.1f} {1:.2f} 41.25 0 {0:.1f} {1:.2f} 41.25 0\n"
    verdicts = []
    for nics in (8, 1):
        places = [(rank, rank // 8, rank % 8, (rank + 8) % 16, rank % nics) for rank in range(16)]
        text = "".join(line.format(*place) for line in (gpu, start, way) for place in places)
        job = nccl_inspect.read((text + row.format(2**30 / 22e3, 22.0)).encode())
        verdicts.append([entry.verdict for entry in job.bandwidth])
    assert verdicts == [["low"], ["unknown"]]
