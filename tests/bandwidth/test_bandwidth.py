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
