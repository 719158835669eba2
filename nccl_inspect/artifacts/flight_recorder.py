"""PyTorch's flight recorder: what each rank called in which process group, and how far each call came.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp, versions 2.0 to 2.10 (PyTorch 2.3
to 2.11), as a pickle (``nccl_trace_rank_N``) or as JSON (without stacks). A rank keeps its last calls only
(``TORCH_NCCL_TRACE_BUFFER_SIZE``), oldest first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

from nccl_inspect.artifacts.plain_pickle import PlainPickleError, loads
from nccl_inspect.records import Record

KIND = "flight recorder dump"
NAMES = {
    **dict.fromkeys(("version", "comm_lib_version", "nccl_version", "state", "ranks", "thread_id"), "kept"),
    **dict.fromkeys(("input_dtypes", "output_dtypes"), "kept"),
    **dict.fromkeys(("name", "profiling_name", "thread_name"), "text"),
    **dict.fromkeys(("desc", "process_group", "pg_name", "pg_desc"), "label"),
    **dict.fromkeys(("host", "hostname"), "host"),
    "filename": "path",
}
_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|trace[_-])(\d+)(?=\D*$)", re.IGNORECASE)
_PICKLED = re.compile(rb"\x80[\x02-\x05]")
_KEYS = (b"pg_config", b"comm_lib_version", b"nccl_version", b"pg_status", b"record_id", b"collective_seq_id")
_LIBRARY = ("/torch/distributed/", "/torch/_", "/torch/utils/", "/torch/nn/", "/torch/autograd/", "<frozen ")
"""Where a frame of PyTorch itself stands: what the program did stands below it."""
_KEPT = 8
"""Calls of each group that are kept: so many completed ones, and so many that are not."""
_FRAMES = 2
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_MOST_DIMENSIONS = 64
"""Of a tensor, as PyTorch has it."""
_PEERS = re.compile(r"(\d+)(->|<-)(\d+)")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Group(Record):
    """A process group as one rank knows it."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    """Ranks of the job, in the order of the group; empty until version 2.2, which does not list them."""

    @property
    def label(self) -> str:
        """Its description where it has one, else its name."""
        return self.desc if self.desc and self.desc != "undefined" else self.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Record):
    """A call of one rank."""

    group: str
    """The name of its process group."""
    order: int
    """``record_id``: the order in which this rank made its calls."""
    seq: int
    """``collective_seq_id``, the number of the collective in its group; of a P2P call, ``p2p_seq_id``."""
    operation: str
    """``all_reduce``, ``_all_gather_base``, ``send 0->1``: the name without ``nccl:``."""
    state: str
    """``scheduled``, ``started`` or ``completed``, as the watchdog of that rank saw it last."""
    is_p2p: bool
    inputs: tuple[int, ...]
    """Elements of each input."""
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]
    created_ns: int
    frame: str
    """``file:line in function < file:line in caller``, the innermost outside of PyTorch; empty without stacks."""

    @property
    def is_completed(self) -> bool:
        """Whether it is over on this rank."""
        return self.state == "completed"

    @property
    def peers(self) -> tuple[int, int] | None:
        """Sender and receiver, by their ranks in the group; None for a collective."""
        match = _PEERS.search(self.operation)
        if match is None:
            return None
        here, arrow, there = int(match[1]), match[2], int(match[3])
        return (here, there) if arrow == "->" else (there, here)


@dataclass(slots=True, eq=False, repr=False)
class Dump(Record):
    """What one rank recorded."""

    name: str
    """Of the file."""
    version: str
    rank: int | None
    """From the name of the file: the dump itself does not hold it."""
    nccl_version: str | None
    groups: dict[str, Group]
    calls: dict[str, list[Call]] = field(default_factory=dict)
    """Of each group the last completed ones and the first that are not, oldest first."""
    last: Call | None = None
    """The last one of all."""
    total: int = 0
    """Calls that it holds."""
    active_ns: int = 0
    """When the rank last made a call, or its watchdog saw one begin or end; 0 where that is not known."""

    def pending(self, group: str) -> list[Call]:
        """The calls of a group that are not over, oldest first."""
        return [call for call in self.calls.get(group, ()) if not call.is_completed]


def recognises(name: str, head: bytes) -> bool:
    """Whether a file is a dump, by its first bytes."""
    if _PICKLED.match(head):
        return sum(key in head for key in _KEYS) >= 2 or (b"entries" in head and b"version" in head)
    stripped = head.lstrip()
    return stripped.startswith(b"{") and b'"version"' in head and sum(key in head for key in _KEYS) >= 2


def read(name: str, data: bytes) -> Dump:
    """A dump.

    Args:
        name: of the file: the number at its end is the rank.
        data: its contents.

    Raises:
        ValueError: it is damaged, or asks for more than plain values.
    """
    try:
        document = loads(data) if _PICKLED.match(data) else json.loads(data)
    except (PlainPickleError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list):
        raise ValueError("it has no list of entries")
    match = _RANK_IN_NAME.search(name.rpartition("/")[2])
    dump = Dump(
        name=name,
        version=_text(document.get("version")),
        rank=int(match[1]) if match and len(match[1]) < 8 else None,
        nccl_version=_text(document.get("comm_lib_version") or document.get("nccl_version")) or None,
        groups=_groups(document.get("pg_config")),
    )
    _fill(dump, [entry for entry in document.get("entries", ()) if isinstance(entry, dict)])
    return dump


def _groups(config: Any) -> dict[str, Group]:
    if not isinstance(config, dict):
        return {}
    groups = {}
    for key, entry in config.items():
        about = entry if isinstance(entry, dict) else {}
        name = _text(about.get("name", key))
        groups[name] = Group(name, _text(about.get("desc")), _ranks(about.get("ranks")))
    return groups


def _ranks(listed: Any) -> tuple[int, ...]:
    """``[0, 1]`` as a list or, in most versions, as text."""
    if isinstance(listed, str):
        return tuple(int(rank) for rank in re.findall(r"\d{1,9}", listed))
    return tuple(_number(rank) for rank in _list(listed) if isinstance(rank, int))


def _fill(dump: Dump, entries: list[Mapping[str, Any]]) -> None:
    """Keep of each group what tells where this rank stands: a dump of 2,000 calls needs no more than a few of them."""
    completed: dict[str, list[Mapping[str, Any]]] = {}
    pending: dict[str, list[Mapping[str, Any]]] = {}
    over = _over(entries)
    for place, entry in enumerate(entries):
        name, desc = _group_of(entry)
        if name not in dump.groups:
            dump.groups[name] = Group(name, desc, ())
        if not _is_batch(entry):
            (completed if place <= over.get(_lane(entry), -1) else pending).setdefault(name, []).append(entry)
    dump.active_ns = max((_number(entry.get(key)) for entry in entries for key in _TIMES), default=0)
    dump.total = len(entries)
    for name in dict.fromkeys([*completed, *pending]):
        last, first = completed.get(name, [])[-_KEPT:], islice(pending.get(name, ()), _KEPT)
        calls = [*(_call(name, entry, "completed") for entry in last), *(_call(name, entry) for entry in first)]
        dump.calls[name] = sorted(calls, key=lambda call: call.order)
    if entries:
        newest = max(entries, key=_order)
        dump.last = _call(_group_of(newest)[0], newest)


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Name and description of the group; until version 2.1 there is only the number."""
    named = entry.get("process_group")
    if isinstance(named, (list, tuple)) and len(named) == 2:
        return _text(named[0]), _text(named[1])
    return _text(entry.get("pg_id", entry.get("pg_name", ""))), ""


def _is_batch(entry: Mapping[str, Any]) -> bool:
    """Whether this stands for calls that were made as one: only it says how far they came.

    A batch of one operation, as all_gather makes it of tensors of different sizes, has its name in front.
    """
    name = _text(entry.get("profiling_name"))
    return name == "nccl:coalesced" or (name.endswith("_coalesced") and not entry.get("input_sizes"))


def _batch(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    """What the calls of one batch share; whether they are P2P the batch says in newer versions only."""
    return _group_of(entry)[0], _number(entry.get("collective_seq_id")), _number(entry.get("p2p_seq_id"))


def _over(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, frozenset[int]], int]:
    """The last call that is over, of all that run one after the other.

    All before it are over, too: of calls in a batch or in a CUDA graph the recorder does not see the end.
    """
    finished = {_batch(entry) for entry in entries if _is_batch(entry) and entry.get("state") == "completed"}
    is_over = (entry.get("state") == "completed" or _batch(entry) in finished for entry in entries)
    return {_lane(entry): place for place, (entry, over) in enumerate(zip(entries, is_over, strict=True)) if over}


def _lane(entry: Mapping[str, Any]) -> tuple[str, frozenset[int]]:
    """What runs one after the other: the collectives of a group, and what two ranks send each other."""
    match = _PEERS.search(_text(entry.get("profiling_name")))
    return _group_of(entry)[0], frozenset((int(match[1]), int(match[3]))) if match else frozenset()


def _order(entry: Mapping[str, Any]) -> int:
    return _number(entry.get("record_id", entry.get("id")))


def _call(group: str, entry: Mapping[str, Any], state: str = "") -> Call:
    is_p2p = bool(entry.get("is_p2p"))
    number = entry.get("p2p_seq_id") if is_p2p else entry.get("collective_seq_id", entry.get("seq_id"))
    return Call(
        group=group,
        order=_order(entry),
        seq=_number(number),
        operation=_text(entry.get("profiling_name")).removeprefix("nccl:"),
        state=state or _text(entry.get("state")) or "scheduled",
        is_p2p=is_p2p,
        inputs=_elements(entry.get("input_sizes")),
        outputs=_elements(entry.get("output_sizes")),
        dtypes=_dtypes(entry),
        created_ns=_number(entry.get("time_created_ns")),
        frame=_frame(entry.get("frames")),
    )


def _elements(sizes: Any) -> tuple[int, ...]:
    """How many elements each tensor has; until version 2.1 a single size stands where later a list of them does."""
    if not isinstance(sizes, (list, tuple)):
        return ()
    shapes = sizes if all(isinstance(shape, (list, tuple)) for shape in sizes) else [sizes]
    return tuple(prod(map(_number, shape[:_MOST_DIMENSIONS])) for shape in shapes)


def _dtypes(entry: Mapping[str, Any]) -> tuple[str, ...]:
    listed = [*_list(entry.get("input_dtypes")), *_list(entry.get("output_dtypes"))]
    return tuple(dict.fromkeys(map(_text, listed)))


def _frame(frames: Any) -> str:
    """The program's own innermost frames: PyTorch lists the innermost first, and programs have helpers for calls."""
    usable = [frame for frame in _list(frames) if isinstance(frame, dict)]
    own = [frame for frame in usable if not _is_library(_text(frame.get("filename")))]
    return " < ".join(map(_place, (own or usable)[:_FRAMES]))


def _place(frame: Mapping[str, Any]) -> str:
    return f"{_text(frame.get('filename'))}:{_number(frame.get('line'))} in {_text(frame.get('name'))}"


def _is_library(filename: str) -> bool:
    return any(part in filename for part in _LIBRARY)


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str:
    """Text, or a number as text; of anything else nothing: what shares its parts in a pickle has no end as text."""
    return value if isinstance(value, str) else str(_number(value)) if isinstance(value, int) else ""


def _number(value: Any) -> int:
    """A number that fits 64 bits, as all do that PyTorch writes; else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else 0
