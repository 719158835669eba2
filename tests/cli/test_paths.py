"""``paths``: the table, its columns, filters and suffixes of files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import sample_data
from command_line import invoke
from terminals import HEALTHY, TWO_HOSTS, run

import nccl_inspect
from nccl_inspect.report.pairs import pairs


def test_paths_are_a_table_of_directed_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = len(sample_data.truth("timestamps")["paths"])
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert whole[0].split()[:2] == ["src", "dst"]
    assert len(whole) == 2 + pairs
    assert all("llama-3-8b-node-0-" in line for line in whole[2:]), "in a pipe, grep finds the names"
    assert "expected" not in whole[0], "nothing is known of the machine"
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert len(lines) >= 2 + pairs
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [(40, "no room for: src host, dst host, channels, NIC, GDR"), (60, "no room for: src host, dst host, channels")],
)
def test_a_narrow_terminal_gets_the_columns_that_fit(
    columns: int, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert " ".join("\n".join(lines).partition("\n\n")[2].split()) == left_out
    assert max(map(len, lines)) <= columns
    assert {"src", "dst", "path", "verdict"} <= set(lines[0].split())


def test_a_file_has_all_columns_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        for command in (("paths", TWO_HOSTS), ("explain", "gdr-disabled"), ("summarize", TWO_HOSTS)):
            assert invoke(*command, "-o", str(tmp_path / "out.txt")).exception is None
            told.append((tmp_path / "out.txt").read_text(encoding="utf-8"))
    assert told[:3] == told[3:]
    assert "src host" in told[0]


@pytest.mark.parametrize(
    ("command", "name", "begin"),
    [
        ("summarize", "r.json", "{"),
        ("summarize", "r.md", "#"),
        ("summarize", "r.html", "<!"),
        ("summarize", "r.xml", "<testsuites"),
        ("summarize", "r.prom", "# HELP"),
        ("summarize", "r.log", "DEGRADED"),
        ("paths", "p.csv", "src,dst"),
        ("paths", "p.out", "src  dst"),
        ("topology", "t.svg", "<"),
        ("diff", "d.json", "{"),
    ],
)
def test_the_suffix_of_the_file_names_the_format(command: str, name: str, begin: str, tmp_path: Path) -> None:
    logs = [TWO_HOSTS] * (1 + (command == "diff"))
    target = tmp_path / name
    invoke(command, *logs, "-o", str(target))
    assert target.read_text(encoding="utf-8").startswith(begin)
    invoke(command, *logs, "-o", str(target), "--format", "json")
    assert json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("command", "name", "has"),
    [
        ("summarize", "r.yaml", "json"),
        ("summarize", "r.csv", "html"),
        ("paths", "p.parquet", "table, csv, json"),
        ("paths", "p.xlsx", "table, csv, json"),
        ("topology", "t.png", "svg"),
        ("rules", "r.md", "table, json"),
    ],
)
def test_a_suffix_that_a_command_does_not_write_is_said(command: str, name: str, has: str, tmp_path: Path) -> None:
    target = tmp_path / name
    done = run(command, *([] if command == "rules" else [TWO_HOSTS]), "-o", str(target))
    assert done.returncode == 2
    told = done.stderr.decode()
    assert f"{command} cannot write {target.suffix[1:]}" in told
    assert has in told
    assert told.count("\n") == 1
    assert not target.exists()


def test_what_all_paths_have_in_common_is_told_whole() -> None:
    paths = [path for path in nccl_inspect.read(TWO_HOSTS).paths if path.dst_host == "llama-3-8b-node-0-1"]
    _, _, notes = pairs(paths, 60)
    assert "dst host of all: llama-3-8b-node-0-1" in notes


def test_ranks_of_communicators_are_told_apart(tmp_path: Path) -> None:
    """The end of a log, in which the communicator of all ranks is not begun."""
    log = tmp_path / "end.log"
    lines = sample_data.contents("socket-2node-tp4-dp2")[0].split(b"\n")
    log.write_bytes(b"\n".join(lines[-700:]))
    head, _, *rows = invoke("paths", str(log)).stdout.split("\n\n")[0].splitlines()
    assert head.split()[-1] == "communicator"
    assert len(rows) == len(set(rows)) == len(nccl_inspect.read(str(log)).paths)
    for matrix in ((), ("--matrix",)):
        assert invoke("paths", str(log), *matrix).stdout.endswith("does not show the communicator of all ranks\n")


def test_the_legend_names_the_marks_that_occur() -> None:
    good = invoke("paths", HEALTHY, "--matrix").stdout
    assert good.endswith("P = P2P/CUMEM\n. = no connection line\n")
    assert invoke("paths", TWO_HOSTS, "--matrix").stdout.endswith("\n! = fallback\n")


def test_a_wide_terminal_gets_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    output = invoke("paths", TWO_HOSTS).stdout
    assert "llama-3-8b-node-0-1" in output
    assert "…" not in output


def test_the_csv_and_the_json_hold_all_paths() -> None:
    wanted = sample_data.truth("timestamps")["paths"]
    table = list(csv.DictReader(io.StringIO(invoke("paths", TWO_HOSTS, "--format", "csv").stdout)))
    pairs = sorted((path["src"], path["dst"], path["detail"]) for path in wanted)
    assert sorted((int(row["src"]), int(row["dst"]), row["detail"]) for row in table) == pairs
    document = json.loads(invoke("paths", TWO_HOSTS, "--format", "json").stdout)
    assert sorted((path["src"], path["dst"], path["detail"]) for path in document) == pairs


@pytest.mark.parametrize(
    ("filters", "admits"),
    [
        (["--rank", "3"], lambda p: 3 in (p["src"], p["dst"])),
        (["--rank", "0-1", "--rank", "3"], lambda p: {0, 1, 3} & {p["src"], p["dst"]}),
        (["--rank", "0,2"], lambda p: {0, 2} & {p["src"], p["dst"]}),
        (["--scope", "inter"], lambda p: p["scope"] == "inter"),
        (["--scope", "intra"], lambda p: p["scope"] == "intra"),
        (["--scope", "unknown"], lambda p: False),
        (["--transport", "NET"], lambda p: p["transport"] == "NET"),
        (["--transport", "p2p"], lambda p: p["transport"] == "P2P"),
        (["--rank", "0", "--transport", "NET"], lambda p: p["transport"] == "NET" and 0 in (p["src"], p["dst"])),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_paths_are_filtered(filters: list[str], admits: object) -> None:
    assert callable(admits)
    found = json.loads(invoke("paths", TWO_HOSTS, "--format", "json", *filters).stdout)
    wanted = [(p["src"], p["dst"]) for p in sample_data.truth("timestamps")["paths"] if admits(p)]
    assert sorted((path["src"], path["dst"]) for path in found) == sorted(wanted)


def test_paths_are_filtered_by_host() -> None:
    found = json.loads(
        invoke("paths", TWO_HOSTS, "--format", "json", "--host", "llama-3-8b-node-0-1", "--scope", "intra").stdout
    )
    assert {(path["src"], path["dst"]) for path in found} == {(2, 3), (3, 2)}


def test_the_csv_has_all_columns_also_without_a_path() -> None:
    columns = invoke("paths", TWO_HOSTS, "--format", "csv").stdout.partition("\n")[0]
    assert invoke("paths", TWO_HOSTS, "--format", "csv", "--scope", "unknown").stdout == columns + "\n"
    document = json.loads(invoke("paths", TWO_HOSTS, "--format", "json").stdout)
    assert columns.split(",") == [key for key in document[0] if key != "also"]
