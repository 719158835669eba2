"""Commands that answer one question each: ``hosts``, ``nics``, ``env``, ``ranks``, and the filters of ``paths``."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import cache
from typing import Any

import large_job
import pytest
import sample_data
from command_line import execute, invoke
from schemas import close_schema, schema

import nccl_inspect
from nccl_inspect.answers import Column
from nccl_inspect.answers import rows as answers
from nccl_inspect.report import digest
from nccl_inspect.report.tables import fit_table
from nccl_inspect.rules.gpus import decode_health

QUESTIONS = {
    **{"hosts": answers.HOSTS, "nics": answers.NICS, "env": answers.ENV},
    **{"ranks": answers.RANKS, "timings": answers.TIMINGS},
}
KILLED = str(sample_data.FOLDER / "peer-killed")
TWO_HOSTS = str(sample_data.FOLDER / "timestamps" / "job.log")
MISSING = str(sample_data.FOLDER / "rank-missing-hang")


@cache
def rails() -> bytes:
    """Return a job of 2 hosts with 8 GPUs and a NIC for each."""
    listed = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(8))
    lines = []
    for line in large_job.log(2).decode().splitlines():
        head, _, message = line.partition(" NCCL INFO ")
        if message.startswith("Using network"):
            lines += [f"{head} NCCL INFO NET/IB : Using {listed} [RO]; OOB eth0:192.0.2.2<0>"]
            lines += [f"{head} NCCL INFO NCCL_IB_HCA set by environment to mlx5", f"{head} NCCL INFO Using network IB"]
        elif message.startswith("Connected all rings"):
            rank = int(head.rpartition(":")[2].partition(" ")[0]) - 4000
            other, gpu = (rank + 8) % 16, rank % 8
            for src, dst, end in ((rank, other, "send"), (other, rank, "receive")):
                way = f"{src}[{gpu}] -> {dst}[{gpu}] [{end}] via NET/IB/{gpu}/GDRDMA"
                lines.append(f"{head} NCCL INFO Channel 00/0 : {way}")
            lines.append(line)
        elif "Libfabric" not in message:
            lines.append(line)
    return "\n".join([*lines, ""]).encode()


def records(command: str, *args: str, data: bytes | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(invoke(*command.split(), *args, "--format", "json", data=data).stdout)
    return found


# --- all of them


def test_the_records_of_samples_fit_the_schema() -> None:
    for command, question in QUESTIONS.items():
        validator = close_schema(name := f"nccl-inspect-{command}-1")
        assert list(schema(name)["items"]["properties"]) == question.names
        for sample in ("torch-rank-killed", "v2.28.9-libfabric-2node"):
            validator.validate(records(command, *map(str, sample_data.files(sample))))
    assert list(schema("nccl-inspect-memory-1")["items"]["properties"]) == answers.MEMORY.names
    found = records("memory", str(sample_data.FOLDER / "v2.30.7-subsys-all"))
    assert found
    close_schema("nccl-inspect-memory-1").validate(found)


def test_csv_and_json_hold_the_same() -> None:
    for command in QUESTIONS:
        table = list(csv.DictReader(io.StringIO(invoke(command, KILLED, "--format", "csv").stdout)))
        for cells, record in zip(table, records(command, KILLED), strict=True):
            assert list(cells) == list(record)
            for name, value in record.items():
                if isinstance(value, int | str) and not isinstance(value, bool):
                    assert cells[name] in (str(value), f"'{value}")
                assert bool(cells[name]) == (value not in (None, []) and value != "")


@pytest.mark.slow
def test_tables_fit_the_terminal_and_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for command in QUESTIONS:
        lines = invoke(command, data=rails()).stdout.splitlines()
        found = records(command, data=rails())
        assert len(lines) == (2 + len(found) if found else 1), command
        assert not [line for line in lines if "…" in line]
    for columns in (40, 60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        for command in (*QUESTIONS, "paths"):
            for log in (KILLED, TWO_HOSTS, MISSING):
                assert max(map(len, invoke(command, log).stdout.splitlines())) <= columns, command


def test_ranks_and_hosts_are_filtered_and_the_first_rows_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in QUESTIONS:
        everything = records(command, data=rails())
        some = records(command, "--rank", "8-9", data=rails())
        assert some == [record for record in everything if {8, 9} & {*record.get("ranks", []), record.get("rank")}]
        name = "train-7f9c-node-1"
        some = records(command, "--host", "*-1", data=rails())
        assert some == [record for record in everything if name in (record.get("host"), *record.get("hosts", []))]
        assert records(command, "--limit", "1", data=rails()) == everything[:1]
        if len(everything) > 1:
            assert f"1 of {len(everything)} " in invoke(command, "--limit", "1", data=rails()).stdout


def test_help_is_a_command() -> None:
    assert invoke("help").stdout == invoke("--help").stdout
    assert invoke("help", "nics").stdout == invoke("nics", "--help").stdout


# --- paths


def test_a_long_table_says_how_to_narrow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    sound = large_job.log(12)
    tcp = re.sub(rb"NET/Libfabric/\d+/GDRDMA", b"NET/Socket/0", sound).replace(b"network Libfabric", b"network Socket")
    assert invoke("paths", data=tcp).stdout.endswith("\n118 paths; narrow with --verdict fallback\n")
    assert invoke("paths", data=sound).stdout.endswith("\n118 paths; narrow with --rank, --host or --slowest\n")
    assert "narrow with" not in invoke("paths", TWO_HOSTS).stdout


# --- ranks

SUSPECTS = {
    **{"torch-rank-killed": 2, "torch-watchdog-timeout": 3, "torch-collectives-differ": 0, "mesh/sigstop-eager": 1},
    **{"mesh/loop-lazy": 1, "mesh/setting-eager": 1, "mesh/no-partner-lazy": 1, "launchers/ray-actor-exit.log.gz": 2},
}
ENDED = ("torch-rank-killed", "launchers/ray-actor-exit.log.gz")
"""Those whose launcher says how the rank ended."""


def test_the_rank_that_the_verdict_points_at_comes_first() -> None:
    for name, rank in SUSPECTS.items():
        job = nccl_inspect.read(str(sample_data.FOLDER / name))
        first, *others = answers.list_ranks(job)
        state = "failed" if name in ENDED else "suspect"
        assert (first.rank, first.state, answers.RANKS.is_bad(first)) == (rank, state, True), name
        assert "suspect" not in {row.state for row in others}, name
        assert [place.rank for place in digest.make_head(job).places] == [rank], name
    for name in ("rank-missing-hang", "mesh/size-lazy", "mesh/operation-lazy", "p2p-nvlink-8gpu"):
        rows = answers.list_ranks(nccl_inspect.read(str(sample_data.FOLDER / name)))
        assert "suspect" not in {row.state for row in rows}, f"{name}: who waits or may be right is no suspect"


def test_a_health_mask_is_decoded() -> None:
    cases = {
        0x0: [],
        0x12A: [],
        0x1: ["bandwidth is degraded"],
        0x10: ["a connection is unhealthy"],
        0x411: ["bandwidth is degraded", "a connection is unhealthy", "it is in no partition"],
    }
    assert {mask: decode_health(mask) for mask in cases} == cases


# --- narrow terminals


def test_cells_that_differ_in_their_ends_differ_when_they_are_cut() -> None:
    columns = (Column("value", "value", least=8), Column("ranks", "ranks"))
    body = [["llama-3-8b-node-0-0", "0-1"], ["llama-3-8b-node-0-1", "2-3"], ["a-name-of-its-own", "4"]]
    assert [row[0] for row in fit_table(columns, body, 17).body] == ["…-node-0-0", "…-node-0-1", "a-name-of…"]


def test_each_step_of_a_fix_has_its_label_on_a_narrow_terminal() -> None:
    lines = execute("summarize", KILLED, "--no-color", env={"COLUMNS": "40"}).stdout.decode().splitlines()
    assert [line for line in lines if line.startswith("  fix ")][1:] == [
        "  fix dmesg -T | grep -iE",
        "  fix Read that rank's own output: NCCL",
    ]
