"""Twice as many of anything is at most a little more than twice the work: no log, however odd, stops the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from call_count import calls_by_function

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.report import Style

MANY = (64, 128, 256)
OTHER = {"ends": (256, 512, 1024), "splits in turn": (32, 64, 128)}
"""Logs that are excerpts while shorter, or read in columns once they are longer: that is other work."""
GROWTH = 2.6
"""Of what the last doubling adds to what the first adds: linear is 2, with sorting a little more, and quadratic 4."""
SELDOM = 2000
"""Calls that nobody needs to look at."""
FORMATS = ("text", "json", "html", "markdown")

pytestmark = pytest.mark.slow

Lines = Iterator[str]


def head(host: int, pid: int, gpu: int = 0) -> str:
    return f"host-{host}:{pid}:{pid} [{gpu}] NCCL INFO "


def init(rank: int, nranks: int, comm: int, how: str, phase: str) -> str:
    call = "ncclCommSplit" if "parent" in how else "ncclCommInitRank"
    about = f"rank {rank} nranks {nranks} cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8 + 1}000"
    return f"{call} comm {comm:#x} {about} {how} - Init {phase}"


def connection(rank: int, other: int, way: str = "via P2P/CUMEM") -> str:
    return f"Channel 00/0 : {rank}[{rank % 8}] -> {other}[{other % 8}] {way}"


def world(
    number: int,
    ranks: int = 2,
    *,
    without: tuple[int, ...] = (),
    start: bool = True,
    host: int | None = None,
    id: int = 0,
) -> Lines:
    """Return a communicator with processes of its own."""
    for rank in set(range(ranks)) - set(without):
        place, pid = number if host is None else host, 1000 + number * ranks + rank
        of_rank = head(place, pid, rank % 8)
        comm = 0x55000000 + (number * ranks + rank) * 4096
        for phase in ("START",) * start + ("COMPLETE",):
            yield of_rank + init(rank, ranks, comm, f"commId {id or number + 1:#x}", phase)
        yield of_rank + connection(rank, (rank + 1) % ranks)
        yield of_rank + "Connected all rings"


def hosts(many: int) -> Lines:
    """Return a rank on each of many hosts."""
    for rank in range(many):
        for phase in ("START", "COMPLETE"):
            yield head(rank, 1000) + init(rank, many, 0x5500000 + rank * 4096, "commId 0x77", phase)
        yield head(rank, 1000) + connection(rank, (rank + 1) % many, "[send] via NET/Socket/0")


def each(one: Callable[[int], Lines]) -> Callable[[int], Lines]:
    return lambda many: (line for number in range(many) for line in one(number))


def with_all(lines: Callable[[int], Lines], line: Callable[[int], str]) -> Callable[[int], Lines]:
    def both(many: int) -> Lines:
        yield from lines(many)
        yield from (line(number) for number in range(many))

    return both


def one_world(_many: int) -> Lines:
    return world(0, 8)


def nested_splits(many: int) -> Lines:
    """Return a split of a split of a split."""
    yield from world(0)
    parents = [0x55000000, 0x55001000]
    for number in range(many):
        for rank in range(2):
            comm = 0x66000000 + (number * 2 + rank) * 4096
            how = f"parent {parents[rank]:#x} splitCount 1 color 0 key {rank}"
            for phase in ("START", "COMPLETE"):
                yield head(0, 1000 + rank, rank) + init(rank, 2, comm, how, phase)
            parents[rank] = comm


def splits_in_turn(many: int) -> Lines:
    """Return each is destroyed before the next begins."""
    yield from world(0, 8)
    for number in range(many):
        for rank in range(8):
            of_rank, comm = head(0, 1000 + rank, rank), 0x66000000 + (number * 8 + rank) * 4096
            how = f"parent {0x55000000 + rank * 4096:#x} splitCount {number + 1} color 0 key {rank}"
            for phase in ("START", "COMPLETE"):
                yield of_rank + init(rank, 8, comm, how, phase)
            yield of_rank + connection(rank, (rank + 1) % 8)
            yield of_rank + f"comm {comm:#x} rank {rank} nranks 8 cudaDev {rank} busId {rank + 1}000 - Destroy COMPLETE"


def close_worlds(number: int) -> str:
    text = f"socketProgress: Connection closed by remote peer host-{number}<{4000 + number}>"
    return f"host-{number}:1000:1000 [0] misc/socket.cc:46 NCCL WARN {text}"


def watchdog(number: int) -> str:
    work = "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    caught = f"Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before timing out."
    return f"[rank{number}]:[E ProcessGroupNCCL.cpp:632] [Rank {number}] {caught}"


def value(number: int) -> str:
    return head(0, 1000 + number % 8, number % 8) + f"NCCL_BUFFSIZE set by environment to {number}."


def lost_ranks(number: int) -> Lines:
    """Return a world of three of which two began and split, and a line of a rank whose own one did not begin."""
    yield from world(number, 3, without=(2,))
    for rank in range(2):
        comm, how = 0x55000000 + (number * 3 + rank) * 4096, "splitCount 1 color 1 key 0"
        for phase in ("START", "COMPLETE"):
            yield head(number, 1000 + number * 3 + rank, rank) + init(
                rank, 2, comm + 1, f"parent {comm:#x} {how}", phase
            )
    yield head(1000 + number, 5) + connection(2, 0, "[send] via NET/IB/1")


def repeat_lines(*lines: str) -> Callable[[int], Lines]:
    """Return a world, and lines of which there may be any number."""
    return lambda many: chain(one_world(many), (line.format(number) for number in range(many) for line in lines))


BEGUN = "ncclCommInitRank comm 0x{0:x} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x1 - Init COMPLETE"
JOBS: dict[str, Callable[[int], Lines]] = {
    "worlds": each(world),
    "worlds of one host": each(lambda number: world(number, host=0)),
    "worlds without a rank": each(lambda number: world(number, 4, without=(number % 4,))),
    "worlds without START": each(lambda number: world(number, start=False)),
    "a chain of connections": lambda many: (
        head(rank // 8, 1000 + rank) + connection(rank, rank + 1, "via SHM/direct/direct")
        for rank in reversed(range(many))
    ),
    "hosts": hosts,
    "nested splits": nested_splits,
    "splits in turn": splits_in_turn,
    "restarts of a process": each(lambda number: world(0, id=number + 1)),
    "values of a setting": with_all(one_world, value),
    "errors of one process": with_all(
        one_world, lambda number: close_worlds(number).replace(f"host-{number}:", "host-0:", 1)
    ),
    "errors of each rank": with_all(hosts, close_worlds),
    "watchdogs": with_all(hosts, watchdog),
    "ends": with_all(hosts, lambda number: f"srun: error: host-{number}: task {number}: Killed"),
    "worlds whose ranks are lost": each(lost_ranks),
    "tracebacks": repeat_lines("[rank{0}]: Traceback (most recent call last):", "[rank{0}]: ValueError: bad {0}"),
    "losses": repeat_lines("[rank{0}]: Traceback (most recent call last):", "[rank{0}]: RuntimeError: Broken pipe"),
    "threads": repeat_lines("Exception in thread T{0}:", "ValueError: bad {0}"),
    "processes": repeat_lines("-- Process {0} terminated with the following error:", "ValueError: bad {0}"),
    "steps": repeat_lines(
        "slurmstepd: error: *** STEP {0}.0 ON a CANCELLED AT 2025-03-04T10:20:30 ***", "ValueError: {0}"
    ),
    "pids": repeat_lines("=   PID {0} RUNNING AT a", "=   EXIT CODE: {0}"),
    "tasks": repeat_lines("srun: error: a: task {0}: Exited with exit code 1", "[rank{0}]: KeyboardInterrupt"),
    "ray": repeat_lines("ray.exceptions.RayTaskError(KeyError): ray::work() (pid={0}, ip=192.0.2.2)", "step {0}"),
    "processes of a connection": repeat_lines("h{0}:{0}:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
    "processes of a rank": repeat_lines("vm:{0}:1 [0] NCCL INFO " + BEGUN),
    "threads of a process": repeat_lines("vm:1:{0} [0] NCCL INFO Channel 00/0 : {0}[0] -> 1[1] [send] via NET/IB/0"),
    "settings": repeat_lines("h{0}:1:1 [0] NCCL INFO NCCL_V{0} set by environment to 1"),
    "NICs": repeat_lines("h{0}:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_{0}"),
    "torn lines": repeat_lines("vm:1:1 [0] NCCL INFO Channel 00vm:{0}:{0} [0] NCCL INFO cudaDriverVersion 13000"),
    "lives of a process": repeat_lines(
        "vm:1:1 [0] NCCL INFO " + BEGUN,
        "vm:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "vm:1:2 [0] NCCL INFO Connected all rings",
        "vm:1:1 [0] NCCL INFO comm 0x{0:x} rank 0 nranks 2 cudaDev 0 busId 1 - Destroy COMPLETE",
    ),
    "unknown messages": with_all(
        one_world, lambda number: head(0, 1000) + "odd " + "".join(chr(97 + number // n % 26) for n in (676, 26, 1))
    ),
}


def judge_lines(log: bytes) -> None:
    job = nccl_inspect.read(log)
    for name in FORMATS:
        report.load(name).render(job, Style())


def growing(works: list[Callable[[], object]]) -> list[str]:
    """Return the functions whose calls grow faster than what they are called for."""
    for work in works:
        work()  # loads what is loaded once
    small, middle, large = map(calls_by_function, works)
    return [
        f"{name}: {small[name]}, {middle[name]}, {number}"
        for name, number in large.items()
        if number > SELDOM and number - middle[name] > GROWTH * max(middle[name] - small[name], SELDOM / 4)
    ]


@pytest.mark.parametrize("name", JOBS)
def test_the_work_grows_with_the_log(name: str) -> None:
    logs = ["\n".join([*JOBS[name](many), ""]).encode() for many in OTHER.get(name, MANY)]
    assert growing([partial(judge_lines, log) for log in logs]) == []


def test_the_work_grows_with_the_files(tmp_path: Path) -> None:
    folders = []
    for many in MANY:
        folders.append(folder := tmp_path / str(many))
        folder.mkdir()
        for line in hosts(many):
            with (folder / f"nccl.{line.split(':')[0]}.log").open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    assert growing([partial(nccl_inspect.read, folder) for folder in folders]) == []
