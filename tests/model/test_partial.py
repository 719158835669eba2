"""Logs of which a part is missing: what is left must not be read as more than it says."""

from __future__ import annotations

import re

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job

TWO_HOSTS = ["socket-2node-tp4-dp2", "v2.19.4-socket-2node", "timestamps", "v2.28.9-libfabric-2node"]
CUTS = range(1, 10)


def without_beginning(name: str, tenths: int) -> Job:
    """The job of a log without its first lines, as of one that was rotated away."""
    (log,) = sample_data.contents(name)
    lines = log.splitlines(keepends=True)
    return nccl_inspect.read(b"".join(lines[len(lines) * tenths // 10 :]))


def of_first_process(name: str) -> Job:
    """The job of the lines of rank 0, as of the one pod whose log was fetched."""
    (log,) = sample_data.contents(name)
    first = re.search(rb"^\S+?:\d+:", log, re.MULTILINE)
    assert first
    return nccl_inspect.read(b"".join(line for line in log.splitlines(keepends=True) if line.startswith(first[0])))


@pytest.mark.parametrize("tenths", CUTS)
@pytest.mark.parametrize("name", TWO_HOSTS)
def test_no_network_path_of_a_cut_log_is_taken_for_a_good_one_inside_a_host(name: str, tenths: int) -> None:
    job = without_beginning(name, tenths)
    assert [
        path for path in job.paths if path.scope == "intra" and path.transport == "NET" and path.verdict == "ok"
    ] == []
    assert "net-instead-of-p2p" not in {found.rule for found in job.findings}


@pytest.mark.parametrize("tenths", CUTS)
@pytest.mark.parametrize("name", TWO_HOSTS)
def test_what_stood_before_the_cut_is_not_missed(name: str, tenths: int) -> None:
    rules = {found.rule for found in without_beginning(name, tenths).findings}
    assert rules.isdisjoint({"env-mismatch-across-ranks", "algo-proto-forced"})


@pytest.mark.parametrize(("name", "paths"), [("socket-2node-tp4-dp2", 8), ("peer-killed", 1)])
def test_one_rank_tells_which_of_its_paths_leave_the_host(name: str, paths: int) -> None:
    """NCCL says how many ranks are on its node; as many are joined by P2P, so the others are elsewhere."""
    job = of_first_process(name)
    leaving = [path for path in job.paths if path.transport == "NET"]
    assert [path.scope for path in leaving] == ["inter"] * paths
    assert {path.verdict for path in leaving} == {"fallback"}


def test_paths_between_hosts_are_judged_beside_some_whose_hosts_are_not_known() -> None:
    channel = "{}:1:1 [0] NCCL INFO Channel 00/0 : {}[{}] -> {}[{}] [{}] via NET/Socket/0\n"
    known = channel.format("a", 0, 0, 1, 0, "send") + channel.format("b", 0, 0, 1, 0, "receive")
    job = nccl_inspect.read((known + channel.format("b", 1, 0, 2, 1, "send")).encode())
    assert [(path.scope, path.verdict) for path in job.paths] == [("inter", "fallback"), ("unknown", "unknown")]
    assert job.verdict == "degraded"


@pytest.mark.parametrize("order", [1, -1])
def test_two_processes_are_not_the_same_rank_of_one_communicator(order: int) -> None:
    """Of two communicators of two ranks one COMPLETE is left; what both say is not put together."""
    complete = (
        "b:2:2 [1] NCCL INFO ncclCommSplit comm 0x5 rank 1 nranks 2 cudaDev 1 nvmlDev 3 busId 90 parent 0x4 "
        "splitCount 2 color 1 key 3 - Init COMPLETE\n"
    )
    local = "b:1:3 [0] NCCL INFO Channel 00/0 : 0[2] -> 1[3] via P2P/CUMEM\n"
    distant = "a:1:4 [1] NCCL INFO Channel 00/0 : 0[1] -> 1[3] [send] via NET/Socket/0\n"
    job = nccl_inspect.read((complete + "".join([local, distant][::order])).encode())
    assert all(path.scope != "intra" for path in job.paths if path.transport == "NET")
    assert [path.src_host for path in job.paths if path.transport == "NET"] == ["a"]


@pytest.mark.parametrize("width", range(75, 115, 5))
@pytest.mark.parametrize("name", [*TWO_HOSTS, "efa-provider-missing-socket-fallback", "torch-watchdog-timeout"])
def test_a_log_whose_lines_are_cut_off_is_not_called_good(name: str, width: int) -> None:
    (log,) = sample_data.contents(name)
    assert nccl_inspect.read(b"\n".join(line[:width] for line in log.split(b"\n"))).verdict != "ok"
