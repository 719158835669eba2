"""The entries of a flight recorder: how far each rank got, and how long its calls took."""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from math import prod
from sys import intern
from typing import Any, NamedTuple

from nccl_inspect.util.records import Frozen, Record, frozen, record

_LIBRARY = ("/torch/distributed/", "/torch/_", "/torch/utils/", "/torch/nn/", "/torch/autograd/", "<frozen ")
"""Paths of PyTorch's own frames: the program's frames are below them."""
_KEPT = 8  # calls kept per lane: this many finished ones and this many open ones
_KEPT_OF_BATCH = 4  # calls that are kept of a batch of sends and receives
_TIMED = 64
_FRAMES = 2
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_RECENT = 256  # calls of which one is the last that began or ended
_MOST_DIMENSIONS = 64  # of a tensor, as PyTorch has it
_PEERS = re.compile(r"(\d{1,9})(->|<-)(\d{1,9})")

SYMMETRIC = (  # operations that are over on no rank before every rank has come: no rank is their root
    *("all_reduce", "all_gather", "_all_gather_base", "all_gather_into_tensor_coalesced", "_reduce_scatter_base"),
    *("reduce_scatter", "reduce_scatter_tensor_coalesced", "allreduce_coalesced", "all_reduce_barrier"),
    *("all_to_all", "all_to_allv"),
)


class Direction(NamedTuple):
    """Holds who sends to whom, by their ranks in the group."""

    sender: int
    receiver: int


_Lane = tuple[str, frozenset[int]]
"""What runs one after the other: the collectives of a group, and what two ranks send each other."""


@frozen
class Call(Frozen):
    """A call of one rank."""

    group: str
    order: int  # `record_id`: the order in which this rank made its calls
    seq: int  # `collective_seq_id`, the number of the collective in its group; of a P2P call, `p2p_seq_id`
    operation: str  # `all_reduce`, `_all_gather_base`, `send 0->1`: the name without `nccl:`
    state: str  # `scheduled`, `started` or `completed`, as the watchdog of that rank saw it last
    is_p2p: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]
    created_ns: int
    frame: str
    """``file:line in function < file:line in caller``, the innermost outside of PyTorch; empty without stacks."""
    nth: int = 0
    """Of all calls in its direction, counted from 1; 0 where earlier ones were overwritten, and for a collective."""

    @property
    def is_completed(self) -> bool:
        """Return whether it is over on this rank."""
        return self.state == "completed"

    @property
    def peers(self) -> Direction | None:
        """Sender and receiver; None for a collective."""
        return direction(self.operation)


class Durations(NamedTuple):
    """Holds how long the last calls of a group took on the GPU of this rank.

    Parallel arrays, in the order of the calls.
    """

    numbers: array[int]
    orders: array[int]
    created_ns: array[int]  # by the clock of this rank's host
    milliseconds: array[float]
    spent: array[float]  # what this rank has spent in all calls of all groups up to its end, in milliseconds
    untimed: array[int]  # number of calls before it of which the duration is not known


@record
class Recorded(Record):
    """Holds what is kept of all entries of a dump."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    """Of each group the last completed ones and the first that are not, oldest first."""
    last: Call | None = None  # the last one of all
    durations: dict[str, Durations] = field(default_factory=dict)
    """Of each group, where PyTorch measured them (``TORCH_NCCL_ENABLE_TIMING``)."""
    transfers: dict[tuple[str, Direction], int] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)  # the name of each group by its number on this rank, `pg_id`
    total: int = 0
    first: int = 0  # the lowest number of a call: where it is not 0, earlier ones were overwritten
    active_ns: int = 0
    """When the rank last made a call, or its watchdog saw one begin or end; 0 where that is not known."""


class _Row(NamedTuple):
    entry: Mapping[str, Any]
    group: str
    lane: _Lane
    number: int  # of the collective, or of the P2P call or the batch of them
    nth: int


def direction(operation: str) -> Direction | None:
    """Sender and receiver of a call, by its name: ``send 0->1``, ``recv 1<-0``."""
    match = _PEERS.search(operation)
    if match is None:
        return None
    here, arrow, there = int(match[1]), match[2], int(match[3])
    return Direction(here, there) if arrow == "->" else Direction(there, here)


def select_entries(record: Recorded, entries: Sequence[Mapping[str, Any]]) -> None:
    """Keep the entries that show how far this rank got: a few of the 2,000 in a dump.

    Args:
        entries: oldest first.
    """
    record.total = len(entries)
    if not entries:
        return
    record.first = _order(entries[0])
    times = [entry.get(key) for key in _TIMES for entry in entries[-_RECENT:]]
    record.active_ns = max([0, *(time for time in times if type(time) is int and time < 1 << 63)])
    rows, batches = _rows(entries, record)
    _keep(record, rows, batches)
    if any(type(entry.get("duration_ms")) in (float, int) for entry in entries):
        _time(record, entries)
    record.last = _call(_group_of(entries[-1])[0], entries[-1])


def _rows(entries: Iterable[Mapping[str, Any]], record: Recorded) -> tuple[list[_Row], set[tuple[str, int, int]]]:
    """Return the calls and the finished batches; the entry of a batch only says how far its calls got."""
    rows: list[_Row] = []
    over: set[tuple[str, int, int]] = set()
    kinds: dict[tuple[Any, ...], tuple[str, Direction | None, _Lane]] = {}
    for entry in entries:
        get = entry.get
        named, name = get("process_group"), get("profiling_name")
        # Most calls are alike but for their numbers.
        key = (tuple(named) if type(named) is list else named, get("pg_id"), name)
        if key not in kinds:
            own, desc = _group_of(entry)
            record.descriptions.setdefault(own, desc)
            record.ids.setdefault(as_text(get("pg_id")), own)
            ends = direction(as_text(name))
            kinds[key] = own, ends, (own, frozenset(ends or ()))
        group, peers, lane = kinds[key]
        if isinstance(name, str) and name.endswith("coalesced") and _is_batch(name, entry):
            if get("state") == "completed":
                over.add(_batch(group, entry))
            continue
        nth = 0
        if peers:
            nth = record.transfers[group, peers] = record.transfers.get((group, peers), 0) + 1
        rows.append(_Row(entry, group, lane, _seq(entry), 0 if record.first else nth))
    return rows, over


def _keep(record: Recorded, rows: list[_Row], batches: set[tuple[str, int, int]]) -> None:
    # All before a call that is over are over, too: the recorder sees no end of calls in a batch or a CUDA graph.
    last: dict[_Lane, int] = {}
    for place, row in enumerate(rows):
        if row.entry.get("state") == "completed" or (batches and _batch(row.group, row.entry) in batches):
            last[row.lane] = place
    kept: dict[tuple[bool, _Lane], dict[int, list[_Row]]] = {}
    for place, row in enumerate(rows):
        is_over = place <= last.get(row.lane, -1)
        kept.setdefault((is_over, row.lane), {}).setdefault(row.number, []).append(row)
    for (is_over, (group, ends)), by_number in sorted(kept.items(), key=lambda item: not item[0][0]):
        calls, state = record.calls.setdefault(group, []), "completed" if is_over else ""
        for batch in list(by_number.values())[-_KEPT:] if is_over else islice(by_number.values(), _KEPT):
            shown = batch[:_KEPT_OF_BATCH] if ends else batch[-1:]  # up to the last one all ranks have a collective
            calls.extend(_call(group, row.entry, state, row.nth) for row in shown)
    for calls in record.calls.values():
        calls.sort(key=lambda call: call.order)


def _time(record: Recorded, entries: Iterable[Mapping[str, Any]]) -> None:
    """Keep how long the last symmetric collectives of each group took; of a batch the last one."""
    timed: dict[str, deque[tuple[int, int, int, float, float, int]]] = {}
    spent, untimed, in_batch = 0.0, 0, 0
    for entry in entries:
        duration, name = entry.get("duration_ms"), as_text(entry.get("profiling_name"))
        is_batch = name.endswith("coalesced") and _is_batch(name, entry)
        if not isinstance(duration, float | int) or not 0 <= duration < 1e12:
            untimed, in_batch = untimed + 1, in_batch + 1
            continue
        if is_batch:
            untimed -= in_batch  # it stands for the calls before it
        spent, in_batch = spent + duration, 0
        if not is_batch and direction(name) is None and name.removeprefix("nccl:") in SYMMETRIC:
            group, created = _group_of(entry)[0], as_number(entry.get("time_created_ns"))
            kept = timed.setdefault(group, deque(maxlen=_TIMED))
            kept.append((_seq(entry), _order(entry), created, float(duration), spent, untimed))
    for group, kept in timed.items():
        record.durations[group] = Durations(*map(array, "qqqfdq", zip(*kept, strict=True)))


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of the group; until version 2.1 there is only the number."""
    named = entry.get("process_group")
    if isinstance(named, (list, tuple)) and len(named) == 2:
        return as_text(named[0]), as_text(named[1])
    return as_text(entry.get("pg_id", entry.get("pg_name", ""))), ""


def _is_batch(name: str, entry: Mapping[str, Any]) -> bool:
    # A batch of one operation, as all_gather makes it of tensors of different sizes, has its name in front.
    return name == "nccl:coalesced" or (name.endswith("_coalesced") and not entry.get("input_sizes"))


def _batch(group: str, entry: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return what the calls of one batch share; whether they are P2P the batch says in newer versions only."""
    return group, as_number(entry.get("collective_seq_id")), as_number(entry.get("p2p_seq_id"))


def _seq(entry: Mapping[str, Any]) -> int:
    number = entry.get("p2p_seq_id") if entry.get("is_p2p") else entry.get("collective_seq_id", entry.get("seq_id"))
    return as_number(number)


def _order(entry: Mapping[str, Any]) -> int:
    return as_number(entry.get("record_id", entry.get("id")))


def _call(group: str, entry: Mapping[str, Any], state: str = "", nth: int = 0) -> Call:
    dtypes = [*as_list(entry.get("input_dtypes")), *as_list(entry.get("output_dtypes"))]
    # The program's innermost frames: PyTorch lists the innermost first, and programs have helpers for calls.
    usable = [frame for frame in as_list(entry.get("frames")) if isinstance(frame, dict)]
    own = [frame for frame in usable if not any(part in as_text(frame.get("filename")) for part in _LIBRARY)]
    frames = [
        f"{as_text(frame.get('filename'))}:{as_number(frame.get('line'))} in {as_text(frame.get('name'))}"
        for frame in (own or usable)[:_FRAMES]
    ]
    return Call(
        group=group,
        order=_order(entry),
        seq=_seq(entry),
        operation=intern(as_text(entry.get("profiling_name")).removeprefix("nccl:")),
        state=state or as_text(entry.get("state")) or "scheduled",
        is_p2p=bool(entry.get("is_p2p")),
        inputs=_elements(entry.get("input_sizes")),
        outputs=_elements(entry.get("output_sizes")),
        dtypes=tuple(dict.fromkeys(intern(as_text(dtype)) for dtype in dtypes)),
        created_ns=as_number(entry.get("time_created_ns")),
        frame=intern(" < ".join(frames)),
        nth=nth,
    )


def _elements(sizes: Any) -> tuple[int, ...]:
    # Until version 2.1 a single size stands where later a list of them does.
    if not isinstance(sizes, (list, tuple)):
        return ()
    shapes = sizes if all(isinstance(shape, (list, tuple)) for shape in sizes) else [sizes]
    return tuple(prod(map(as_number, shape[:_MOST_DIMENSIONS])) for shape in shapes)


def as_list(value: Any) -> Sequence[Any]:
    """Return a list or tuple; of anything else nothing."""
    return value if isinstance(value, (list, tuple)) else ()


def as_text(value: Any) -> str:
    """Text, or a number as text; of anything else nothing: what shares its parts in a pickle has no end as text."""
    return value if isinstance(value, str) else str(as_number(value)) if isinstance(value, int) else ""


def as_number(value: Any) -> int:
    """Return a number that fits 64 bits, as all do that PyTorch writes; else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else 0
