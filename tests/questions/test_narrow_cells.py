"""Tables on narrow terminals."""

from __future__ import annotations

from command_line import execute
from repository import ROOT

from nccl_inspect.answers import Column
from nccl_inspect.report.tables import fit_table


def test_cells_that_differ_in_their_ends_differ_when_they_are_cut() -> None:
    columns = (Column("value", "value", least=8), Column("ranks", "ranks"))
    body = [["llama-3-8b-node-0-0", "0-1"], ["llama-3-8b-node-0-1", "2-3"], ["a-name-of-its-own", "4"]]
    assert [row[0] for row in fit_table(columns, body, 17).body] == ["…-node-0-0", "…-node-0-1", "a-name-of…"]


def test_each_step_of_a_fix_has_its_label_on_a_narrow_terminal() -> None:
    log = str(ROOT / "sample_logs" / "peer-killed")
    lines = execute("summarize", log, "--no-color", env={"COLUMNS": "40"}).stdout.decode().splitlines()
    assert [line for line in lines if line.startswith("  fix ")][1:] == [
        "  fix dmesg -T | grep -iE",
        "  fix Read that rank's own output: NCCL",
    ]
