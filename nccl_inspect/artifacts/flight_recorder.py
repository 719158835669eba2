"""PyTorch's flight recorder: what each rank called in which process group, and how far each call came.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp, versions 2.0 to 2.10 (PyTorch 2.3
to 2.11), as a pickle (``nccl_trace_rank_N``) or as JSON (without stacks). A rank keeps its last calls only
(``TORCH_NCCL_TRACE_BUFFER_SIZE``), oldest first.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

from nccl_inspect.artifacts.calls import Call, Recorded, as_list, as_number, as_text, select_entries
from nccl_inspect.artifacts.identity import Identity
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.util.records import Frozen, frozen, record

KIND = "flight recorder dump"
_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|trace[_-])(\d+)(?=\D*$)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,18}")
_PICKLED = re.compile(rb"\x80[\x02-\x05]")
_KEYS = (b"pg_config", b"comm_lib_version", b"nccl_version", b"pg_status", b"record_id", b"collective_seq_id")
WORLD = "0"  # the name of the group of all ranks


@frozen
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


@record
class Dump(Recorded):
    """Holds what one rank recorded."""

    name: str = ""
    version: str = ""
    rank: int | None = None  # from the name of the file: the dump itself does not hold it
    nccl_version: str | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    """The last collective of each group that this rank has called, by ``pg_status``; of groups without P2P calls."""
    is_partial: bool = False  # whether earlier calls were overwritten, or calls left out

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


def recognises(name: str, head: bytes) -> bool:
    """Return whether a file is a dump, by its first bytes."""
    if _PICKLED.match(head):
        return sum(key in head for key in _KEYS) >= 2 or (b"entries" in head and b"version" in head)
    stripped = head.lstrip()
    return stripped.startswith(b"{") and b'"version"' in head and sum(key in head for key in _KEYS) >= 2


def read(name: str, data: bytes) -> Dump:
    """Return a dump.

    Args:
        name: of the file: the number at its end is the rank.

    Raises:
        ValueError: it is damaged, or asks for more than plain values.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # it goes through a million new dictionaries again and again
    try:
        return _read(name, data)
    finally:
        if was_enabled:
            gc.enable()


def _read(name: str, data: bytes) -> Dump:
    document = loads(data) if _PICKLED.match(data) else json.loads(data)
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list):
        raise ValueError("it has no list of entries")
    match = _RANK_IN_NAME.search(name.rpartition("/")[2])
    status = _status(document.get("pg_status"))
    dump = Dump(
        name=name,
        version=as_text(document.get("version")),
        rank=int(match[1]) if match and len(match[1]) < 8 else None,
        nccl_version=as_text(document.get("comm_lib_version") or document.get("nccl_version")) or None,
        groups=_groups(document.get("pg_config")),
    )
    entries = [entry for entry in document.get("entries", ()) if isinstance(entry, dict)]
    select_entries(dump, _with_open_end(entries, status))
    for group, desc in dump.descriptions.items():
        dump.groups.setdefault(group, Group(group, desc, ()))
    pairwise = {group for group, _ in dump.transfers}  # the last work may be a P2P call, with a number of its own
    dump.enqueued = {group: status[key] for key, group in dump.ids.items() if key in status and group not in pairwise}
    dump.is_partial = dump.first > 0 or (not dump.total and any(last > 0 for last in status.values()))
    return dump


def _with_open_end(entries: list[dict[str, Any]], status: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the calls, the last one not over where it was not put into the queue.

    A rank that connects to its peers is in a call that it has yet to make: CUDA calls an event over that nobody
    has begun to record.
    """
    last = entries[-1] if entries else {}
    queued = status.get(as_text(last.get("pg_id")))
    number = as_number(last.get("p2p_seq_id" if last.get("is_p2p") else "collective_seq_id"))
    is_open = last.get("state") == "completed" and last.get("retired") is False and not last.get("duration_ms")
    if queued is None or queued == number or not is_open or "collective_seq_id" not in last:
        return entries
    return [*entries[:-1], {**last, "state": "scheduled"}]


def _status(listed: Any) -> dict[str, int]:
    entries = listed.items() if isinstance(listed, dict) else ()
    enqueued: dict[str, int] = {}
    for key, entry in entries:
        last = as_text(entry.get("last_enqueued_collective")) if isinstance(entry, dict) else ""
        if _NUMBER.fullmatch(last):
            enqueued[as_text(key)] = int(last)
    return enqueued


def _groups(config: Any) -> dict[str, Group]:
    groups = {}
    for key, entry in config.items() if isinstance(config, dict) else ():
        about = entry if isinstance(entry, dict) else {}
        name, ranks = as_text(about.get("name", key)), about.get("ranks")  # [0, 1], or in most versions text
        listed = ranks if isinstance(ranks, str) else " ".join(map(as_text, as_list(ranks)))
        groups[name] = Group(name, as_text(about.get("desc")), _share_ranks(listed))
    return groups


@lru_cache(maxsize=1024)
def _share_ranks(listed: str) -> tuple[int, ...]:
    """Return the same object for the same group: thousands of dumps list thousands of ranks each."""
    return tuple(map(int, re.findall(r"\d{1,9}", listed)))
