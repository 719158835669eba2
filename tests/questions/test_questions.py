"""Commands that answer one question each: ``hosts``, ``nics``, ``env``, ``ranks``, and the filters of ``paths``."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files
from typing import Any

import large_job
import pytest
import sample_data
from command_line import invoke
from jsonschema import Draft202012Validator
from questions import TWO_HOSTS, rails, records

import nccl_inspect
from nccl_inspect.answers import env, hosts, names_of, nics, ranks, timings
from nccl_inspect.report import head

QUESTIONS = {"hosts": hosts, "nics": nics, "env": env, "ranks": ranks, "timings": timings}
KILLED = str(sample_data.FOLDER / "peer-killed")
MISSING = str(sample_data.FOLDER / "rank-missing-hang")
HEALTHY = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")


def schema(name: str) -> dict[str, Any]:
    text = files("nccl_inspect").joinpath(f"schema/nccl-inspect-{name}-1.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


# --- all of them


@pytest.mark.parametrize("command", QUESTIONS)
@pytest.mark.parametrize("name", sample_data.names())
def test_the_records_of_a_sample_fit_the_schema(command: str, name: str) -> None:
    whole = schema(command)
    whole["items"]["additionalProperties"] = False
    found = records(command, *map(str, sample_data.files(name)))
    Draft202012Validator(whole).validate(found)
    assert list(whole["items"]["properties"]) == names_of(QUESTIONS[command].RECORD)


@pytest.mark.parametrize("command", QUESTIONS)
def test_csv_and_json_hold_the_same(command: str) -> None:
    text = invoke(command, KILLED, "--format", "csv").stdout
    table = list(csv.DictReader(io.StringIO(text)))
    document = records(command, KILLED)
    assert len(table) == len(document)
    for cells, record in zip(table, document, strict=True):
        assert list(cells) == list(record)
        for name, value in record.items():
            if isinstance(value, int | str) and not isinstance(value, bool):
                assert cells[name] in (str(value), f"'{value}")
            assert bool(cells[name]) == (value not in (None, []) and value != "")


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_pipe_gets_one_whole_line_for_each_record(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = invoke(command, data=rails()).stdout.splitlines()
    assert len(lines) == 2 + len(records(command, data=rails()))
    assert not [line for line in lines if "…" in line]


@pytest.mark.parametrize("command", [*QUESTIONS, "paths"])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("log", [KILLED, TWO_HOSTS, MISSING])
def test_a_table_fits_the_terminal(command: str, columns: int, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = invoke(command, log).stdout.splitlines()
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("command", QUESTIONS)
def test_the_first_rows_are_those_of_all(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert records(command, "--limit", "1", data=rails()) == records(command, data=rails())[:1]
    monkeypatch.setenv("COLUMNS", "100")
    if len(records(command, data=rails())) > 1:
        assert f"1 of {len(records(command, data=rails()))} " in invoke(command, "--limit", "1", data=rails()).stdout


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("hosts --finding gdr-disabled", "no host matches"),
        ("nics --state idle", "no NIC is idle"),
        ("env --differs", "no variable differs between ranks"),
        ("ranks --state missing", "no rank is missing"),
        ("paths --verdict fallback", "no path is a fallback; the log has 8 paths: 8 ok"),
        ("paths --verdict unknown --verdict fallback", "no path is unknown or a fallback"),
        ("paths --transport socket", "no path matches; "),
        ("paths --finding gdr-disabled", "no path matches; "),
        ("paths --slowest 3 --scope inter", "no path matches; "),
    ],
)
def test_nothing_found_is_an_answer(command: str, told: str) -> None:
    done = invoke(*command.split(), HEALTHY)
    assert done.return_value == 0
    assert done.stderr.startswith(f"nccl-inspect: {told}")
    assert done.stdout.startswith("no ")
    assert done.stdout.count("\n") == 1
    assert records(command, HEALTHY) == []


@pytest.mark.parametrize("command", QUESTIONS)
def test_ranks_and_hosts_are_filtered(command: str) -> None:
    everything = records(command, data=rails())
    some = records(command, "--rank", "8-9", data=rails())
    assert some == [record for record in everything if {8, 9} & {*record.get("ranks", []), record.get("rank")}]
    name = "train-7f9c-node-1"
    some = records(command, "--host", "*-1", data=rails())
    assert some == [record for record in everything if name in (record.get("host"), *record.get("hosts", []))]


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_fragment_has_answers(command: str) -> None:
    line = b"Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA\n"
    for data in (
        b"a:1:1 [0] NCCL INFO " + line,
        b"NCCL version 2.27.3+cuda12.9\n",
        b"a:1:1 [0] NCCL INFO x \xff\x1b\n",
    ):
        done = invoke(command, data=data)
        assert done.return_value == 0
        assert "\x1b" not in done.stdout


# --- nics


def test_each_gpu_has_its_nic() -> None:
    rows = nics.rows(nccl_inspect.read(rails()))
    assert [(row.nic, row.state, row.gpus) for row in rows] == [(f"mlx5_{n}", "used", [n]) for n in range(8)] * 2
    assert all(row.send_ranks == row.receive_ranks == row.ranks and row.gdr is True for row in rows)


def test_an_idle_nic_and_the_one_that_is_shared_instead_stand_first() -> None:
    rows = nics.rows(nccl_inspect.read(rails(moved=True)))
    assert [row.host for row in rows[:8]] == ["train-7f9c-node-1"] * 8
    assert {row.nic: row.gpus for row in rows[:8] if len(row.gpus) != 1} == {"mlx5_2": [2, 3], "mlx5_3": []}
    assert [row.nic for row in rows if row.state == "idle"] == ["mlx5_3"]
    (idle,) = records("nics --state idle", data=rails(moved=True))
    assert (idle["host"], idle["nic"], idle["gdr"], idle["link"]) == ("train-7f9c-node-1", "mlx5_3", None, "IB")


def test_nics_of_a_host_without_connections_are_not_called_idle() -> None:
    before, _, _ = rails().partition(b"Channel ")
    assert {row.state for row in nics.rows(nccl_inspect.read(before))} == {"unknown"}


def test_ports_that_are_merged_are_no_idle_ones() -> None:
    log = (
        b"a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB eth0:1.2.3.4<0>\n"
        b"a:1:1 [0] NCCL INFO NET/IB : Made virtual device [3] name=mlx5_0+mlx5_1 speed=800000 ndevs=2\n"
        b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/3\n"
    )
    rows = nics.rows(nccl_inspect.read(log))
    assert {row.nic: row.state for row in rows} == {"mlx5_0+mlx5_1": "used", "mlx5_2": "unknown"}, "an excerpt"


def test_what_leaves_by_the_nic_of_another_rank_is_told() -> None:
    log = b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 9[1] [send] via NET/IB/1(1)/GDRDMA\n"
    (row,) = nics.rows(nccl_inspect.read(log))
    assert (row.nic_index, row.send_ranks, row.pxn_ranks) == (1, [1], [0])


def test_speeds_are_those_of_the_log() -> None:
    log = (
        b"a:1:1 [0] NCCL INFO NET/IB: [0] mlx5_0:mlx5_0:1/IB provider=Mlx5 speed=400000 context=0x7f01a0 "
        b"pciPath=/sys/devices/pci0000 ar=1\n"
        b"a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:1.2.3.4<0>\n"
        b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
    )
    (row,) = nics.rows(nccl_inspect.read(log))
    assert (row.nic, row.speed_mbps) == ("mlx5_0", 400000)


@pytest.mark.parametrize(("protocol", "idle"), [("SENDRECV", [1, 2]), ("RDMA", [])])
def test_nics_that_a_plugin_only_counts_have_an_index(protocol: str, idle: list[int]) -> None:
    """In the RDMA protocol the plugin may make one device of several NICs."""
    said = "".join(
        f"train-7f9c-node-{host}:{4000 + 8 * host}:1 [0] NCCL INFO NET/OFI {text}\n"
        for host in range(2)
        for text in ("Selected provider is efa, fabric is efa (found 4 nics)", f"Using transport protocol {protocol}")
    )
    rows = nics.rows(nccl_inspect.read(said.encode() + large_job.log(2)))
    assert [row.nic_index for row in rows if row.state == "idle"] == idle * 2
    assert {row.network for row in rows} == {"Libfabric"}


# --- hosts


def test_the_worst_host_comes_first() -> None:
    rows = hosts.rows(nccl_inspect.read(large_job.log(4, without_gdr=2)))
    assert rows[0].host == "train-7f9c-node-2"
    rows = hosts.rows(sample_data.job("peer-killed"))
    assert (rows[0].host, rows[0].severity, rows[0].findings[0]) == ("llama-3-8b-node-0-1", "error", "peer-death")
    assert (rows[0].paths_ok, rows[0].paths_fallback, rows[0].nics_used) == (1, 2, ["eth0"])
    assert (rows[0].nccl_versions, rows[0].cuda_versions) == (["2.27.3+cuda13.0"], ["13.0"])


def test_a_host_with_an_idle_nic_comes_before_its_equals() -> None:
    first, second = hosts.rows(nccl_inspect.read(rails(moved=True)))
    assert (first.host, first.nics_idle) == ("train-7f9c-node-1", ["mlx5_3"])
    assert second.nics_idle == []


def test_hosts_end_with_their_last_line() -> None:
    for row in hosts.rows(nccl_inspect.read(large_job.log(2))):
        assert (row.last_time or "").startswith("2026-11-20 23:13:1")
        assert row.last_line is not None


# --- env


def test_values_by_rank() -> None:
    rows = {(row.name, row.value): row for row in env.rows(sample_data.job("peer-killed"))}
    row = rows["NCCL_HOSTID", "llama-3-8b-node-0-1"]
    assert (row.ranks, row.set_by, row.differs, row.everywhere) == ([2, 3], "environment", True, False)
    row = rows["NCCL_NVLS_ENABLE", "0"]
    assert (row.ranks, row.differs, row.everywhere, row.note) == ([0, 1, 2, 3], False, True, None)
    assert {record["name"] for record in records("env --differs", KILLED)} == {"NCCL_HOSTID"}


def test_a_variable_of_one_rank_differs() -> None:
    log = rails() + b"train-7f9c-node-0:4003:4003 [3] NCCL INFO NCCL_ALGO set by environment to Tree\n"
    (record,) = records("env --differs", data=log)
    assert (record["name"], record["value"], record["ranks"]) == ("NCCL_ALGO", "Tree", [3])
    assert "NCCL_ALGO" not in {record["name"] for record in records("env --rank 2", data=log)}


# --- ranks


def test_a_missing_rank_has_a_row() -> None:
    rows = ranks.rows(sample_data.job("rank-missing-hang"))
    assert [(row.rank, row.state) for row in rows] == [(2, "missing"), (0, "begun"), (1, "begun"), (3, "begun")]
    assert (rows[0].pid, rows[0].last_line) == (None, None)


def test_a_rank_that_fell_silent_comes_first() -> None:
    rows = ranks.rows(sample_data.job("peer-killed"))
    assert (rows[0].rank, rows[0].state, rows[0].pid, rows[0].gpu) == (3, "silent", 5026, 3)
    assert (
        rows[1].error == "socketProgress: Connection closed by remote peer llama-3-8b-node-0-1<36372>" or rows[1].error
    )
    assert rows[1].error_is_echo


def test_a_rank_with_an_error_has_failed() -> None:
    job = sample_data.job("torch-device-assert")
    assert job.verdict == "failed"
    assert {row.state for row in ranks.rows(job)} & {"failed", "silent", "missing"}


def test_local_ranks_are_those_of_the_log_or_counted() -> None:
    log = large_job.log(2)
    with_shape = {row.rank: row.local_rank for row in ranks.rows(nccl_inspect.read(log))}
    without = b"\n".join(line for line in log.split(b"\n") if b"localRanks" not in line)
    assert with_shape == {row.rank: row.local_rank for row in ranks.rows(nccl_inspect.read(without))}
    assert with_shape[11] == 3


def test_a_process_that_names_no_rank_has_a_row() -> None:
    log = sample_data.contents("rank-missing-hang")[0] + b"node-9:77:77 [0] NCCL INFO cudaDriverVersion 13000\n"
    rows = ranks.rows(nccl_inspect.read(log))
    assert [(row.host, row.pid, row.state) for row in rows if row.rank is None] == [("node-9", 77, "seen")]


def test_what_a_collector_calls_the_printer_is_told() -> None:
    log = b"".join(
        b"[pod/llama-%d/main] node:%d:%d [0] NCCL INFO ncclCommInitRank comm 0x1 rank %d nranks 2 cudaDev 0 nvmlDev 0 "
        b"busId 10 commId 0x9 - Init COMPLETE\n" % (rank, 7 + rank, 7 + rank, rank)
        for rank in range(2)
    )
    assert [row.pod and "llama-" in row.pod for row in ranks.rows(nccl_inspect.read(log))] == [True, True]


def test_progress_is_told() -> None:
    lines = large_job.log(1).decode().splitlines()
    assert {row.state for row in ranks.rows(nccl_inspect.read("\n".join(lines).encode()))} == {"ended"}
    alive = [line for line in lines if "Destroy" not in line]
    assert {row.state for row in ranks.rows(nccl_inspect.read("\n".join(alive).encode()))} == {"connected"}
    begun = [line for line in alive if "COMPLETE" not in line and "Channel" not in line and "Connected" not in line]
    assert {row.state for row in ranks.rows(nccl_inspect.read("\n".join(begun).encode()))} == {"begun"}


# --- help


def test_help_is_a_command() -> None:
    assert invoke("help").stdout == invoke("--help").stdout
    assert invoke("help", "nics").stdout == invoke("nics", "--help").stdout


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("torch-rank-killed", 2),
        ("torch-watchdog-timeout", 3),
        ("torch-collectives-differ", 0),
        ("mesh/sigstop-eager", 1),
        ("mesh/loop-lazy", 1),
        ("mesh/setting-eager", 1),
        ("mesh/no-partner-lazy", 1),
        ("launchers/ray-actor-exit.log.gz", 2),
    ],
)
def test_the_rank_that_the_verdict_points_at_comes_first(name: str, rank: int) -> None:
    job = nccl_inspect.read(str(sample_data.FOLDER / name))
    first, *others = ranks.rows(job)
    assert (first.rank, first.state, ranks.is_bad(first)) == (rank, "suspect", True)
    assert "suspect" not in {row.state for row in others}
    assert [place.rank for place in head.of(job).places] == [rank]


@pytest.mark.parametrize("name", ["rank-missing-hang", "mesh/size-lazy", "mesh/operation-lazy", "p2p-nvlink-8gpu"])
def test_who_waits_or_may_be_right_is_no_suspect(name: str) -> None:
    rows = ranks.rows(nccl_inspect.read(str(sample_data.FOLDER / name)))
    assert "suspect" not in {row.state for row in rows}
