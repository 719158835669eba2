"""PyTorch's flight recorder: what each rank called in which process group, how far each call came, how long it took.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp, versions 2.0 to 2.10 (PyTorch 2.3
to 2.11), as a pickle (``nccl_trace_rank_N``) or as JSON (without stacks). A rank keeps its last calls only
(``TORCH_NCCL_TRACE_BUFFER_SIZE``), oldest first; of the 2,000 in a dump, the few are kept that show how far it got.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice
from math import prod
from sys import intern
from typing import Any, NamedTuple

from nccl_inspect.artifacts import Identity, Kind
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.util.memory import pause_collector
from nccl_inspect.util.records import Frozen, Record

_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|trace[_-])(\d+)(?=\D*$)|^(?!.*rank[_-]?\d)(?:.*\D)?(\d+)$", re.IGNORECASE)
"""PyTorch puts the rank behind what TORCH_FR_DUMP_TEMP_FILE says; behind a rank stand steps, dates and attempts."""
_NUMBER = re.compile(r"-?\d{1,18}")
_PICKLED = re.compile(rb"\x80[\x02-\x05]")
_KEYS = (b"pg_config", b"comm_lib_version", b"nccl_version", b"pg_status", b"record_id", b"collective_seq_id")
WORLD = "0"  # the name of the group of all ranks
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


Direction = tuple[int, int]  # who sends to whom, by their ranks in the group


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


def direction(operation: str) -> Direction | None:
    """Sender and receiver of a call, by its name: ``send 0->1``, ``recv 1<-0``."""
    match = _PEERS.search(operation)
    if match is None:
        return None
    here, arrow, there = int(match[1]), match[2], int(match[3])
    return (here, there) if arrow == "->" else (there, here)


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


class Group(Frozen):
    """A process group as one rank knows it."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    """Ranks of the job, in the order of the group; empty until version 2.2, which does not list them."""

    @property
    def label(self) -> str:
        """Return its description where it has one, else its name."""
        return self.desc if self.desc and self.desc != "undefined" else self.name


class Dump(Record):
    """Holds what one rank recorded."""

    name: str = ""
    rank: int | None = None  # from the name of the file: the dump itself does not hold it
    groups: dict[str, Group] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    """Of each group the last completed ones and the first that are not, oldest first."""
    last: Call | None = None  # the last one of all
    durations: dict[str, Durations] = field(default_factory=dict)
    """Of each group, where PyTorch measured them (``TORCH_NCCL_ENABLE_TIMING``)."""
    transfers: dict[tuple[str, Direction], int] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    """The last collective of each group that this rank has called, by ``pg_status``; of groups without P2P calls."""
    release: str = ""  # of NCCL, as this process had loaded it
    is_partial: bool = False  # whether earlier calls were overwritten, or calls left out
    active_ns: int = 0
    """When the rank last made a call, or its watchdog saw one begin or end; 0 where that is not known."""

    def identity(self) -> Identity:
        """Return what identifies its job."""
        sizes = {group.name: len(group.ranks) for group in self.groups.values() if group.ranks}
        active = self.active_ns / 1e9 if self.active_ns > 0 else None
        return Identity(sizes=frozenset(sizes.values()), world=sizes.get(WORLD), rank=self.rank, active=active)

    @property
    def is_waiting(self) -> bool:
        """Return whether a call is not over."""
        return any(not call.is_completed for calls in self.calls.values() for call in calls)

    def pending(self, group: str) -> list[Call]:
        """Return the calls of a group that are not over, oldest first."""
        return [call for call in self.calls.get(group, ()) if not call.is_completed]

    def has_called(self, group: str, seq: int) -> bool | None:
        """Return whether this rank made a collective of a group; None where that may have been overwritten."""
        newest = max((call.seq for call in self.calls.get(group, ()) if not call.is_p2p), default=None)
        if newest is not None and newest >= seq:
            return True
        if group in self.enqueued:
            return self.enqueued[group] >= seq
        return None if newest is None and self.is_partial else False


def _is_dump(head: bytes) -> bool:
    if _PICKLED.match(head):
        return sum(key in head for key in _KEYS) >= 2 or (b"entries" in head and b"version" in head)
    stripped = head.lstrip()
    return stripped.startswith(b"{") and b'"version"' in head and sum(key in head for key in _KEYS) >= 2


def read(name: str, data: bytes) -> Dump:
    """Return a dump; the number at the end of the name of its file is the rank.

    A ValueError says that it is damaged, or asks for more than plain values.
    """
    with pause_collector():  # it would go through a million new dictionaries again and again
        document = loads(data) if _PICKLED.match(data) else json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("entries", []), list):
            raise ValueError("it has no list of entries")
        match = _RANK_IN_NAME.search(name.rpartition("/")[2])
        digits = (match[1] or match[2]) if match else ""
        rank = int(digits) if 0 < len(digits) < 8 else None
        dump = Dump(name=name, rank=rank, release=_text(document.get("comm_lib_version")))
        for key, about in _entries(document.get("pg_config")):
            own, ranks = _text(about.get("name", key)), about.get("ranks")  # [0, 1], or in most versions text
            listed = ranks if isinstance(ranks, str) else " ".join(map(_text, _list(ranks)))
            dump.groups[own] = Group(own, _text(about.get("desc")), _share_ranks(listed))
        world = dump.groups[WORLD].ranks if WORLD in dump.groups else ()
        if match and match[2] and world and rank not in world:
            dump.rank = None  # a date, a pid or a number of its collector
        # The number of the last collective of each group, by the number of the group on this rank.
        named = (
            (_text(key), _text(one.get("last_enqueued_collective"))) for key, one in _entries(document.get("pg_status"))
        )
        status = {key: int(number) for key, number in named if _NUMBER.fullmatch(number)}
        _take_entries(dump, [entry for entry in document.get("entries", ()) if isinstance(entry, dict)], status)
        return dump


@lru_cache(maxsize=1024)
def _share_ranks(listed: str) -> tuple[int, ...]:
    """Return the same object for the same group: thousands of dumps list thousands of ranks each."""
    return tuple(map(int, re.findall(r"\d{1,9}", listed)))


def _entries(listed: Any) -> list[tuple[Any, dict[str, Any]]]:
    return [(key, one) for key, one in listed.items() if isinstance(one, dict)] if isinstance(listed, dict) else []


_Lane = tuple[str, frozenset[int]]
"""What runs one after the other: the collectives of a group, and what two ranks send each other."""


class _Row(NamedTuple):
    entry: Mapping[str, Any]
    group: str
    lane: _Lane
    number: int  # of the collective, or of the P2P call or the batch of them
    nth: int
    is_batch: bool  # whether it is no call, but stands for those before it: it only says how far these got


def _take_entries(dump: Dump, entries: list[dict[str, Any]], status: Mapping[str, int]) -> None:
    if not entries:
        dump.is_partial = any(last > 0 for last in status.values())
        return
    # A rank that connects to its peers is in a call that it has yet to make and to put into the queue: CUDA calls an
    # event over that nobody has begun to record.
    end = entries[-1]
    queued = status.get(_text(end.get("pg_id")))
    number = _number(end.get("p2p_seq_id" if end.get("is_p2p") else "collective_seq_id"))
    is_open = end.get("state") == "completed" and end.get("retired") is False and not end.get("duration_ms")
    if queued is not None and queued != number and is_open and "collective_seq_id" in end:
        entries[-1] = {**end, "state": "scheduled"}
    dump.is_partial = _order(entries[0]) > 0
    times = [entry.get(key) for key in _TIMES for entry in entries[-_RECENT:]]
    dump.active_ns = max([0, *(time for time in times if type(time) is int and time < 1 << 63)])
    names: dict[str, str] = {}  # of the groups by their numbers on this rank, `pg_id`
    rows: list[_Row] = []
    kinds: dict[tuple[Any, ...], tuple[str, Direction | None, _Lane]] = {}
    for entry in entries:
        get = entry.get
        named, name = get("process_group"), get("profiling_name")
        # Most calls are alike but for their numbers.
        key = (tuple(named) if type(named) is list else named, get("pg_id"), name)
        if key not in kinds:
            own, desc = _text(get("pg_id", get("pg_name", ""))), ""  # until version 2.1 there is only the number
            if isinstance(named, list | tuple) and len(named) == 2:
                own, desc = map(_text, named)
            dump.groups.setdefault(own, Group(own, desc, ()))
            names.setdefault(_text(get("pg_id")), own)
            ends = direction(_text(name))
            kinds[key] = own, ends, (own, frozenset(ends or ()))
        group, peers, lane = kinds[key]
        # A batch of one operation, as all_gather makes it of tensors of different sizes, has its name in front.
        is_batch = isinstance(name, str) and (
            name == "nccl:coalesced" or (name.endswith("_coalesced") and not entry.get("input_sizes"))
        )
        nth = 0
        if peers and not is_batch:
            nth = dump.transfers[group, peers] = dump.transfers.get((group, peers), 0) + 1
        rows.append(_Row(entry, group, lane, _seq(entry), 0 if dump.is_partial else nth, is_batch))
    pairwise = {group for group, _ in dump.transfers}  # the last work may be a P2P call, with a number of its own
    dump.enqueued = {own: status[key] for key, own in names.items() if key in status and own not in pairwise}
    _keep(dump, rows)
    _time(dump, rows)
    dump.last = _call(rows[-1].group, entries[-1])


def _keep(dump: Dump, rows: list[_Row]) -> None:
    # All before a call that is over are over, too: the recorder sees no end of calls in a batch or a CUDA graph.
    batches = {_batch(row) for row in rows if row.is_batch and row.entry.get("state") == "completed"}
    made = [row for row in rows if not row.is_batch]
    last: dict[_Lane, int] = {}
    for place, row in enumerate(made):
        if row.entry.get("state") == "completed" or (batches and _batch(row) in batches):
            last[row.lane] = place
    kept: dict[tuple[bool, _Lane], dict[int, list[_Row]]] = {}
    for place, row in enumerate(made):
        is_over = place <= last.get(row.lane, -1)
        kept.setdefault((is_over, row.lane), {}).setdefault(row.number, []).append(row)
    for (is_over, (group, ends)), by_number in sorted(kept.items(), key=lambda item: not item[0][0]):
        calls, state = dump.calls.setdefault(group, []), "completed" if is_over else ""
        for batch in list(by_number.values())[-_KEPT:] if is_over else islice(by_number.values(), _KEPT):
            shown = batch[:_KEPT_OF_BATCH] if ends else batch[-1:]  # up to the last one all ranks have a collective
            calls.extend(_call(group, row.entry, state, row.nth) for row in shown)
    for calls in dump.calls.values():
        calls.sort(key=lambda call: call.order)


def _time(dump: Dump, rows: Iterable[_Row]) -> None:
    """Keep how long the last symmetric collectives of each group took; of a batch the last one."""
    timed: dict[str, deque[tuple[int, int, int, float, float, int]]] = {}
    spent, untimed, in_batch = 0.0, 0, 0
    for row in rows:
        entry, duration = row.entry, row.entry.get("duration_ms")
        if not isinstance(duration, float | int) or not 0 <= duration < 1e12:
            untimed, in_batch = untimed + 1, in_batch + 1
            continue
        if row.is_batch:
            untimed -= in_batch  # it stands for the calls before it
        spent, in_batch = spent + duration, 0
        if not row.is_batch and _text(entry.get("profiling_name")).removeprefix("nccl:") in SYMMETRIC:
            created = _number(entry.get("time_created_ns"))
            kept = timed.setdefault(row.group, deque(maxlen=_TIMED))
            kept.append((row.number, _order(entry), created, float(duration), spent, untimed))
    for group, kept in timed.items():
        dump.durations[group] = Durations(*map(array, "qqqfdq", zip(*kept, strict=True)))


def _batch(row: _Row) -> tuple[str, int, int]:
    """Return what the calls of one batch share; whether they are P2P the batch says in newer versions only."""
    return row.group, _number(row.entry.get("collective_seq_id")), _number(row.entry.get("p2p_seq_id"))


def _seq(entry: Mapping[str, Any]) -> int:
    number = entry.get("p2p_seq_id") if entry.get("is_p2p") else entry.get("collective_seq_id", entry.get("seq_id"))
    return _number(number)


def _order(entry: Mapping[str, Any]) -> int:
    return _number(entry.get("record_id", entry.get("id")))


def _call(group: str, entry: Mapping[str, Any], state: str = "", nth: int = 0) -> Call:
    dtypes = [*_list(entry.get("input_dtypes")), *_list(entry.get("output_dtypes"))]
    # The program's innermost frames: PyTorch lists the innermost first, and programs have helpers for calls.
    usable = [frame for frame in _list(entry.get("frames")) if isinstance(frame, dict)]
    own = [frame for frame in usable if not any(part in _text(frame.get("filename")) for part in _LIBRARY)]
    frames = [
        f"{_text(frame.get('filename'))}:{_number(frame.get('line'))} in {_text(frame.get('name'))}"
        for frame in (own or usable)[:_FRAMES]
    ]
    return Call(
        group=group,
        order=_order(entry),
        seq=_seq(entry),
        operation=intern(_text(entry.get("profiling_name")).removeprefix("nccl:")),
        state=state or _text(entry.get("state")) or "scheduled",
        is_p2p=bool(entry.get("is_p2p")),
        inputs=_elements(entry.get("input_sizes")),
        outputs=_elements(entry.get("output_sizes")),
        dtypes=tuple(dict.fromkeys(intern(_text(dtype)) for dtype in dtypes)),
        created_ns=_number(entry.get("time_created_ns")),
        frame=intern(" < ".join(frames)),
        nth=nth,
    )


def _elements(sizes: Any) -> tuple[int, ...]:
    # Until version 2.1 a single size stands where later a list of them does.
    if not isinstance(sizes, (list, tuple)):
        return ()
    shapes = sizes if all(isinstance(shape, (list, tuple)) for shape in sizes) else [sizes]
    return tuple(prod(map(_number, shape[:_MOST_DIMENSIONS])) for shape in shapes)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str:
    """Text, or a number as text; of anything else nothing: what shares its parts in a pickle has no end as text."""
    return value if isinstance(value, str) else str(_number(value)) if isinstance(value, int) else ""


def _number(value: Any) -> int:
    """Return a number that fits 64 bits, as all do that PyTorch writes; else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else 0


KIND = Kind("flight_recorder", "flight recorder dump", _is_dump, read)
