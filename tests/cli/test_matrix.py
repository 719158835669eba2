"""``paths --matrix``: rank by rank, and host by host where there are many."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence

import large_job
import pytest
import sample_data
from command_line import invoke
from terminals import TWO_HOSTS

from nccl_inspect.errors import NcclInspectError


def test_the_matrix_has_a_row_and_a_column_for_each_rank() -> None:
    output = invoke("paths", TWO_HOSTS, "--matrix").stdout
    rows, _, legend = output.partition("\n\n")
    assert [line.split()[0] for line in rows.splitlines()] == ["src\\dst", "0", "1", "2", "3"]
    assert "P = P2P/CUMEM" in legend
    assert "= NET/Socket" in legend


def test_a_filtered_matrix_tells_what_the_filter_leaves_out_from_what_the_log_lacks() -> None:
    mesh = str(sample_data.FOLDER / "socket-2node-tp4-dp2")
    output = invoke("paths", mesh, "--matrix", "--rank", "3").stdout
    assert [line.split() for line in output.splitlines()[1:3]] == [["0", *"--P----"], ["1", *"--P----"]]
    assert "- = left out by the filter" in output
    assert "no connection line" not in output
    ring = b"".join(
        b"vm:%d:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n" % (r, r, (r + 1) % 4) for r in range(4)
    )
    rows = invoke("paths", "--matrix", "--rank", "1", data=ring).stdout.partition("\n\n")[0]
    assert [line.split() for line in rows.splitlines()] == [["src\\dst", "1", "2"], ["0", "P", "."], ["1", "P"]]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_matrix_wider_than_the_terminal_goes_on_below(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = large_job.log(4)
    whole = invoke("paths", "--matrix", data=log).stdout
    monkeypatch.setenv("COLUMNS", str(columns))
    parts = invoke("paths", "--matrix", data=log).stdout
    assert max(map(len, parts.splitlines())) <= columns < max(map(len, whole.splitlines()))
    assert len(re.findall(r" [PN]\b", parts)) == len(re.findall(r" [PN]\b", whole))
    heads = [name for line in parts.splitlines() if "src\\dst" in line for name in line.split()[1:]]
    assert heads == [str(number) for number in range(32)]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_matrix_of_many_hosts_shows_the_odd_one(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    output = invoke("paths", "--matrix", data=large_job.log(100, channels=1, without_gdr=37)).stdout
    assert max(map(len, output.splitlines())) <= columns
    rows = {line.split(" = ")[0].strip(): line for line in output.partition("\n\n")[0].splitlines()[1:]}
    assert "E?" in (rows["train-7f9c-node-37"] if columns > 40 else output)


def test_a_matrix_in_a_pipe_has_each_host() -> None:
    output = invoke("paths", "--matrix", data=large_job.log(100, channels=1)).stdout
    rows = output.partition("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in rows] == [f"train-7f9c-node-{host}" for host in range(100)]
    assert max(map(len, rows)) < 500


def test_rows_of_the_matrix_are_chosen() -> None:
    few, many = large_job.log(2), large_job.log(10)
    assert json.loads(invoke("paths", "--by", "host", "--format", "json", data=few).stdout)["by"] == "host"
    assert json.loads(invoke("paths", "--by", "rank", "--format", "json", data=many).stdout)["by"] == "rank"
    assert invoke("paths", "--by", "host", data=few).stdout.endswith("number of pairs\n")


@pytest.mark.parametrize(
    ("option", "hosts"),
    [
        (("--rank", "0-72:8"), range(10)),
        (("--host", "train-7f9c-node-[8-9]"), (0, 7, 8, 9)),
        (("--host", "train-7f9c-node-[2-9]*"), range(1, 10)),
    ],
    ids=lambda value: str(value),
)
def test_folded_ranks_and_hosts_are_read(option: tuple[str, str], hosts: Sequence[int]) -> None:
    output = invoke("paths", *option, "--format", "json", data=large_job.log(10, channels=1)).stdout
    found = {path[end] for path in json.loads(output) for end in ("src_host", "dst_host")}
    assert found >= {f"train-7f9c-node-{host}" for host in hosts}


def test_numbers_in_brackets_are_no_characters() -> None:
    with pytest.raises(NcclInspectError, match="no host"):
        invoke("paths", "--host", "train-7f9c-node-[10-12]", data=large_job.log(3, channels=1))


def test_the_matrix_is_written_as_csv_and_json() -> None:
    table = list(csv.DictReader(io.StringIO(invoke("paths", TWO_HOSTS, "--matrix", "--format", "csv").stdout)))
    assert list(table[0]) == ["src\\dst", "0", "1", "2", "3"]
    assert table[0]["1"] == "P2P/CUMEM (ok)"
    assert table[1]["2"] == "NET/Socket (fallback)"
    document = json.loads(invoke("paths", TWO_HOSTS, "--matrix", "--format", "json").stdout)
    assert (document["by"], document["names"]) == ("rank", ["0", "1", "2", "3"])
    assert document["rows"][0][1] == [{"detail": "P2P/CUMEM", "gdr": None, "verdict": "ok", "pairs": 1}]
    pairs = {(src, dst) for src, row in enumerate(document["rows"]) for dst, cell in enumerate(row) if cell}
    assert pairs == {(path["src"], path["dst"]) for path in sample_data.truth("timestamps")["paths"]}


def test_above_64_ranks_the_matrix_is_host_by_host_in_all_formats() -> None:
    host = b"vm%d:1:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n"
    log = b"".join(host % (rank // 8, rank, rank + 1) for rank in range(0, 80, 2))
    document = json.loads(invoke("paths", "--matrix", "--format", "json", data=log).stdout)
    assert (document["by"], len(document["names"]), len(document["rows"])) == ("host", 10, 10)
    assert document["rows"][3][3][0]["pairs"] == 4
    table = list(csv.DictReader(io.StringIO(invoke("paths", "--matrix", "--format", "csv", data=log).stdout)))
    assert [row["src\\dst"] for row in table] == document["names"]
    assert table[3][document["names"][3]].startswith("4 x P2P/CUMEM (")
