"""Bandwidth that nccl-tests measured, against what the paths of the job give: when it tells, and when it does not."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect import platforms
from nccl_inspect.model.job import Job

SXM = "NVIDIA H100 80GB HBM3"
LARGE = 512 << 20
OPTIONS = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 536870912 step: 2(factor) warmup iters: {} iters: 20 agg iters: 1 "
    "validation: 1 graph: 0\n"
)


START = "# Collective test starting: all_reduce_perf\n"
"""After the format string of nccl-tests 2.17.0, src/common.cu."""


def row(size: int = LARGE, busbw: float = 1.9, redop: str = "sum", root: int = -1, wrong: str = "0") -> str:
    """A row after the formats of nccl-tests 2.18.1, src/util.cu."""
    time = size / busbw / 1000
    half = f"  {time:7.0f}  {busbw:6.2f}  {busbw:6.2f}  {wrong:>6}"
    return f"{size:12}  {size // 4:12}  {'float':>8}  {redop:>6}  {root:6}{half}{half}\n"


def rank(number: int, gpu: str = SXM, host: str = "host1", pid: int | None = None) -> str:
    place = f"device {number % 8:2} [0000:{number % 8:02x}:00]"
    return f"#  Rank {number:2} Group  0 Pid {38 + number if pid is None else pid:6} on {host:>10} {place} {gpu}\n"


def p2p(src: int, dst: int, host: str = "host1") -> str:
    pid = 38 + src
    return (
        f"{host}:{pid}:{pid} [{src % 8}] NCCL INFO Channel 00/0 : {src}[{src % 8}] -> {dst}[{dst % 8}] via P2P/CUMEM\n"
    )


def of_host(body: str, gpu: str = SXM) -> str:
    """Two GPUs of one host over P2P."""
    return START + rank(0, gpu) + rank(1, gpu) + p2p(0, 1) + p2p(1, 0) + body


def of_two_hosts(body: str, local: int = 8) -> str:
    """Two hosts: rings of P2P inside, one pair of RDMA each way between them."""
    world = 2 * local
    text = START + "".join(rank(number, host=f"host{1 + number // local}") for number in range(world))
    for number in range(world):
        host = f"host{1 + number // local}"
        mine = f"{host}:{38 + number}:{38 + number} [{number % local}] NCCL INFO "
        text += f"{mine}ncclCommInitRank comm 0x55a4780cd820 rank {number} nranks {world} cudaDev {number % local} "
        text += f"nvmlDev {number % local} busId {number % local + 1}0 commId 0x88d1d362defe9a10 - Init START\n"
        text += f"{mine}comm 0x55a4780cd820 rank {number} nRanks {world} nNodes 2 localRanks {local} localRank "
        text += f"{number % local} MNNVL 0\n"
        end = (number + 1) % world
        if end % local:
            text += f"{mine}Channel 00/0 : {number}[{number % local}] -> {end}[{end % local}] via P2P/CUMEM\n"
        else:
            text += f"{mine}Channel 00/0 : {number}[{number % local}] -> {end}[0] [send] via NET/IB/0/GDRDMA\n"
    return text + body


def is_low(text: str, platform: str | None = None) -> bool:
    return any(finding.rule == "bandwidth-low" for finding in read(text, platform).findings)


def read(text: str, platform: str | None = None) -> Job:
    job = nccl_inspect.read(text.encode(), platform=platform)
    assert not any(source.unrecognised_lines or source.damaged_lines for source in job.sources)
    return job


def test_a_slow_run_over_good_paths_is_no_good_run() -> None:
    job = read(of_host(row()))
    assert job.verdict == "degraded"
    assert {path.verdict for path in job.paths} == {"unknown"}
    (finding,) = job.findings
    assert "1.9 GB/s" in finding.summary
    assert any("134217728" in line.text for line in finding.evidence)


def test_the_best_large_row_counts() -> None:
    assert is_low(of_host(row(wrong="N/A") + row(64 << 20, 80)))
    assert not is_low(of_host(row() + row(64 << 20, 87)))
    assert is_low(of_host(row() + row(32 << 20, 300)))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(row(32 << 20), id="a small message"),
        pytest.param(row(redop="none"), id="maybe an all-to-all"),
        pytest.param(row(root=0), id="a reduce"),
        pytest.param(OPTIONS.format(0) + row(), id="no warm-up"),
        pytest.param(row(busbw=0.0001), id="one rank moves nothing"),
    ],
)
def test_what_tells_nothing_is_no_reason(body: str) -> None:
    assert not is_low(of_host(body))


def test_the_usual_warm_up_is_enough() -> None:
    assert is_low(of_host(OPTIONS.format(5) + row()))


@pytest.mark.parametrize(
    ("gpu", "generation"),
    [
        ("NVIDIA A100-SXM4-80GB", 3),
        ("A100-SXM4-40GB", 3),
        (SXM, 4),
        ("NVIDIA H200", 4),
        ("NVIDIA GB200", 5),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),
        ("GRID A100X-40C", None),
        ("Tesla V100-SXM2-16GB", None),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 3090", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_only_gpus_that_all_have_nvlink_are_known_by_name(gpu: str, generation: int | None) -> None:
    machine = platforms.of_gpus([gpu])
    assert ((machine.nvlink or None) if machine else None) == generation
    assert is_low(of_host(row(), gpu)) is (generation is not None)


def test_a_machine_with_all_its_gpus_has_all_its_nics() -> None:
    text = of_two_hosts(row(busbw=20))
    assert is_low(text, "p5.48xlarge")
    assert not is_low(text)
    assert not is_low(of_two_hosts(row(busbw=20), local=4), "p5.48xlarge")
    assert not is_low(of_two_hosts(row(busbw=150)), "p5.48xlarge")


def test_larger_jobs_need_larger_messages() -> None:
    assert not is_low(of_two_hosts(row(128 << 20, 20)), "p5.48xlarge")
    world = START + "".join(rank(number) for number in range(64))
    assert not is_low(world + p2p(0, 1) + row(512 << 20))
    assert is_low(world + p2p(0, 1) + row(1 << 30))


def test_paths_that_are_not_in_the_log_may_be_the_slow_ones() -> None:
    assert not is_low(START + rank(0) + rank(8, host="host2") + p2p(0, 1) + row())
    socket = "host1:38:38 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    assert not is_low(START + rank(0) + rank(8, host="host2") + p2p(0, 1) + socket + row())


def test_a_limit_that_somebody_set_is_told_as_the_cause() -> None:
    limit = "host1:38:38 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
    (low,) = (finding for finding in read(of_host(limit + row())).findings if finding.rule == "bandwidth-low")
    assert low.because == ["algo-proto-forced"]


def run(pid: int, busbw: float) -> str:
    """A whole run with two GPUs in one process."""
    text = ""
    for phase in ("START", "COMPLETE"):
        for number in (0, 1):
            text += f"host1:{pid}:{pid + number} [{number}] NCCL INFO ncclCommInitAll comm 0x55a4780cd82{number} rank "
            text += (
                f"{number} nranks 2 cudaDev {number} nvmlDev {number} busId {number + 1}0 commId 0x88d1d362defe9a10 "
            )
            text += f"- Init {phase}\n"
    for src, dst in ((0, 1), (1, 0)):
        text += f"host1:{pid}:{pid + src} [{src}] NCCL INFO Channel 00/0 : {src}[{src}] -> {dst}[{dst}] via P2P/CUMEM\n"
    return START + rank(0, pid=pid) + rank(1, pid=pid) + text + row(busbw=busbw)


def test_only_the_one_run_of_nccl_tests_is_judged() -> None:
    assert is_low(run(200, 1.9), "hgx-h100")
    assert not is_low(run(100, 300) + run(200, 1.9), "hgx-h100")
    assert not is_low(run(100, 1.9) + run(200, 300), "hgx-h100")
    other = START.replace("all_reduce", "sendrecv")
    assert not is_low(other + row() + run(200, 300), "hgx-h100")
    assert not is_low(run(200, 300) + other + row(), "hgx-h100")


def test_only_tests_of_which_the_slowest_path_tells_are_judged() -> None:
    text = of_host(row())
    assert is_low(text.replace("all_reduce_perf", "reduce_scatter_perf_mpi"))
    assert not is_low(text.replace("all_reduce_perf", "sendrecv_perf"))
    assert not is_low(text.replace(START, ""))


def test_a_row_of_another_run_is_not_held_against_the_paths_of_the_job() -> None:
    said = of_host("")
    test = START + rank(0) + rank(1)
    paths = said.removeprefix(test)
    assert not is_low(paths + test + row()), "the job ran before the test"
    assert not is_low(test + row() + paths), "the job ran after the test"
    assert not is_low(START + rank(0, pid=7) + rank(1, pid=8) + paths + row()), "other processes"
    assert not is_low(START + paths + row()), "a test whose list is not in the log"
