"""From calls to bytes on paths.

Each rank of a ring sends 2(N-1)/N of the buffer for an all-reduce, (N-1)/N for an all-gather, a reduce-scatter or an
all-to-all, and passes on the whole of a broadcast or reduce. Bytes are payload: the protocol LL sends twice as many.
Where the log does not name the algorithm a ring is assumed, and marked so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from nccl_inspect import platforms
from nccl_inspect.judging import impact
from nccl_inspect.judging.impact import Rate
from nccl_inspect.model.inventory import Calls
from nccl_inspect.model.job import CommunicatorInfo, Job, Path
from nccl_inspect.traffic.algorithms import AlgorithmChoice, AlgorithmChoices
from nccl_inspect.util.records import Record, record

DATATYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16")
_FP8 = ("float8e4m3", "float8e5m2")
_SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_SHARED = ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter")
"""Operations whose ``count`` is each rank's part of the buffer."""
_ONE_SIDED = ("PutSignal", "Signal", "WaitSignal")


@record
class Operation(Record):
    """Calls of one kind and about one size."""

    communicator: str | None
    func: str
    datatype: str
    nranks: int
    calls: int
    """Of each rank; of all pairs together for Send and Recv."""
    smallest: int
    """Bytes of the smallest buffer."""
    largest: int
    bytes: int
    """Of all buffers together."""
    sent: float
    """Payload that each rank sends, on average."""
    algorithms: list[str] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    basis: str = "assumed ring"
    """The basis of the paths: ``ring``, ``tree``, ``direct``, ``assumed ring``, or ``unknown``."""


@record
class Flow(Record):
    """The bytes from one rank to another."""

    src: int
    dst: int
    bytes: float = 0.0
    assumed: float = 0.0
    """The part of the bytes that assumes a ring."""
    path: Path | None = None
    rate: Rate | None = None

    @property
    def detail(self) -> str:
        """The kind of path."""
        if self.path is None:
            return "no connection line"
        return self.path.detail + ("/GDRDMA" if self.path.gdr is True else "")

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Return how long it takes, at best and at worst."""
        return (self.bytes / self.rate.high / 1e9, self.bytes / self.rate.low / 1e9) if self.rate else None


@record
class Bottleneck(Record):
    """The kind of path that takes longest."""

    flow: Flow
    """The busiest of that kind."""
    sure: bool
    """Whether it holds for any bandwidth in each range, with all rates known and no ring assumed."""


@record
class Traffic(Record):
    """The calls in a log and their bytes on paths."""

    operations: list[Operation] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    unplaced: dict[str, float] = field(default_factory=dict)
    """Bytes that cannot be assigned to a path, by reason."""
    bottleneck: Bottleneck | None = None


def datatype_of(number: int) -> tuple[str, int]:
    """Name and size in bytes of a datatype (nccl.h); size 0 if unknown."""
    names = (*DATATYPES, *_FP8)
    return (names[number], _SIZES[number]) if 0 <= number < len(names) else (f"datatype {number}", 0)


def traffic_of(job: Job, names: list[str]) -> Traffic:
    """The traffic of a job.

    Args:
        job: what the log shows.
        names: only these communicators; all when empty.
    """
    calls = [entry for entry in job.calls if not names or entry.communicator in names]
    return _Counter(job, calls).traffic()


class _Counter:
    def __init__(self, job: Job, calls: list[Calls]) -> None:
        self._job = job
        self._calls = calls
        self._comms = {comm.id: comm for comm in job.communicators}
        self._choices = AlgorithmChoices(job)
        self._operations: dict[tuple[object, ...], Operation] = {}
        self._flows: dict[tuple[int, int], Flow] = {}
        self._unplaced: dict[str, float] = {}
        self._sent = {
            (entry.communicator, rank, entry.root) for entry in calls if entry.func == "Send" for rank in entry.ranks
        }

    def traffic(self) -> Traffic:
        for calls in self._calls:
            if calls.func not in _ONE_SIDED:
                self._add(calls)
        paths = {(path.src, path.dst): path for path in self._job.paths}
        platform = platforms.find(self._job.platform) if self._job.platform else None
        for pair, flow in self._flows.items():
            flow.path = paths.get(pair)
            flow.rate = impact.of(flow.path, platform) if flow.path else None
        flows = sorted(self._flows.values(), key=lambda flow: (-flow.bytes, flow.src, flow.dst))
        operations = list(self._operations.values())
        return Traffic(operations, flows, self._unplaced, _bottleneck(flows))

    def _add(self, calls: Calls) -> None:
        name, size = datatype_of(calls.datatype)
        comm = self._comms.get(calls.communicator or "")
        parts = calls.nranks if calls.func in _SHARED else 1
        total = calls.elements * size * parts
        senders = calls.nranks if calls.func == "Send" else 1  # each of them is counted on its own
        choices = self._choices.of(calls, size)
        operation = Operation(
            communicator=calls.communicator,
            func=calls.func,
            datatype=name,
            nranks=calls.nranks,
            calls=calls.calls,
            smallest=calls.smallest * size * parts,
            largest=calls.largest * size * parts,
            bytes=total,
            sent=0.0 if calls.func == "Recv" else _share(calls) * total / senders,
            algorithms=list(dict.fromkeys(choice.algorithm for choice in choices)),
            protocols=list(dict.fromkeys(choice.protocol for choice in choices if choice.protocol)),
            basis=_basis(calls, choices),
        )
        self._list(operation, calls)
        if not size:
            self._lose(f"{name} is not known", 0.0)
        elif calls.nranks > 1:
            self._place(calls, comm, total, operation)

    def _list(self, operation: Operation, calls: Calls) -> None:
        key = (calls.communicator, calls.nranks, calls.func, calls.datatype, calls.largest.bit_length())
        if calls.func not in ("Send", "Recv"):
            key = (*key, calls.root)  # type: ignore[assignment]
        total = self._operations.setdefault(key, operation)
        if total is not operation:
            total.calls += operation.calls
            total.bytes += operation.bytes
            total.sent += operation.sent
            total.smallest = min(total.smallest, operation.smallest)
            total.largest = max(total.largest, operation.largest)

    def _place(self, calls: Calls, comm: CommunicatorInfo | None, total: float, operation: Operation) -> None:
        if comm is None:
            if calls.func != "Recv":
                self._lose("the log does not show the communicator", _share(calls) * total * calls.nranks)
        elif operation.basis == "direct":
            self._direct(calls, comm, total)
        elif operation.basis == "tree":
            self._tree(comm, total)
        elif operation.basis == "unknown":
            self._lose(f"{', '.join(operation.algorithms)} uses no ring or tree", _share(calls) * total * calls.nranks)
        else:
            self._ring(calls, comm, total, operation.basis != "ring")

    def _ring(self, calls: Calls, comm: CommunicatorInfo, total: float, assumed: bool) -> None:
        each = _share(calls) * total
        if not comm.rings:
            self._lose(f"no ring of {comm.id} in the log", each * calls.nranks)
        for ring in comm.rings:
            for src, dst in zip(ring, (*ring[1:], *ring[:1]), strict=True):
                # A broadcast ends before its root, a reduce begins behind it.
                ends = {"Broadcast": dst, "Reduce": src}.get(calls.func)
                if calls.func in ("Broadcast", "Reduce") and ends == calls.root and calls.root is not None:
                    continue
                self._flow(src, dst, each / len(comm.rings), assumed)

    def _tree(self, comm: CommunicatorInfo, total: float) -> None:
        if not comm.trees:
            self._lose(f"no tree of {comm.id} in the log", total * (comm.nranks - 1) * 2)
        for tree in comm.trees:
            for parent, child in tree:
                self._flow(parent, child, total / len(comm.trees), False)
                self._flow(child, parent, total / len(comm.trees), False)

    def _direct(self, calls: Calls, comm: CommunicatorInfo, total: float) -> None:
        for src, dst in _pairs(calls, comm, self._sent):
            self._flow(src, dst, total / (1 if calls.func in ("Send", "Recv") else calls.nranks), False)

    def _flow(self, src: int | None, dst: int | None, size: float, assumed: bool) -> None:
        if src is None or dst is None:
            self._lose("the log does not show the global ranks", size)
        elif src != dst:
            flow = self._flows.setdefault((src, dst), Flow(src, dst))
            flow.bytes += size
            flow.assumed += size if assumed else 0.0

    def _lose(self, reason: str, size: float) -> None:
        self._unplaced[reason] = self._unplaced.get(reason, 0.0) + size


def _pairs(
    calls: Calls, comm: CommunicatorInfo, sent: set[tuple[str | None, int, int | None]]
) -> Iterator[tuple[int | None, int | None]]:
    """The rank pairs of a call without a ring; a Recv counts only if its Send is not in the log."""
    match calls.func:
        case "Send":
            yield from ((rank, calls.root) for rank in calls.ranks)
        case "Recv" if calls.root is not None:
            yield from ((calls.root, rank) for rank in calls.ranks if (comm.id, calls.root, rank) not in sent)
        case "Gather":
            yield from ((rank, calls.root) for rank in comm.ranks)
        case "Scatter":
            yield from ((calls.root, rank) for rank in comm.ranks)
        case "AlltoAll":
            yield from ((src, dst) for src in comm.ranks for dst in comm.ranks)


def _share(calls: Calls) -> float:
    """The part of the buffer that each rank sends; all of it for a broadcast, although the last rank sends nothing."""
    if calls.func == "AllReduce":
        return 2 * (calls.nranks - 1) / calls.nranks
    if calls.func in _SHARED:
        share = (calls.nranks - 1) / calls.nranks
        return share / calls.nranks if calls.func in ("Gather", "Scatter") else share
    return 1.0 if calls.nranks > 1 else 0.0


def _basis(calls: Calls, choices: list[AlgorithmChoice]) -> str:
    if calls.func in ("Send", "Recv", "AlltoAll", "Gather", "Scatter"):
        return "direct"
    chosen = {choice.algorithm for choice in choices}
    if chosen == {"TREE"} and calls.func == "AllReduce":
        return "tree"
    if chosen == {"RING"}:
        return "ring"
    return "assumed ring" if not chosen or chosen & {"RING", "TREE"} else "unknown"


def _bottleneck(flows: list[Flow]) -> Bottleneck | None:
    """The kind of path whose busiest pair takes longest, by the middle of the range of its bandwidth."""
    busiest: dict[str, Flow] = {}
    for flow in flows:
        busiest.setdefault(flow.detail, flow)
    timed = [(flow, times) for flow in busiest.values() if (times := flow.seconds)]
    if not timed:
        return None
    worst, (best_time, _) = max(timed, key=lambda pair: sum(pair[1]))
    clear = all(best_time >= times[1] for flow, times in timed if flow is not worst)
    return Bottleneck(worst, clear and len(timed) == len(busiest) and not any(flow.assumed for flow in flows))
