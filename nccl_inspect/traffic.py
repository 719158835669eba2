"""The traffic of a job: from calls to bytes on paths, and their report for people and programs.

Each rank of a ring sends 2(N-1)/N of the buffer for an all-reduce, (N-1)/N for an all-gather, a reduce-scatter or an
all-to-all, and passes on the whole of a broadcast or reduce. Bytes are payload: the protocol LL sends twice as many.
Where the log does not name the algorithm (subsystem TUNING) a ring is assumed, and marked so.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from tabulate import tabulate

from nccl_inspect import platforms
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging import impact
from nccl_inspect.judging.impact import Rate
from nccl_inspect.model.inventory import Calls
from nccl_inspect.model.job import CommunicatorInfo, Job, Path
from nccl_inspect.report import Style
from nccl_inspect.report.tables import write_records
from nccl_inspect.report.words import block
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Record, pick_fields, record
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_NAMED = {
    "nccl/algorithm-symmetric": "SYMMETRIC",
    "nccl/algorithm-copy-engine": "COPY_ENGINE",
    "nccl/algorithm-copy-engine-hierarchical": "COPY_ENGINE",
}


class AlgorithmChoice(NamedTuple):
    """The algorithm and protocol that NCCL chose."""

    algorithm: str
    protocol: str


_Choices: TypeAlias = Mapping[Process, Sequence[tuple[str | None, int, AlgorithmChoice]]]
"""The operation, the bytes, and what NCCL chose, by the process that prints it."""


def _find_choices(choices: _Choices, calls: Calls, size: int) -> list[AlgorithmChoice]:
    """Return the choices for calls of one kind; several if sizes or communicators differ."""
    low, high = calls.smallest * size, calls.largest * size
    entries = choices.get(calls.leader, ()) if calls.leader else ()
    for times in (1, calls.nranks):  # a few versions print the size of the whole result
        fitting = [
            choice
            for func, size_printed, choice in entries
            if func in (None, calls.func) and low * times <= size_printed <= high * times
        ]
        if fitting:
            return list(dict.fromkeys(fitting))
    return []


def _choice(event: NoticeEvent) -> tuple[str | None, int, AlgorithmChoice] | None:
    values = dict(event.values)
    if event.qualified_name == "nccl/algorithm-chosen":
        return values["func"], values["bytes"], AlgorithmChoice(values["algo"], values["proto"])
    if event.qualified_name == "nccl/algorithm-chosen-old":
        algorithm, protocol = values["algo_index"], values["proto_index"]
        if 0 <= algorithm < len(_ALGORITHMS) and 0 <= protocol < len(_PROTOCOLS):
            return values.get("func"), values["bytes"], AlgorithmChoice(_ALGORITHMS[algorithm], _PROTOCOLS[protocol])
    if named := _NAMED.get(event.qualified_name):
        return values["func"], values["bytes"], AlgorithmChoice(named, "")
    return None


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
        """Return the kind of path."""
        if self.path is None:
            return "no connection line"
        return f"{self.path.detail}{'/GDRDMA' if self.path.gdr is True else ''}"

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


def find_datatype(number: int) -> tuple[str, int]:
    """Name and size in bytes of a datatype (nccl.h); size 0 if unknown."""
    names = (*DATATYPES, *_FP8)
    return (names[number], _SIZES[number]) if 0 <= number < len(names) else (f"datatype {number}", 0)


def count_traffic(job: Job, names: list[str]) -> Traffic:
    """Return the traffic of a job.

    Args:
        names: only these communicators; all when empty.
    """
    calls = [entry for entry in job.calls if not names or entry.communicator in names]
    return _Counter(job, calls).traffic()


class _Counter:
    def __init__(self, job: Job, calls: list[Calls]) -> None:
        self._job = job
        self._calls = calls
        self._comms = {comm.id: comm for comm in job.communicators}
        # Rank 0 of a communicator prints what NCCL chooses, without naming the communicator.
        self._choices = group_values(
            (process, entry)
            for notice in job.notices
            if isinstance(notice.event, NoticeEvent) and (entry := _choice(notice.event))
            for process in notice.processes
        )
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
            flow.rate = impact.find_rate(flow.path, platform) if flow.path else None
        flows = sorted(self._flows.values(), key=lambda flow: (-flow.bytes, flow.src, flow.dst))
        operations = list(self._operations.values())
        return Traffic(operations, flows, self._unplaced, _bottleneck(flows))

    def _add(self, calls: Calls) -> None:
        name, size = find_datatype(calls.datatype)
        comm = self._comms.get(calls.communicator or "")
        parts = calls.nranks if calls.func in _SHARED else 1
        total = calls.elements * size * parts
        senders = calls.nranks if calls.func == "Send" else 1  # each of them is counted on its own
        choices = _find_choices(self._choices, calls, size)
        chosen = {choice.algorithm for choice in choices}
        if calls.func in ("Send", "Recv", "AlltoAll", "Gather", "Scatter"):
            basis = "direct"
        elif chosen == {"TREE"} and calls.func == "AllReduce":
            basis = "tree"
        elif chosen == {"RING"}:
            basis = "ring"
        else:
            basis = "assumed ring" if not chosen or chosen & {"RING", "TREE"} else "unknown"
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
            basis=basis,
        )
        self._list(operation, calls)
        if not size:
            self._lose(f"{name} is not known", 0.0)
        elif calls.nranks > 1:
            self._assign(calls, comm, total, operation)

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

    def _assign(self, calls: Calls, comm: CommunicatorInfo | None, total: float, operation: Operation) -> None:
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
    """Yield the rank pairs of a call without a ring; a Recv counts only if its Send is not in the log."""
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
    """Return the part of the buffer that each rank sends; all of it for a broadcast, though the last sends nothing."""
    if calls.func == "AllReduce":
        return 2 * (calls.nranks - 1) / calls.nranks
    if calls.func in _SHARED:
        share = (calls.nranks - 1) / calls.nranks
        return share / calls.nranks if calls.func in ("Gather", "Scatter") else share
    return 1.0 if calls.nranks > 1 else 0.0


def _bottleneck(flows: list[Flow]) -> Bottleneck | None:
    """Return the kind of path whose busiest pair takes longest, by the middle of the range of its bandwidth."""
    busiest: dict[str, Flow] = {}
    for flow in flows:
        busiest.setdefault(flow.detail, flow)
    timed = [(flow, times) for flow in busiest.values() if (times := flow.seconds)]
    if not timed:
        return None
    worst, (best_time, _) = max(timed, key=lambda pair: sum(pair[1]))
    clear = all(best_time >= times[1] for flow, times in timed if flow is not worst)
    return Bottleneck(worst, clear and len(timed) == len(busiest) and not any(flow.assumed for flow in flows))


def render_json(traffic: Traffic, by: str, style: Style) -> str:
    """Return a document with ``operations``, ``paths``, ``unplaced`` and ``bottleneck``."""
    slowest = traffic.bottleneck
    document = {
        "operations": list(map(operation_to_dict, traffic.operations)),
        "paths": list(map(flow_to_dict, traffic.flows)),
        "unplaced": [
            {"reason": escape_controls(reason), "bytes": round(size)} for reason, size in traffic.unplaced.items()
        ],
        "bottleneck": {**flow_to_dict(slowest.flow), "sure": slowest.sure} if slowest else None,
    }
    return json.dumps(document, indent=1) + "\n"


def operation_to_dict(operation: Operation) -> dict[str, Any]:
    """Return a kind of call as documents have it."""
    return {
        **pick_fields(operation, "communicator", "nranks"),
        "operation": operation.func,
        **pick_fields(operation, "datatype", "calls"),
        "smallest_bytes": operation.smallest,
        "largest_bytes": operation.largest,
        **pick_fields(operation, "bytes", "algorithms", "protocols", "basis"),
        "sent_bytes_per_rank": round(operation.sent),
    }


def flow_to_dict(flow: Flow) -> dict[str, Any]:
    """Return the traffic of one path."""
    times = flow.seconds
    return {
        "src": flow.src,
        "dst": flow.dst,
        "detail": escape_controls(flow.path.detail) if flow.path else None,
        "gdr": flow.path.gdr if flow.path else None,
        "bytes": round(flow.bytes),
        "assumed_bytes": round(flow.assumed),
        "seconds_low": round(times[0], 6) if times else None,
        "seconds_high": round(times[1], 6) if times else None,
    }


def render_csv(traffic: Traffic, by: str, style: Style) -> str:
    """Return the columns of the JSON; lists are separated by semicolons, unknown values are empty."""
    if by == "path":
        names = list(flow_to_dict(Flow(0, 0)))
        rows = list(map(flow_to_dict, traffic.flows))
    else:
        names = list(operation_to_dict(Operation("", "", "", 0, 0, 0, 0, 0, 0.0)))
        rows = list(map(operation_to_dict, traffic.operations))
    return write_records(names, rows)


_OPERATION_HEAD = ["communicator", "operation", "size", "calls", "type", "algorithm", "mean per rank"]
_PATH_HEAD = ["path", "pairs", "all pairs", "busiest pair", "carries", "takes"]
_NO_CALLS = (
    "no collective call in this log: run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING "
    "(COLL for the calls, TUNING for their algorithms)"
)


def render_text(traffic: Traffic, by: str, style: Style) -> str:
    """Return two tables, and notes on their assumptions."""
    if not traffic.operations:
        return "\n".join(block("", _NO_CALLS, style, 0, 0)) + "\n"
    parts = [_fit_table(_OPERATION_HEAD, _operations(traffic.operations), style)]
    if traffic.flows:
        parts.append(_fit_table(_PATH_HEAD, _kinds(traffic.flows), style))
    parts.append("\n".join(_notes(traffic, style)))
    return "\n\n".join(filter(None, parts)) + "\n"


def _fit_table(head: list[str], rows: list[list[str]], style: Style) -> str:
    """Return a table, or a paragraph per row if the terminal is too narrow."""
    table = tabulate(rows, head, tablefmt="simple", disable_numparse=True)
    if max(map(len, table.splitlines())) <= style.width:
        return table
    texts = [", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True)) for row in rows]
    width = max(style.width, 40)
    return "\n".join(
        line
        for row, text in zip(rows, texts, strict=True)
        for line in textwrap.wrap(f"{row[0]}: {text}", width, subsequent_indent="  ", break_on_hyphens=False)
    )


def _operations(operations: list[Operation]) -> list[list[str]]:
    """Return a row per kind of call; communicators that do the same share it, a Recv is counted with its Send."""
    sending = {operation.communicator for operation in operations if operation.func == "Send"}
    rows: dict[tuple[str, ...], list[Operation]] = {}
    for operation in operations:
        if operation.func == "Recv" and operation.communicator in sending:
            continue
        small, large = amount(operation.smallest), amount(operation.largest)
        algorithm = "/".join(operation.algorithms) or ("direct" if operation.basis == "direct" else "ring?")
        cells = (
            operation.func,
            small if small == large else f"{small} to {large}",
            str(operation.calls),
            operation.datatype,
            " ".join(filter(None, (algorithm, "/".join(operation.protocols)))),
            amount(operation.sent),
        )
        rows.setdefault((str(operation.nranks), *cells), []).append(operation)
    return [[_communicators(some), *cells] for (_, *cells), some in rows.items()]


def _communicators(some: list[Operation]) -> str:
    names = dict.fromkeys(operation.communicator for operation in some)
    ranks = count(some[0].nranks, "rank")
    if len(names) > 1:
        return f"{len(names)} of {ranks}"
    return escape_controls(some[0].communicator or f"unknown, {ranks}")


def _kinds(flows: list[Flow]) -> list[list[str]]:
    by_kind = group_values((flow.detail, flow) for flow in flows)
    rows = []
    for kind, some in by_kind.items():
        busiest = some[0]
        times = busiest.seconds
        takes = f"{_seconds(times[0])} to {_seconds(times[1])}" if times else "?"
        total = amount(sum(flow.bytes for flow in some))
        pair = f"{busiest.src} -> {busiest.dst}"
        rows.append([escape_controls(kind), str(len(some)), total, pair, amount(busiest.bytes), takes])
    return rows


def _notes(traffic: Traffic, style: Style) -> list[str]:
    lines: list[str] = []
    slowest = traffic.bottleneck
    if slowest and len({flow.detail for flow in traffic.flows}) > 1:
        flow = slowest.flow
        sure = "the bottleneck" if slowest.sure else "most likely the bottleneck"
        text = f"{escape_controls(flow.detail)}, {sure}: {flow.rate} ({flow.rate.source if flow.rate else ''})"
        lines += block("slowest", text + (", if NCCL uses rings" if flow.assumed else ""), style, 0)
    if any(operation.basis == "assumed ring" for operation in traffic.operations):
        text = "the log does not name every algorithm; 'ring?' assumes rings. NCCL_DEBUG_SUBSYS=…,TUNING logs them"
        lines += block("assumed", text, style, 0)
    for reason, size in traffic.unplaced.items():
        lines += block("not placed", f"{amount(size)}: {escape_controls(reason)}", style, 0, 12)
    return lines


def amount(size: float) -> str:
    """Return bytes in words: ``16.8 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"


def _seconds(time: float) -> str:
    if time >= 1:
        return f"{time:.3g} s"
    return f"{time * 1e3:.3g} ms" if time >= 1e-3 else f"{time * 1e6:.3g} us"


BY = ("operation", "path")
"""What each row of a table with one kind of rows is."""
FORMATS: dict[str, Callable[[Traffic, str, Style], str]] = {"text": render_text, "csv": render_csv, "json": render_json}
