"""Commands that answer one question each: ``hosts``, ``nics``, ``env``, ``ranks``, and the filters of ``paths``."""

from __future__ import annotations

import csv
import io
import re

import large_job
import pytest
import sample_data
from command_line import invoke
from questions import TWO_HOSTS, rails, records
from schemas import closed, schema

import nccl_inspect
from nccl_inspect.answers import env, hosts, names_of, nics, ranks, timings
from nccl_inspect.cli.paths import VERDICTS
from nccl_inspect.report import head

QUESTIONS = {"hosts": hosts, "nics": nics, "env": env, "ranks": ranks, "timings": timings}
KILLED = str(sample_data.FOLDER / "peer-killed")
MISSING = str(sample_data.FOLDER / "rank-missing-hang")
HEALTHY = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")


# --- all of them


def test_the_records_of_samples_fit_the_schema() -> None:
    for command, question in QUESTIONS.items():
        validator = closed(name := f"nccl-inspect-{command}-1")
        assert list(schema(name)["items"]["properties"]) == names_of(question.RECORD)
        for sample in ("peer-killed", "v2.28.9-libfabric-2node", "torch-rank-killed", "v2.19.4-socket-2node"):
            validator.validate(records(command, *map(str, sample_data.files(sample))))


def test_csv_and_json_hold_the_same() -> None:
    for command in QUESTIONS:
        table = list(csv.DictReader(io.StringIO(invoke(command, KILLED, "--format", "csv").stdout)))
        for cells, record in zip(table, records(command, KILLED), strict=True):
            assert list(cells) == list(record)
            for name, value in record.items():
                if isinstance(value, int | str) and not isinstance(value, bool):
                    assert cells[name] in (str(value), f"'{value}")
                assert bool(cells[name]) == (value not in (None, []) and value != "")


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


NOTHING = {
    "hosts --finding gdr-disabled": "no host matches",
    "nics --state idle": "no NIC is idle",
    "env --differs": "no variable differs between ranks",
    "ranks --state missing": "no rank is missing",
    "paths --verdict fallback": "no path is a fallback; the log has 8 paths: 8 ok",
    "paths --verdict unknown --verdict fallback": "no path is unknown or a fallback",
    "paths --transport socket": "no path matches; ",
    "paths --finding gdr-disabled": "no path matches; ",
    "paths --slowest 3 --scope inter": "no path matches; ",
}


def test_nothing_found_is_an_answer() -> None:
    for command, told in NOTHING.items():
        done = invoke(*command.split(), HEALTHY)
        assert done.return_value == 0
        assert done.stderr.startswith(f"nccl-inspect: {told}"), command
        assert done.stdout.startswith("no ")
        assert done.stdout.count("\n") == 1
        assert records(command, HEALTHY) == []


def test_a_fragment_has_answers() -> None:
    line = b"Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA\n"
    fragments = (b"a:1:1 [0] NCCL INFO " + line, b"NCCL version 2.27.3+cuda12.9\n", b"a:1:1 [0] NCCL INFO x \xff\x1b\n")
    for command in QUESTIONS:
        for data in fragments:
            done = invoke(command, data=data)
            assert done.return_value == 0
            assert "\x1b" not in done.stdout
    assert invoke("help").stdout == invoke("--help").stdout
    assert invoke("help", "nics").stdout == invoke("nics", "--help").stdout


# --- paths


def test_both_nics_of_a_path_are_told() -> None:
    paths = {(path["src"], path["dst"]): path for path in records("paths", data=rails(moved=True))}
    assert (paths[3, 11]["src_nic"], paths[3, 11]["dst_nic"], paths[3, 11]["nic"]) == ("mlx5_3", "mlx5_2", "mlx5_3")
    assert (paths[0, 1]["src_nic"], paths[0, 1]["dst_nic"]) == (None, None)
    assert "mlx5_3 -> mlx5_2" in invoke("paths", "--rank", "3", data=rails(moved=True)).stdout
    table = list(csv.reader(io.StringIO(invoke("paths", "--format", "csv", data=rails()).stdout)))
    assert table[0][-2:] == ["src_nic", "dst_nic"]
    log = b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA\n"
    assert "2 -> ?" in invoke("paths", data=log).stdout, "a NIC that the log does not tell is a question"


def test_paths_are_filtered_by_verdict_finding_and_transport_as_it_is_printed() -> None:
    everything = records("paths", TWO_HOSTS)
    for verdict in VERDICTS:
        wanted = [path for path in everything if path["verdict"] == verdict]
        assert records(f"paths --verdict {verdict}", TWO_HOSTS) == wanted
    for rule in ("socket-instead-of-rdma", "socket-*"):
        wanted = [path for path in everything if "socket-instead-of-rdma" in path["rules"]]
        assert records(f"paths --finding {rule}", TWO_HOSTS) == wanted != []
    for words, detail in {
        "socket NET/Socket net/so NET": {"NET/Socket"},
        "P2P/CUMEM cumem": {"P2P/CUMEM"},
        "ib SHM": set(),
    }.items():
        for word in words.split():
            assert {path["detail"] for path in records(f"paths --transport {word}", TWO_HOSTS)} == detail, word


def test_the_slowest_come_first() -> None:
    everything = records("paths", TWO_HOSTS)
    found = records(f"paths --slowest {len(everything) - 1}", TWO_HOSTS)
    assert len(found) == len(everything) - 1
    assert found == sorted(found, key=lambda path: str(path["transport"]))
    found = records("paths --slowest 4", data=large_job.log(4, without_gdr=2))
    assert {path["gdr"] for path in found} == {False}
    assert "usual speed" in invoke("paths", TWO_HOSTS, "--slowest", "1").stdout


def test_a_long_table_says_how_to_narrow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    sound = large_job.log(12)
    tcp = re.sub(rb"NET/Libfabric/\d+/GDRDMA", b"NET/Socket/0", sound).replace(b"network Libfabric", b"network Socket")
    assert invoke("paths", data=tcp).stdout.endswith("\n118 paths; narrow with --verdict fallback\n")
    assert invoke("paths", data=sound).stdout.endswith("\n118 paths; narrow with --rank, --host or --slowest\n")
    assert "narrow with" not in invoke("paths", TWO_HOSTS).stdout


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


def test_nics_that_a_plugin_only_counts_have_an_index() -> None:
    """In the RDMA protocol the plugin may make one device of several NICs."""
    for protocol, idle in (("SENDRECV", [1, 2]), ("RDMA", [])):
        said = "".join(
            f"train-7f9c-node-{host}:{4000 + 8 * host}:1 [0] NCCL INFO NET/OFI {text}\n"
            for host in range(2)
            for text in (
                "Selected provider is efa, fabric is efa (found 4 nics)",
                f"Using transport protocol {protocol}",
            )
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


SUSPECTS = {
    **{"torch-rank-killed": 2, "torch-watchdog-timeout": 3, "torch-collectives-differ": 0, "mesh/sigstop-eager": 1},
    **{"mesh/loop-lazy": 1, "mesh/setting-eager": 1, "mesh/no-partner-lazy": 1, "launchers/ray-actor-exit.log.gz": 2},
}


def test_the_rank_that_the_verdict_points_at_comes_first() -> None:
    for name, rank in SUSPECTS.items():
        job = nccl_inspect.read(str(sample_data.FOLDER / name))
        first, *others = ranks.rows(job)
        assert (first.rank, first.state, ranks.is_bad(first)) == (rank, "suspect", True), name
        assert "suspect" not in {row.state for row in others}, name
        assert [place.rank for place in head.of(job).places] == [rank], name
    for name in ("rank-missing-hang", "mesh/size-lazy", "mesh/operation-lazy", "p2p-nvlink-8gpu"):
        rows = ranks.rows(nccl_inspect.read(str(sample_data.FOLDER / name)))
        assert "suspect" not in {row.state for row in rows}, f"{name}: who waits or may be right is no suspect"
