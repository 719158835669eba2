"""The work grows little faster than the log: counted in calls, which no other program disturbs."""

from __future__ import annotations

import pytest
import sample_data
from call_count import calls

from nccl_inspect import report
from nccl_inspect.cli.annotate import _Margin
from nccl_inspect.grammar import engine
from nccl_inspect.pipeline import reading
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.report import Style

HOSTILE: dict[str, tuple[str, ...]] = {
    "tracebacks": ("[rank{0}]: Traceback (most recent call last):", "[rank{0}]: ValueError: bad {0}"),
    "losses": ("[rank{0}]: Traceback (most recent call last):", "[rank{0}]: RuntimeError: Broken pipe"),
    "threads": ("Exception in thread T{0}:", "ValueError: bad {0}"),
    "processes": ("-- Process {0} terminated with the following error:", "ValueError: bad {0}"),
    "ends": ("slurmstepd: error: *** STEP {0}.0 ON a CANCELLED AT 2025-03-04T10:20:30 ***", "ValueError: bad {0}"),
    "pids": ("=   PID {0} RUNNING AT a", "=   EXIT CODE: {0}"),
    "tasks": ("srun: error: a: task {0}: Exited with exit code 1", "[rank{0}]: KeyboardInterrupt"),
}
"""What may stand in a log any number of times, and what rules relate to each other."""


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_the_work_grows_with_the_number_of_failures(name: str) -> None:
    (start,) = sample_data.contents("p2p-nvlink-8gpu")
    judge = Judge(Options())

    def work(number: int) -> int:
        lines = (line.format(at) + "\n" for at in range(number) for line in HOSTILE[name])
        fold = reading.fold(start + "".join(lines).encode())
        return calls(lambda: judge(fold))

    work(2)
    few, many = work(100), work(400)
    assert many < 6 * few


def test_a_margin_note_costs_little() -> None:
    (log,) = sample_data.contents("p2p-nvlink-8gpu")
    lines = log.split(b"\n")

    def work() -> None:
        for _ in _Margin(engine.load_grammar(), False, Style()).add_notes(lines):
            pass

    work()
    assert calls(work) < 60 * len(lines)


SMALL = """\
node-{0}:{1}:{1} [{2}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>
node-{0}:{1}:{1} [{2}] NCCL INFO ncclCommInitRank comm 0x{1:x} rank {2} nranks 3 {3} commId 0x{0:x}1 - Init START
node-{0}:{1}:{1} [{2}] NCCL INFO comm 0x{1:x} rank {2} nRanks 3 nNodes 2 localRanks 2 localRank {2} MNNVL 0
node-{0}:{1}:{1} [{2}] NCCL INFO Trees [0] -1/-1/-1->{2}->-1
node-{0}:{1}:{1} [{2}] NCCL INFO Channel 00/0 : {2}[{2}] -> 2[0] [send] via NET/IB/0
node-{0}:{1}:{1} [{2}] NCCL INFO ncclCommInitRank comm 0x{1:x} rank {2} nranks 3 {3} commId 0x{0:x}1 - Init COMPLETE
node-{0}:{1}:{1} [{2}] NCCL INFO ncclCommSplit comm 0x{1:x}f rank {2} nranks 2 {3} parent 0x{1:x} splitCount 1 color 1 \
key 0 - Init START
node-{0}:{1}:{1} [{2}] NCCL INFO Channel 00/0 : {2}[{2}] -> {4}[{4}] via SHM/direct/direct
node-{0}:{1}:{1} [{2}] NCCL INFO ncclCommSplit comm 0x{1:x}f rank {2} nranks 2 {3} parent 0x{1:x} splitCount 1 color 1 \
key 0 - Init COMPLETE
"""
"""A rank of a world of three, of which two began and split."""
HOMELESS = "other-{0}:{1}:{1} [2] NCCL INFO Channel 00/0 : 2[2] -> 0[0] [send] via NET/IB/1\n"
"""A rank whose communicator did not begin in this log: any of the worlds has room for it."""


def small_worlds(number: int) -> bytes:
    ranks = ((world, 1000 + 10 * world + rank, rank) for world in range(1, number + 1) for rank in (0, 1))
    device = "cudaDev {0} nvmlDev {0} busId 6{0}"
    begun = [SMALL.format(world, pid, rank, device.format(rank), 1 - rank) for world, pid, rank in ranks]
    return "".join([*begun, *(HOMELESS.format(world, 5 + 10 * world) for world in range(number))]).encode()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["", "text", "markdown", "html", "json"])
def test_the_work_grows_with_the_number_of_worlds(form: str) -> None:
    judge = Judge(Options())

    def work(number: int) -> int:
        fold = reading.fold(small_worlds(number))
        if not form:
            return calls(lambda: judge(fold))
        job = judge(fold)
        assert len(job.communicators) == 2 * number
        return calls(lambda: report.load(form).render(job, Style()))

    work(2)
    few, many = work(40), work(320)
    assert many < 9 * few  # squared would be 64; lines without a communicator are held against a limited number
