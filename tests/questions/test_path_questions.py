"""The filters of ``paths``, and which path or rank comes first."""

from __future__ import annotations

import csv
import io
import re

import large_job
import pytest
from command_line import invoke
from questions import TWO_HOSTS, rails, records

from nccl_inspect.cli.paths import VERDICTS


def test_both_nics_of_a_path_are_told() -> None:
    paths = {(path["src"], path["dst"]): path for path in records("paths", data=rails(moved=True))}
    assert (paths[3, 11]["src_nic"], paths[3, 11]["dst_nic"], paths[3, 11]["nic"]) == ("mlx5_3", "mlx5_2", "mlx5_3")
    assert (paths[0, 1]["src_nic"], paths[0, 1]["dst_nic"]) == (None, None)
    assert "mlx5_3 -> mlx5_2" in invoke("paths", "--rank", "3", data=rails(moved=True)).stdout
    table = list(csv.reader(io.StringIO(invoke("paths", "--format", "csv", data=rails()).stdout)))
    assert table[0][-2:] == ["src_nic", "dst_nic"]


def test_a_nic_that_the_log_does_not_tell_is_a_question() -> None:
    log = b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA\n"
    assert "2 -> ?" in invoke("paths", data=log).stdout


@pytest.mark.parametrize("verdict", VERDICTS)
def test_paths_are_filtered_by_verdict(verdict: str) -> None:
    wanted = [path for path in records("paths", TWO_HOSTS) if path["verdict"] == verdict]
    assert records(f"paths --verdict {verdict}", TWO_HOSTS) == wanted


@pytest.mark.parametrize("rule", ["socket-instead-of-rdma", "socket-*"])
def test_paths_are_filtered_by_finding(rule: str) -> None:
    found = records(f"paths --finding {rule}", TWO_HOSTS)
    assert found
    assert found == [path for path in records("paths", TWO_HOSTS) if "socket-instead-of-rdma" in path["rules"]]


@pytest.mark.parametrize(
    ("word", "details"),
    [
        ("socket", {"NET/Socket"}),
        ("NET/Socket", {"NET/Socket"}),
        ("net/so", {"NET/Socket"}),
        ("NET", {"NET/Socket"}),
        ("P2P/CUMEM", {"P2P/CUMEM"}),
        ("cumem", {"P2P/CUMEM"}),
        ("ib", set()),
        ("SHM", set()),
    ],
)
def test_a_transport_is_named_as_it_is_printed(word: str, details: set[str]) -> None:
    assert {path["detail"] for path in records(f"paths --transport {word}", TWO_HOSTS)} == details


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
