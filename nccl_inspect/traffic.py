"""The traffic of a job: from calls to bytes on paths, and their report for people and programs.

Each rank of a ring sends 2(N-1)/N of the buffer for an all-reduce, (N-1)/N for an all-gather, a reduce-scatter or an
all-to-all, and passes on the whole of a broadcast or reduce. Bytes are payload: the protocol LL sends twice as many.
Where the log does not name the algorithm (subsystem TUNING) a ring is assumed, and marked so.
"""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, field, fields
from typing import Any, NamedTuple

from nccl_inspect import platforms
from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging import impact
from nccl_inspect.judging.impact import Rate
from nccl_inspect.model.inventory import Calls
from nccl_inspect.model.job import CommunicatorInfo, Job, Path
from nccl_inspect.report import Style
from nccl_inspect.report.tables import align_table, write_records
from nccl_inspect.report.words import block
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Record, pick_fields
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_NAMED = {
    "nccl/algorithm-symmetric": "SYMMETRIC",
    "nccl/algorithm-copy-engine": "COPY_ENGINE",
    "nccl/algorithm-copy-engine-hierarchical": "COPY_ENGINE",
}


class Choice(NamedTuple):
    """Holds what NCCL chose for calls of one size, as the process prints it that leads the communicator."""

    func: str | None
    bytes: int
    algorithm: str
    protocol: str


def _read_choice(event: NoticeEvent) -> Choice | None:
    values = dict(event.values)
    if event.qualified_name == "nccl/algorithm-chosen":
        return Choice(values["func"], values["bytes"], values["algo"], values["proto"])
    if event.qualified_name == "nccl/algorithm-chosen-old":
        algorithm, protocol = values["algo_index"], values["proto_index"]
        if 0 <= algorithm < len(_ALGORITHMS) and 0 <= protocol < len(_PROTOCOLS):
            return Choice(values.get("func"), values["bytes"], _ALGORITHMS[algorithm], _PROTOCOLS[protocol])
    named = _NAMED.get(event.qualified_name)
    return Choice(values["func"], values["bytes"], named, "") if named else None


DATATYPES = (  # names and bytes, in the order of `nccl.h`
    *(("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2)),
    *(("float32", 4), ("float64", 8), ("bfloat16", 2), ("float8e4m3", 1), ("float8e5m2", 1)),
)
_SHARED = ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter")
"""Operations whose ``count`` is each rank's part of the buffer."""
_ONE_SIDED = ("PutSignal", "Signal", "WaitSignal")


class Operation(Record):
    """Calls of one kind and about one size; the fields are the keys of JSON and the columns of CSV."""

    communicator: str | None
    nranks: int
    operation: str
    datatype: str
    calls: int  # of each rank; of all pairs together for Send and Recv
    smallest_bytes: int  # of the smallest buffer
    largest_bytes: int
    bytes: int  # of all buffers together
    algorithms: list[str]
    protocols: list[str]
    basis: str  # the basis of the paths: `ring`, `tree`, `direct`, `assumed ring`, or `unknown`
    sent_bytes_per_rank: float  # payload that each rank sends, on average


class Flow(Record):
    """The bytes from one rank to another."""

    src: int
    dst: int
    bytes: float = 0.0
    assumed: float = 0.0  # the part of the bytes that assumes a ring
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


class Traffic(Record):
    """The calls in a log and their bytes on paths."""

    operations: list[Operation] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    unplaced: dict[str, float] = field(default_factory=dict)  # bytes that cannot be assigned to a path, by reason
    slowest: Flow | None = None  # the busiest pair of the kind of path that takes longest
    is_sure: bool = False
    """Whether it holds for any bandwidth in each range, with all rates known and no ring assumed."""


_Pairs = Iterable[tuple[int | None, int | None]]
_Sent = set[tuple[str | None, int, int | None]]  # communicator, rank and peer of each Send in the log


def count_traffic(job: Job, names: list[str]) -> Traffic:
    """Return the traffic of a job, in some communicators or all."""
    wanted = [calls for calls in job.calls if not names or calls.communicator in names]
    sent = {(calls.communicator, rank, calls.root) for calls in wanted if calls.func == "Send" for rank in calls.ranks}
    comms = {comm.id: comm for comm in job.communicators}
    # Rank 0 of a communicator prints what NCCL chooses, without naming the communicator.
    choices = group_values(
        (process, choice)
        for notice in job.notices
        if isinstance(notice.event, NoticeEvent) and (choice := _read_choice(notice.event))
        for process in notice.processes
    )
    operations: dict[tuple[object, ...], Operation] = {}
    flows: dict[tuple[int, int], Flow] = {}
    unplaced: dict[str, float] = defaultdict(float)
    for calls in wanted:
        if calls.func in _ONE_SIDED:
            continue
        is_known = 0 <= calls.datatype < len(DATATYPES)
        name, size = DATATYPES[calls.datatype] if is_known else (f"datatype {calls.datatype}", 0)
        operation = _describe_calls(calls, name, size, choices.get(calls.leader, []) if calls.leader else [])
        root = None if calls.func in ("Send", "Recv") else calls.root
        key = (calls.communicator, calls.nranks, calls.func, calls.datatype, calls.largest.bit_length(), root)
        if (listed := operations.setdefault(key, operation)) is not operation:
            listed.calls += operation.calls
            listed.bytes += operation.bytes
            listed.sent_bytes_per_rank += operation.sent_bytes_per_rank
            listed.smallest_bytes = min(listed.smallest_bytes, operation.smallest_bytes)
            listed.largest_bytes = max(listed.largest_bytes, operation.largest_bytes)
        if not size:
            unplaced[f"{name} is not known"] += 0.0
        elif calls.nranks > 1:
            reason, each, pairs = _assign_bytes(calls, operation, comms.get(calls.communicator or ""), sent)
            if reason:
                unplaced[reason] += each * calls.nranks
            for src, dst in pairs:
                if src is None or dst is None:
                    unplaced["the log does not show the global ranks"] += each
                elif src != dst:
                    flow = flows.setdefault((src, dst), Flow(src, dst))
                    flow.bytes += each
                    flow.assumed += each if operation.basis == "assumed ring" else 0.0
    paths = {(path.src, path.dst): path for path in job.paths}
    platform = platforms.find(job.platform) if job.platform else None
    for pair, flow in flows.items():
        flow.path = paths.get(pair)
        flow.rate = impact.find_rate(flow.path, platform) if flow.path else None
    ordered = sorted(flows.values(), key=lambda flow: (-flow.bytes, flow.src, flow.dst))
    return Traffic(list(operations.values()), ordered, dict(unplaced), *_find_slowest(ordered))


def _describe_calls(calls: Calls, datatype: str, size: int, made: Iterable[Choice]) -> Operation:
    low, high = calls.smallest * size, calls.largest * size
    of_kind = [choice for choice in made if choice.func in (None, calls.func)]
    whole = low * calls.nranks, high * calls.nranks  # a few versions print the size of the whole result
    ranges = ([one for one in of_kind if least <= one.bytes <= most] for least, most in ((low, high), whole))
    choices = next(filter(None, ranges), [])
    parts = calls.nranks if calls.func in _SHARED else 1
    total = calls.elements * size * parts
    senders = calls.nranks if calls.func == "Send" else 1  # each of them is counted on its own
    chosen = {choice.algorithm for choice in choices}
    if calls.func in ("Send", "Recv", "AlltoAll", "Gather", "Scatter"):
        basis = "direct"
    elif chosen == {"TREE"} and calls.func == "AllReduce":
        basis = "tree"
    elif chosen == {"RING"}:
        basis = "ring"
    else:
        basis = "assumed ring" if not chosen or chosen & {"RING", "TREE"} else "unknown"
    return Operation(
        **pick_fields(calls, "communicator", "nranks", "calls"),
        operation=calls.func,
        datatype=datatype,
        smallest_bytes=low * parts,
        largest_bytes=high * parts,
        bytes=total,
        algorithms=list(dict.fromkeys(choice.algorithm for choice in choices)),
        protocols=list(dict.fromkeys(choice.protocol for choice in choices if choice.protocol)),
        basis=basis,
        sent_bytes_per_rank=0.0 if calls.func == "Recv" else _share(calls) * total / senders,
    )


def _assign_bytes(
    calls: Calls, operation: Operation, comm: CommunicatorInfo | None, sent: _Sent
) -> tuple[str, float, _Pairs]:
    """Return why some calls have no paths (empty if they have), the bytes of each pair of ranks, and these pairs."""
    total = operation.bytes
    each = _share(calls) * total
    if comm is None:
        return "" if calls.func == "Recv" else "the log does not show the communicator", each, ()
    if operation.basis == "direct":
        return "", total / (1 if calls.func in ("Send", "Recv") else calls.nranks), _pairs(calls, comm, sent)
    if operation.basis == "unknown":
        return f"{', '.join(operation.algorithms)} uses no ring or tree", each, ()
    if operation.basis == "tree":
        if not comm.trees:
            return f"no tree of {comm.id} in the log", each, ()
        both_ways = (pair for tree in comm.trees for up, down in tree for pair in ((up, down), (down, up)))
        return "", total / len(comm.trees), both_ways
    if not comm.rings:
        return f"no ring of {comm.id} in the log", each, ()
    around = (
        (src, dst)
        for ring in comm.rings
        for src, dst in zip(ring, (*ring[1:], *ring[:1]), strict=True)
        # A broadcast ends before its root, a reduce begins behind it.
        if calls.root is None or {"Broadcast": dst, "Reduce": src}.get(calls.func) != calls.root
    )
    return "", each / len(comm.rings), around


def _pairs(calls: Calls, comm: CommunicatorInfo, sent: _Sent) -> Iterator[tuple[int | None, int | None]]:
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


def _find_slowest(flows: list[Flow]) -> tuple[Flow | None, bool]:
    busiest: dict[str, Flow] = {}
    for flow in flows:
        busiest.setdefault(flow.detail, flow)
    timed = [(flow, times) for flow in busiest.values() if (times := flow.seconds)]
    if not timed:
        return None, False
    worst, (best_time, _) = max(timed, key=lambda pair: sum(pair[1]))
    clear = all(best_time >= times[1] for flow, times in timed if flow is not worst)
    return worst, clear and len(timed) == len(busiest) and not any(flow.assumed for flow in flows)


def render_json(traffic: Traffic, by: str, style: Style) -> str:
    """Return a document with ``operations``, ``paths``, ``unplaced`` and ``bottleneck``."""
    document = {
        "operations": list(map(_operation_to_dict, traffic.operations)),
        "paths": list(map(_flow_to_dict, traffic.flows)),
        "unplaced": [
            {"reason": escape_controls(reason), "bytes": round(size)} for reason, size in traffic.unplaced.items()
        ],
        "bottleneck": {**_flow_to_dict(traffic.slowest), "sure": traffic.is_sure} if traffic.slowest else None,
    }
    return json.dumps(document, indent=1) + "\n"


def _operation_to_dict(operation: Operation) -> dict[str, Any]:
    return {**asdict(operation), "sent_bytes_per_rank": round(operation.sent_bytes_per_rank)}


def _flow_to_dict(flow: Flow) -> dict[str, Any]:
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
        return write_records(list(_flow_to_dict(Flow(0, 0))), list(map(_flow_to_dict, traffic.flows)))
    names = [one.name for one in fields(Operation)]
    return write_records(names, list(map(_operation_to_dict, traffic.operations)))


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
    kinds = []
    for kind, some in group_values((flow.detail, flow) for flow in traffic.flows).items():
        busiest = some[0]
        takes = " to ".join(map(_seconds, busiest.seconds)) if busiest.seconds else "?"
        total = amount(sum(flow.bytes for flow in some))
        pair = f"{busiest.src} -> {busiest.dst}"
        kinds.append([escape_controls(kind), str(len(some)), total, pair, amount(busiest.bytes), takes])
    if kinds:
        parts.append(_fit_table(_PATH_HEAD, kinds, style))
    notes: list[str] = []
    flow = traffic.slowest
    if flow and len(kinds) > 1:
        sure = "the bottleneck" if traffic.is_sure else "most likely the bottleneck"
        text = f"{escape_controls(flow.detail)}, {sure}: {flow.rate} ({flow.rate.source if flow.rate else ''})"
        notes += block("slowest", text + (", if NCCL uses rings" if flow.assumed else ""), style, 0)
    if any(operation.basis == "assumed ring" for operation in traffic.operations):
        text = "the log does not name every algorithm; 'ring?' assumes rings. NCCL_DEBUG_SUBSYS=…,TUNING logs them"
        notes += block("assumed", text, style, 0)
    for reason, size in traffic.unplaced.items():
        notes += block("not placed", f"{amount(size)}: {escape_controls(reason)}", style, 0, 12)
    return "\n\n".join(filter(None, (*parts, "\n".join(notes)))) + "\n"


def _fit_table(head: list[str], rows: list[list[str]], style: Style) -> str:
    lines = align_table(head, rows)
    if max(map(len, lines)) > style.width:
        lines = []
        for row in rows:
            text = f"{row[0]}: " + ", ".join(f"{name} {cell}" for name, cell in zip(head[1:], row[1:], strict=True))
            width = max(style.width, 40)
            lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _operations(operations: list[Operation]) -> list[list[str]]:
    """Return a row per kind of call; communicators that do the same share it, a Recv is counted with its Send."""
    sending = {operation.communicator for operation in operations if operation.operation == "Send"}
    rows: dict[tuple[str, ...], list[Operation]] = {}
    for operation in operations:
        if operation.operation == "Recv" and operation.communicator in sending:
            continue
        small, large = amount(operation.smallest_bytes), amount(operation.largest_bytes)
        algorithm = "/".join(operation.algorithms) or ("direct" if operation.basis == "direct" else "ring?")
        cells = (
            operation.operation,
            small if small == large else f"{small} to {large}",
            str(operation.calls),
            operation.datatype,
            " ".join(filter(None, (algorithm, "/".join(operation.protocols)))),
            amount(operation.sent_bytes_per_rank),
        )
        rows.setdefault((str(operation.nranks), *cells), []).append(operation)
    table = []
    for (_, *shown), some in rows.items():
        ranks = count(some[0].nranks, "rank")
        names = {operation.communicator for operation in some}
        one = escape_controls(some[0].communicator or f"unknown, {ranks}")
        table.append([one if len(names) == 1 else f"{len(names)} of {ranks}", *shown])
    return table


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


BY = ("operation", "path")  # what each row of a table with one kind of rows is
FORMATS: dict[str, Callable[[Traffic, str, Style], str]] = {"text": render_text, "csv": render_csv, "json": render_json}
