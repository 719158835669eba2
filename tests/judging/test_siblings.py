"""Siblings that differ: planted differences are named, with what the others have; what is meant or lost is not."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection

import large_job
import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

HOSTS = 4
HEALTHY = large_job.log(HOSTS)
ON_SECOND = range(8, 16)
FIRST_HALF = range(16)
TWINS = (ROOT / "sample_logs/socket-2node-tp4-dp2/job.log").read_bytes()
NICS = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
ONE_NIC = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
_RANK = re.compile(rb":(40\d\d):40\d\d \[")


def planted(ranks: Collection[int], change: Callable[[bytes], bytes], log: bytes = HEALTHY) -> bytes:
    return b"".join(
        change(line) if (match := _RANK.search(line)) and int(match[1]) - 4000 in ranks else line
        for line in log.splitlines(keepends=True)
    )


def say(text: str) -> Callable[[bytes], bytes]:
    """Another line before the communicator begins."""

    def change(line: bytes) -> bytes:
        head, mark, rest = line.partition(b"NCCL INFO ")
        return head + mark + text.encode() + b"\n" + line if rest.startswith(b"cudaDriverVersion") else line

    return change


def swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(old, new)


OVER_NETWORK = swap(b"via P2P/CUMEM", b"[send] via NET/Libfabric/0/GDRDMA")


def odd(job: Job) -> list[Finding]:
    return [finding for finding in job.findings if finding.rule == "differs-from-siblings"]


def test_the_odd_one_is_named_with_what_the_others_have() -> None:
    with_nics = planted(range(HOSTS * 8), say(NICS))
    cases: list[tuple[bytes, list[int], str]] = [
        (planted([11], say("NCCL_CROSS_NIC set by environment to 1.")), [11], "NCCL_CROSS_NIC: 1 instead of none"),
        (planted(ON_SECOND, say("NCCL_PXN_DISABLE set by environment to 1.")), [*ON_SECOND], "1 instead of none"),
        (planted([11], swap(b"2.28.9+cuda13.0", b"2.27.7+cuda12.9")), [11], "NCCL: 2.27.7+cuda12.9 instead of 2.28.9"),
        (planted(ON_SECOND, swap(b"Version 13000", b"Version 12080")), [*ON_SECOND], "12080 instead of 13000"),
        (planted([11], swap(NICS.encode(), ONE_NIC.encode()), with_nics), [11], "IB devices seen: 1 instead of 2"),
        (planted(ON_SECOND, OVER_NETWORK), [*ON_SECOND], "NET/Libfabric instead of P2P/CUMEM"),
    ]
    for log, ranks, words in cases:
        job = nccl_inspect.read(log)
        findings = odd(job)
        assert [finding.ranks for finding in findings] == [ranks], words
        assert words in findings[0].summary and len(findings[0].evidence) >= 1
        assert job.verdict == ("unknown" if findings[0].clue else "degraded")


@pytest.mark.slow
def test_only_a_slower_path_costs_and_few_siblings_do_not_tell() -> None:
    slow = nccl_inspect.read(planted(ON_SECOND, OVER_NETWORK))
    bad = [path for path in slow.paths if path.verdict == "fallback"]
    assert slow.verdict == "degraded" and {path.src // 8 for path in bad} == {path.dst // 8 for path in bad} == {1}
    of_two = nccl_inspect.read(planted(ON_SECOND, OVER_NETWORK, large_job.log(2)))
    assert [(finding.confidence, finding.clue) for finding in odd(of_two)] == [("possible", True)]
    (comm,) = {comm.id for comm in nccl_inspect.read(TWINS).communicators if comm.ranks == [4, 5, 6, 7]}
    host = b"llama-3-8b-node-0-1"
    lines = [
        re.sub(rb"\b\d+ coll channels", b"1 coll channels", line) if line.startswith(host) else line
        for line in TWINS.splitlines(keepends=True)
    ]
    assert any(f"communicator {comm} differs" in finding.summary for finding in odd(nccl_inspect.read(b"".join(lines))))


def test_a_host_that_all_slow_paths_touch_is_odd_and_not_its_neighbors() -> None:
    job = nccl_inspect.read(large_job.log(20, channels=1, without_gdr=17))
    assert [finding.hosts for finding in odd(job)] == [["train-7f9c-node-17"]]
    slow = {(path.src_host, path.dst_host) for path in job.paths if path.verdict == "fallback"}
    assert {(16, 17), (17, 18)} <= {(int(src[-2:]), int(dst[-2:])) for src, dst in slow if src and dst}


def test_what_another_rule_tells_is_not_repeated() -> None:
    job = nccl_inspect.read(planted([11], say("NCCL_ALGO set by environment to Tree.")))
    assert any(finding.rule == "env-mismatch-across-ranks" for finding in job.findings) and not odd(job)


def test_machines_of_other_kinds_lost_lines_and_torn_logs_are_silent() -> None:
    with_nics = planted(range(HOSTS * 8), say(NICS))
    old = planted(ON_SECOND, swap(b"Version 13000", b"Version 12080"), with_nics)
    setting = say("NCCL_CROSS_NIC set by environment to 1.")
    logs = [
        HEALTHY,
        planted(ON_SECOND, swap(NICS.encode(), ONE_NIC.encode()), old),
        planted(ON_SECOND, say("NCCL_SOCKET_IFNAME set by environment to ens3.")),
        planted(FIRST_HALF, swap(b"Version 13000", b"Version 12080")),
        planted([rank for rank in range(HOSTS * 8) if rank != 11], setting),
        *(HEALTHY[: len(HEALTHY) * tenths // 10] for tenths in range(1, 10)),
        *(HEALTHY[len(HEALTHY) * tenths // 10 :] for tenths in (1, 5)),
    ]
    chance = random.Random(1)
    lines = HEALTHY.splitlines(keepends=True)
    logs.append(b"".join(line[:40] if chance.random() < 0.1 else line for line in lines))
    logs.append(b"".join(line for line in lines if chance.random() > 0.1))
    assert [odd(nccl_inspect.read(log)) for log in logs] == [[] for _ in logs]
