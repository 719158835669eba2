"""Result tables of all formats are read as rows, and each figure of hardware has a source. All tables are made up.

What is compared with what is in `tests/labels/built_bandwidth.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from nccl_inspect.bandwidth import expectation, tables
from nccl_inspect.bandwidth.lines import kept
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.text import decode

FORMATS = Path(__file__).with_name("tables.txt")


def lines_of(text: str) -> list[Evidence]:
    return [Evidence("job.log", place + 1, decode(line)) for place, line in kept(text.encode())]


def test_tables_of_all_formats_are_rows() -> None:
    wrong = []
    for part in FORMATS.read_text(encoding="utf-8").split("=== ")[1:]:
        name, expected, text = part.split("\n", 2)
        found = [
            f"--- {table.tool} | {table.operation} | {table.ranks} | {best.size} | {best.busbw}"
            for table in tables.tables(lines_of(text))
            for best in [max(table.rows, key=lambda row: row.busbw)]
        ]
        if found != [expected]:
            wrong.append(f"{name}: {found}")
    assert not wrong, "\n".join(wrong)


def test_every_figure_is_a_range_with_a_source() -> None:
    file = Path(expectation.__file__).parent / "figures" / "published.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    wrong = [
        entry
        for entry in (*data["figure"], *data["network"])
        if not (entry["low"] < entry["high"] and entry["source"].startswith("https://"))
        or entry.get("floor", 0) >= entry["low"]
        or not ({"names", "platforms"} & entry.keys())
    ]
    assert not wrong, wrong
