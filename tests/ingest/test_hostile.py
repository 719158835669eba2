"""What no honest job writes: absurd sizes and numbers, bombs, strange files, other encodings, interrupted output."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import nccl_inspect
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.torn import Rejoiner
from nccl_inspect.model.communicators import attribution
from nccl_inspect.model.fold import process_log
from nccl_inspect.model.fold.bounds import MAX_RANKS
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.scanning.counts import Counts
from nccl_inspect.scanning.scanner import MAX_PENDING, MAX_REMEMBERED, Scanner

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
TEMPLATE = (
    "%s:%d:1 [0] NCCL INFO ncclCommInitRank comm 0x%x rank %d nranks %d cudaDev 0 nvmlDev 0 busId 1000 commId 0x%x"
    " - Init COMPLETE\n"
)


def cut_off(size: int) -> int:
    """Kilobytes of memory that reading a line of so many bytes takes."""
    code = (
        "import nccl_inspect, resource, sys\n"
        "class Line:\n"
        "    left = int(sys.argv[1])\n"
        "    def read(self, size):\n"
        "        self.left -= 1 << 20\n"
        "        return b'a' * (1 << 20) if self.left > 0 else b''\n"
        "try: nccl_inspect.read(Line())\n"
        "except nccl_inspect.errors.NoInputError as error: print(error, file=sys.stderr)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(size)], capture_output=True, text=True, check=True)
    return int(done.stdout)


# --- sizes


@pytest.mark.slow
def test_a_line_of_many_megabytes_takes_little_memory() -> None:
    assert cut_off(300 << 20) < cut_off(10 << 20) + 20_000


def test_a_torn_line_stays_bounded() -> None:
    rejoiner = Rejoiner()
    head = b"vm:1:1 [0] NCCL INFO "
    lines = list(rejoiner.feed(head + b"a" * (5 << 20)))
    lines += rejoiner.finish()
    assert max(len(line.line) for line in lines) <= (1 << 20)


def test_the_lines_of_too_many_processes_are_left_out_and_that_is_told() -> None:
    reader = Reader(Fold(most_processes=10))
    reader.fold.start("job.log")
    reader.feed(b"host%d:%d:1 [0] NCCL INFO cudaDriverVersion 13000" % (n, n) for n in range(100))
    job = Judge(Options())(reader.fold)
    assert job.processes == 10
    assert job.sources[0].nccl_lines == 100
    assert "those of others were left out" in str(job.sources[0].problem)


def test_few_messages_of_hostile_size_are_kept() -> None:
    lines = [b"vm:1:1 [0] x.cc:1 NCCL WARN %d %s\n" % (n, b"b" * 6000) for n in range(process_log.MAX_LONG * 3)]
    job = nccl_inspect.read(b"".join(lines))
    assert sum(notice.count for notice in job.notices) == len(lines)
    assert len(job.notices) <= process_log.MAX_LONG + 1


def test_what_is_remembered_is_bounded_by_its_bytes() -> None:
    one = Scanner(engine.shipped())
    text = b"c" * (MAX_REMEMBERED // 100)
    for n in range(500):
        one.scan([b"vm:%d:1 [0] NCCL INFO %d %s" % (n, n, text)], Counts(), lambda *_: None)
    assert MAX_REMEMBERED < one._texts.size <= 2 * MAX_REMEMBERED


def test_parts_of_lines_that_never_end_are_bounded() -> None:
    counts = Counts()
    part = b"[pod/p%d/c] 2026-11-20T23:13:07.071868123Z stdout P vm:1:1 [0] NCCL INFO aa"
    Scanner(engine.shipped()).scan([part % n for n in range(MAX_PENDING + 10)], counts, lambda *_: None)
    assert len(counts.pending) == MAX_PENDING


# --- numbers


@pytest.mark.parametrize(("rank", "nranks"), [(0, 2_000_000_000), (-5, 8), (9, 8), (0, 0), (0, -8)])
def test_ranks_beyond_sense_are_damage(rank: int, nranks: int) -> None:
    text = TEMPLATE % ("vm", 1, 1, rank, nranks, 1)
    job = nccl_inspect.read(text.encode() + LINE)
    assert job.world_size is None
    assert job.sources[0].damaged_lines == 1


def test_connections_to_impossible_ranks_are_damage() -> None:
    for number in (b"2000000000[0] -> 1[1]", b"-5[0] -> 1[1]"):
        job = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO Channel 00/0 : %b via P2P/CUMEM\n" % number)
        assert not job.paths


def test_communicators_that_claim_too_many_ranks_are_not_listed() -> None:
    text = "".join(TEMPLATE % ("vm", 1, n, 0, MAX_RANKS - 1, n) for n in range(1, 5))
    listed = [len(comm.ranks) for comm in nccl_inspect.read(text.encode()).communicators]
    assert listed == [MAX_RANKS - 1, MAX_RANKS - 1, 0, 0]


def test_fragments_are_bounded() -> None:
    line = b"h%d:%d:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    job = nccl_inspect.read(b"".join(line % (n, n) for n in range(300)))
    assert len({name for path in job.paths for name in path.communicators}) == 256
    assert job.unplaced_lines == 44


def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "MAX_QUESTIONS", 10)
    text = "".join(TEMPLATE % ("vm", 1, n, 0, 8, n) for n in range(1, 20)).encode()
    text += b"".join(b"vm:1:%d [0] NCCL INFO Channel 00/0 : 0[0] -> 3[1] [send] via NET/IB/0\n" % n for n in range(50))
    assert nccl_inspect.read(text).unplaced_lines > 0


def steps(data: bytes) -> int:
    """How many calls and lines of Python reading ``data`` takes: unlike a time, the same on a busy machine."""
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        nccl_inspect.read(data)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "line",
    [
        b"h%d:%d:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
        b"vm:%d:1 [0] NCCL INFO ncclCommInitRank comm 0x%x rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x1"
        b" - Init COMPLETE\n",
        b"vm:1:%d [0] NCCL INFO Channel 00/0 : %d[0] -> 1[1] [send] via NET/IB/0\n",
        b"h%d:1:1 [0] NCCL INFO NCCL_V%d set by environment to 1\n",
        b"h%d:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_%d\n",
        b"ray.exceptions.RayTaskError(KeyError): ray::work() (pid=%d, ip=192.0.2.2)\nstep %d\n",
        b"vm:1:1 [0] NCCL INFO Channel 00vm:%d:%d [0] NCCL INFO cudaDriverVersion 13000\n",
        b"vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x%x rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x1"
        b" - Init COMPLETE\n"
        b"vm:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        b"vm:1:2 [0] NCCL INFO Connected all rings\n"
        b"vm:1:1 [0] NCCL INFO comm 0x%x rank 0 nranks 2 cudaDev 0 busId 1 - Destroy COMPLETE\n",
    ],
)
def test_work_grows_with_the_log(line: bytes) -> None:
    few, many = (LINE + b"".join(line % (n, n) for n in range(1, lines + 1)) for lines in (500, 4000))
    steps(few)  # what is loaded at the first use is not counted
    assert steps(many) < 10 * steps(few), "eight times the lines"


# --- envelopes


def test_json_may_be_nested_to_any_depth_without_harm() -> None:
    deep = b'{"log":' + b"[" * 100_000 + b"\n" + b'{"a":' * 20_000 + b'{"log":"x"}' + b"}" * 20_000 + b"\n"
    job = nccl_inspect.read(deep + LINE)
    assert len(job.paths) == 1


def test_envelopes_within_each_other_end_somewhere() -> None:
    line = LINE.decode().strip()
    for _ in range(10):
        line = json.dumps({"log": line, "stream": "stdout"})
    job = nccl_inspect.read(line.encode() + b"\n" + LINE)
    assert len(job.paths) == 1
