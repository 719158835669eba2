"""The command ``traffic``: calls are counted, merge, and become bytes on paths."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from itertools import pairwise

import sample_data
from click.testing import Result
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.model import resolve
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.traffic import load
from nccl_inspect.traffic.flows import Traffic, traffic_of

SAMPLE = sample_data.FOLDER / "v2.30.7-subsys-all"
MB16 = 16_777_216


def run(*args: str, data: bytes | None = None) -> Result:
    return invoke("traffic", *args, data=data)


@cache
def sample() -> bytes:
    return b"".join(sample_data.contents("v2.30.7-subsys-all"))


def log(*calls: str, ranks: int = 4, ring: str = "0 1 2 3", extra: str = "") -> bytes:
    """Ranks of one host in one ring, each making the same calls, after the formats of 2.27."""
    lines = []
    for rank in range(ranks):
        head = f"vm:{10 + rank}:{10 + rank} [{rank}] NCCL INFO "
        init = f"comm 0xa rank {rank} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0x2"
        lines += [f"{head}ncclCommInitRank {init} - Init START", f"{head}ncclCommInitRank {init} - Init COMPLETE"]
        if rank == 0:
            lines += [f"{head}Channel 00/01 : {ring}", *(f"{head}{line}" for line in extra.splitlines())]
        lines.append(f"{head}Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % ranks}[{(rank + 1) % ranks}] via P2P/CUMEM")
        lines += [head + call for call in calls]
    return "\n".join(lines).encode() + b"\n"


def call(func: str, count: int, datatype: int = 7, root: int = 0, number: int = 0, ranks: int = 4) -> str:
    return (
        f"{func}: opCount {number:x} sendbuff 0x1 recvbuff 0x2 count {count} datatype {datatype} op 0 root {root} "
        f"comm 0xa [nranks={ranks}] stream 0x3"
    )


def traffic(data: bytes) -> Traffic:
    return traffic_of(nccl_inspect.read(data), [])


def carried(found: Traffic) -> dict[tuple[int, int], float]:
    return {(flow.src, flow.dst): flow.bytes for flow in found.flows}


def test_calls_of_a_real_log_are_counted() -> None:
    found = {(one.func, one.communicator): one for one in traffic(sample()).operations}
    allreduce = found["AllReduce", "world"]
    assert (allreduce.calls, allreduce.largest, allreduce.bytes) == (7, MB16, 7 * MB16)
    assert (allreduce.algorithms, allreduce.protocols, allreduce.basis) == (["RING"], ["SIMPLE"], "ring")
    assert allreduce.sent == 7 * MB16 * 2 * 3 / 4
    send = found["Send", "world"]
    assert (send.calls, send.largest, send.basis) == (16, 4096, "direct")


def test_bytes_go_where_the_call_sends_them() -> None:
    ring, to_2, from_2 = [(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 2), (1, 2), (3, 2)], [(2, 0), (2, 1), (2, 3)]
    every = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    for calls, pairs, each in (
        # each rank of a ring sends its share
        ([call("AllReduce", 1000)], ring, 6000),
        ([call("AllGather", 1000)], ring, 12000),
        ([call("ReduceScatter", 1000)], ring, 12000),
        # a broadcast ends before its root, a reduce at it
        ([call("Broadcast", 10, root=1)], ring[1:], 40),
        ([call("Reduce", 10, root=1)], [*ring[2:], ring[0]], 40),
        # direct calls go from rank to rank
        ([call("AlltoAll", 10, datatype=9)], every, 20),
        ([call("Gather", 10, root=2)], to_2, 40),
        ([call("Scatter", 10, root=2)], from_2, 40),
        ([call("Send", 10, root=2)], to_2, 40),
        ([call("Recv", 10, root=2)], from_2, 40),
        ([call("Send", 10, root=2), call("Recv", 10, root=2)], [*to_2, *from_2], 40),
    ):
        found = traffic(log(*calls))
        assert carried(found) == dict.fromkeys(pairs, each), calls
        if len(pairs) == 4:
            assert all(flow.assumed == flow.bytes for flow in found.flows), calls


def test_the_algorithm_decides_where_it_is_known() -> None:
    chosen = "AllReduce: 4000 Bytes -> Algo {} proto LL channel{{Lo..Hi}}={{0..0}}"
    ring = traffic(log(call("AllReduce", 1000), extra=chosen.format("RING")))
    assert not any(flow.assumed for flow in ring.flows)
    tree = traffic(log(call("AllReduce", 1000), extra="Trees [0] 1/-1/-1->0->-1\n" + chosen.format("TREE")))
    assert carried(tree) == {(0, 1): 4000, (1, 0): 4000}
    switch = traffic(log(call("AllReduce", 1000), extra=chosen.format("NVLS")))
    assert not switch.flows
    assert switch.unplaced == {"NVLS uses no ring or tree": 24000}
    other = traffic(log(call("AllReduce", 1000), extra=chosen.replace("4000", "999").format("TREE")))
    assert other.operations[0].basis == "assumed ring"
    old = traffic(log(call("AllReduce", 1000), extra="4000 Bytes -> Algo 1 proto 2 time 12.000000"))
    assert (old.operations[0].algorithms, old.operations[0].protocols) == (["RING"], ["SIMPLE"])


def test_jobs_given_together_keep_their_algorithms() -> None:
    chosen = "AllReduce: 4000 Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..0}}"
    one = log(call("AllReduce", 1000), extra=chosen.format("RING", "LL"))
    two = log(call("AllReduce", 1000), extra=chosen.format("TREE", "SIMPLE")).replace(b"commId 0x2", b"commId 0x3")
    both = one + two.replace(b"vm:", b"wm:")
    for job, algorithm, protocol in (("1", "RING", "LL"), ("2", "TREE", "SIMPLE")):
        found = traffic_of(nccl_inspect.read(both, job=job), []).operations
        assert [(op.algorithms, op.protocols) for op in found] == [([algorithm], [protocol])]


def test_sizes_are_gathered_by_powers_of_two() -> None:
    data = log(*(call("AllReduce", count, number=n) for n, count in enumerate((1024, 1500, 2047, 2048))))
    found = traffic(data).operations
    assert [(one.calls, one.smallest, one.largest) for one in found] == [(3, 4096, 8188), (1, 8192, 8192)]
    many = log(*(call("Send", 1 + n % 1000, root=n % 4, number=n) for n in range(1500)))
    state = sample_data.folded([("log", many.splitlines())])
    assert all(len(process.calls) <= 40 for process in state.processes.values())


def test_a_pointer_that_is_used_again_leaves_calls_without_communicator() -> None:
    first = log(call("AllReduce", 8, ranks=1), ranks=1, ring="0")
    end = b"vm:10:10 [0] NCCL INFO comm 0xa rank 0 nranks 1 cudaDev 0 busId 1000 - Destroy COMPLETE\n"
    one = nccl_inspect.read(first + end)
    assert one.calls[0].communicator == "world"
    again = nccl_inspect.read(first + end + first)
    assert again.calls[0].communicator is None


def test_calls_without_initialisation_are_told_and_not_placed() -> None:
    found = traffic(f"vm:1:1 [0] NCCL INFO {call('AllReduce', 1000)}\n".encode())
    assert found.operations[0].communicator is None
    assert found.unplaced == {"the log does not show the communicator": 24000}
    odd = traffic(log(call("AllReduce", 1000, datatype=77)))
    assert odd.unplaced == {"datatype 77 is not known": 0}
    assert not odd.flows


def test_the_slowest_kind_of_path_is_the_bottleneck() -> None:
    found = traffic(sample()).bottleneck
    assert found is not None
    assert found.flow.detail == "NET/Socket"
    assert found.sure


def resolved(folds: list[Fold]) -> Job:
    for later in folds[1:]:
        folds[0].merge(later)
    return resolve.resolve(folds[0])


@given(places=st.lists(st.integers(0, 100_000), max_size=4))
def test_calls_merge(places: list[int]) -> None:
    lines = log(*(call("AllReduce", 2**n, number=n) for n in range(12)), call("Send", 8)).splitlines()
    ends = sorted({0, len(lines), *(place % len(lines) for place in places)})
    whole = resolved([sample_data.folded([("log", lines)])])
    parts = resolved([sample_data.folded([("log", lines[a:b])]) for a, b in pairwise(ends)])
    assert parts.calls == whole.calls
    assert whole.calls


def test_text_json_and_csv() -> None:
    text = run(str(SAMPLE)).stdout
    assert "AllReduce" in text
    assert "NET/Socket, the bottleneck" in text
    document = json.loads(run(str(SAMPLE), "--format", "json").stdout)
    assert document["operations"][0]["sent_bytes_per_rank"] == 7 * MB16 * 2 * 3 // 4
    assert document["bottleneck"]["detail"] == "NET/Socket"
    rows = list(csv.DictReader(io.StringIO(run(str(SAMPLE), "--format", "csv").stdout)))
    assert rows[0]["operation"] == "AllReduce"
    rows = list(csv.DictReader(io.StringIO(run(str(SAMPLE), "--format", "csv", "--by", "path").stdout)))
    assert len(rows) == len(document["paths"]) == 12
    assert "split" not in run(str(SAMPLE), "--communicator", "world").stdout


def test_narrow_terminals_get_paragraphs() -> None:
    text = load("text").render(traffic(sample()), "operation", Style(width=40))
    assert max(map(len, text.splitlines())) <= 40


def test_a_log_without_calls_says_what_to_set() -> None:
    text = run("-", data=b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n").stdout
    assert "NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING" in text
