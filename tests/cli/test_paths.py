"""``paths``: widths, suffixes of files, large matrices; filters and small ones are in `tests/answers/commands.txt`."""

from __future__ import annotations

import re
from pathlib import Path

import large_job
import pytest
import sample_data
from command_line import execute
from terminals import TWO_HOSTS

import nccl_inspect
from nccl_inspect.report.tables import pair_table


def show_paths(*args: str, columns: int | None = None, data: bytes = b"") -> str:
    """Return what ``paths`` prints, in a pipe or at a width."""
    env = {"COLUMNS": str(columns)} if columns else {}
    return execute("paths", *args, data=data, env=env).stdout.decode()


def test_paths_are_a_table_of_directed_pairs() -> None:
    pairs = len(sample_data.truth("timestamps")["paths"])
    whole = show_paths(TWO_HOSTS).splitlines()
    assert whole[0].split()[:2] == ["src", "dst"]
    assert len(whole) == 2 + pairs
    assert all("llama-3-8b-node-0-" in line for line in whole[2:]), "in a pipe, grep finds the names"
    assert "expected" not in whole[0], "nothing is known of the machine"
    lines = show_paths(TWO_HOSTS, columns=80).splitlines()
    assert len(lines) >= 2 + pairs
    assert max(map(len, lines)) <= 80
    wide = show_paths(TWO_HOSTS, columns=200)
    assert "llama-3-8b-node-0-1" in wide
    assert "…" not in wide


def test_a_narrow_terminal_gets_the_columns_that_fit() -> None:
    for columns, left_out in (
        (40, "no room for: src host, dst host, channels, NIC, GDR"),
        (60, "no room for: src host, dst host, channels"),
    ):
        lines = show_paths(TWO_HOSTS, columns=columns).splitlines()
        assert " ".join("\n".join(lines).partition("\n\n")[2].split()) == left_out
        assert max(map(len, lines)) <= columns
        assert {"src", "dst", "path", "verdict"} <= set(lines[0].split())


def test_a_file_has_all_columns_whatever_the_terminal(tmp_path: Path) -> None:
    written: list[str] = []
    for columns in ("40", "200"):
        for command in (("paths", TWO_HOSTS), ("explain", "gdr-disabled"), ("summarize", TWO_HOSTS)):
            execute(*command, "-o", str(tmp_path / "out.txt"), env={"COLUMNS": columns})
            written.append((tmp_path / "out.txt").read_text(encoding="utf-8"))
    assert written[:3] == written[3:]
    assert "src host" in written[0]


BEGINS = {
    "summarize r.json": "{",
    "summarize r.md": "#",
    "summarize r.html": "<!",
    "summarize r.xml": "<testsuites",
    "summarize r.prom": "# HELP",
    "summarize r.log": "DEGRADED",
    "paths p.csv": "src,dst",
    "paths p.out": "src  dst",
    "topology t.svg": "<",
    "diff d.json": "{",
}


@pytest.mark.slow
def test_the_suffix_of_the_file_names_the_format(tmp_path: Path) -> None:
    wrong: list[object] = []
    for words, begin in BEGINS.items():
        command, name = words.split()
        args = [command, *[TWO_HOSTS] * (1 + (command == "diff")), "-o", name]
        for more, start in (([], begin), (["--format", "json"], ("{", "["))):
            execute(*args, *more, cwd=tmp_path)
            text = (tmp_path / name).read_text(encoding="utf-8")
            wrong += [] if text.startswith(start) else [(words, more, text[:80])]
    assert not wrong


def test_what_all_paths_have_in_common_is_told_whole() -> None:
    paths = [path for path in nccl_inspect.read(TWO_HOSTS).paths if path.dst_host == "llama-3-8b-node-0-1"]
    _, _, notes = pair_table(paths, 60)
    assert "dst host of all: llama-3-8b-node-0-1" in notes


# --- the matrix


def test_a_matrix_wider_than_the_terminal_goes_on_below() -> None:
    log = large_job.log(4)
    whole = show_paths("--matrix", data=log)
    for columns in (40, 80):
        parts = show_paths("--matrix", data=log, columns=columns)
        assert max(map(len, parts.splitlines())) <= columns < max(map(len, whole.splitlines()))
        assert len(re.findall(r" [PN]\b", parts)) == len(re.findall(r" [PN]\b", whole))
        heads = [name for line in parts.splitlines() if "src\\dst" in line for name in line.split()[1:]]
        assert heads == [str(number) for number in range(32)]


def test_a_matrix_of_many_hosts_shows_the_odd_one() -> None:
    log = large_job.log(20, channels=1, without_gdr=17)
    for columns in (40, 200):
        output = show_paths("--matrix", data=log, columns=columns)
        assert max(map(len, output.splitlines())) <= columns
        rows = {line.split(" = ")[0].strip(): line for line in output.partition("\n\n")[0].splitlines()[1:]}
        assert "E!" in (rows["train-7f9c-node-17"] if columns > 40 else output)
    piped = show_paths("--matrix", data=log).partition("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in piped] == [f"train-7f9c-node-{host}" for host in range(20)]
    assert max(map(len, piped)) < 500
