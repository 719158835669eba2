"""What NCCL's RAS answers: for each communicator which ranks answer, and how many operations each has launched.

Format: src/ras/client_support.cc, 2.24 to 2.30: ``STATUS`` and ``VERBOSE STATUS`` as text, and as JSON from 2.28 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from operator import index
from typing import Any

from nccl_inspect.artifacts.identity import Identity, comm_number
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, Record, frozen, record

KIND = "RAS answer"
_TEXT = re.compile(rb"^NCCL version [^\n]* compiled with CUDA [^\n]*\n.*?^Job summary\n=+\n", re.MULTILINE | re.DOTALL)
_WITHOUT_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status":)')
"""2.28 leaves a comma out where it lists ranks from which it has no answer."""
_VERSION = re.compile(r"^NCCL version (\S+) compiled with CUDA", re.MULTILINE)
_SECTION = re.compile(r"^#(\d+)-(\d+) \(([0-9a-f]+)\) ([A-Z,]+)$")
_PROCESS = (
    r" -- (?:\[process information not found\]|"
    r"GPU (?P<gpu>\d+)(?: \(NVML \d+\))? managed by process (?P<pid>\d+) on node (?P<host>\S+))$"
)
_COUNTS = re.compile(r"^  Communicator ranks have different (\w+) operation counts$")
_LAUNCHED = re.compile(
    r"^  Rank (?P<rank>\d+) has (?:launched up to operation (?P<count>\d+)|not launched any operations)" + _PROCESS
)
_SEVERAL = re.compile(r"^  \d+ ranks have (launched up to operation (\d+)|not launched any operations)$")
_RANK = re.compile(r"^  Rank (?P<rank>\d+)" + _PROCESS)
_DIFFERENT = "  Communicator ranks have different status"
_FAILED = re.compile(r"^  (Initialization|Asynchronous) errors? on \d+ ranks?$")
_SEVERAL_SAY = re.compile(r"^  (\d{1,9}) ranks (?:have status|reported) (.+)$")
_SAYS = re.compile(r"^  Rank (?P<rank>\d+) (?:has status|reported) (?P<what>.+?)(?:" + _PROCESS[:-1] + ")?$")
_GROUP = re.compile(r"^ +(\d+) +\d+ +\S+ +\S+ +(\d+) +\d+ +[A-Z]", re.MULTILINE)
"""Number of a group of communicators, and the ranks of each of them."""
_HEADING = re.compile(r"^#(\d+)-\d+ \(([0-9a-f]+)\) [A-Z,]+$", re.MULTILINE)
_PID = re.compile(r"\b[Pp]rocess (\d{1,9}) on node ")
_LOST = re.compile(r"^  Process (?P<pid>\d+) on node (?P<host>\S+) managing GPUs? ")


@frozen
class Member(Frozen):
    """A rank of a communicator."""

    rank: int
    """In the communicator."""
    host: str | None = None
    """As RAS names it: an address."""
    pid: int | None = None
    gpu: int | None = None
    launched: int = 0
    """Operations of one kind."""


@record
class Mismatch(Record):
    """Ranks of a communicator that have launched different numbers of one operation."""

    comm_id: str
    """``0x15182f3f22f8233d``: the ``commId`` of the log."""
    operation: str
    members: list[Member]
    """All ranks; where the answer is text those that it lists."""
    usual: int | None = None
    """The most that several ranks have launched, where the answer is text."""

    @property
    def behind(self) -> list[Member]:
        """Return the ranks that have launched fewer than others."""
        most = max((*(member.launched for member in self.members), self.usual or 0), default=0)
        return [member for member in self.members if member.launched < most]


@record
class State(Record):
    """Ranks of a communicator that say the same of it, where others say something else or where it is an error."""

    comm_id: str
    what: str
    """A status: ``RUNNING``, ``INIT``, ``FINALIZE``, ``ABORT``, ``NOCOMM``; or an error in words."""
    line: int
    """Of a text; 1 of JSON."""
    members: list[Member]
    """Those that the answer lists."""
    count: int = 0
    """How many there are, listed or not."""
    stage: str = ""
    """Of an error: ``Initialization`` or ``Asynchronous``."""


@frozen
class Lost(Frozen):
    """A process from which RAS has no answer."""

    host: str | None
    pid: int | None
    comm_id: str | None = None
    rank: int | None = None
    """In that communicator."""
    is_dead: bool = False
    """Whether RAS gave it up: no connection to it can be made."""
    line: int = 1
    """Of a text; 1 of JSON."""


@record
class Answer(Record):
    """One answer of RAS."""

    name: str
    """Of the file."""
    nccl_version: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    """Ranks of each communicator, where the answer lists them."""
    mismatches: list[Mismatch] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    errors: list[State] = field(default_factory=list)
    """What ranks report, most frequent first."""
    states: list[State] = field(default_factory=list)
    """Of communicators whose ranks differ in it."""
    launched: dict[str, dict[str, int]] = field(default_factory=dict)
    """The operations of each communicator that all its ranks have launched equally often; JSON only."""
    lines: dict[str, int] = field(default_factory=dict)
    """Line number of each communicator in a text."""
    pids: set[int] = field(default_factory=set)
    """All processes that it names."""
    members: dict[str, list[Member]] = field(default_factory=dict)
    """The ranks of each communicator that it names with their processes."""
    whole: list[str] = field(default_factory=list)
    """The communicators of all processes."""

    def identity(self) -> Identity:
        """Return what identifies its job."""
        named = [*self.sizes, *self.lines, *(mismatch.comm_id for mismatch in self.mismatches)]
        comms = {number: text for text in named if (number := comm_number(text)) is not None}
        return Identity(comms=comms, pids=frozenset(self.pids))

    def ranks_by_pid(self) -> dict[int, int]:
        """Return the rank of each process in the communicators of all, where these have the same one."""
        by_pid: dict[int, set[int]] = {}
        for member in (member for comm_id in self.whole for member in self.members.get(comm_id, ())):
            if member.pid is not None:
                by_pid.setdefault(member.pid, set()).add(member.rank)
        return {pid: min(own) for pid, own in by_pid.items() if len(own) == 1}

    def last_to_come(self) -> list[Member]:
        """Return ranks that launched fewer operations than others in some communicator, and more in none.

        One that launched more waits there for the others.
        """
        late: dict[tuple[str | None, int], Member] = {}
        ahead: set[tuple[str | None, int]] = set()
        for mismatch in self.mismatches:
            behind = {member.rank for member in mismatch.behind}
            for member in mismatch.members:
                # Without its process a rank is known in its communicator only.
                key = (None, member.pid) if member.pid is not None else (mismatch.comm_id, member.rank)
                if member.rank in behind:
                    late.setdefault(key, member)
                else:
                    ahead.add(key)
        return [member for key, member in late.items() if key not in ahead]

    def ranks_in_step(self, pid: int) -> list[Member]:
        """Return the other ranks of communicators in which all launched as many operations as this process."""
        differing = {mismatch.comm_id for mismatch in self.mismatches}
        found: dict[int, Member] = {}
        for comm_id, members in self.members.items():
            is_in_step = self.launched.get(comm_id) and comm_id not in differing
            if is_in_step and any(member.pid == pid for member in members):
                found |= {member.pid: member for member in members if member.pid is not None and member.pid != pid}
        return list(found.values())


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is an answer, by its first bytes."""
    if head.lstrip().startswith(b"{"):
        return b'"nccl_version"' in head and b'"communicators_count"' in head
    return _TEXT.search(head) is not None


def read(name: str, data: bytes) -> Answer:
    """Return an answer.

    Raises:
        ValueError: it is damaged.
    """
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        whole = _WITHOUT_COMMA.sub(r"\1,\2", text.lstrip())
        document, _ = json.JSONDecoder().raw_decode(whole)  # a client may append why it ended
        return _read_document(name, document)
    return _read_text(name, text)


def _read_document(name: str, document: Mapping[str, Any]) -> Answer:
    answer = Answer(name, nccl_version=str(document.get("nccl_version") or "") or None)
    for comm in document.get("communicators") or ():
        comm_id = str(comm.get("hash"))
        answer.sizes[comm_id] = index(comm.get("size", 0))
        ranks = comm.get("ranks") or ()
        answer.pids.update(pid for rank in ranks if (pid := _number(rank, "pid")))
        answer.members[comm_id] = [_read_member(rank) for rank in (*ranks, *(comm.get("missing_ranks") or ()))]
        for operation in dict.fromkeys(name for rank in ranks for name in rank.get("collective_counts") or ()):
            counts = [index((rank.get("collective_counts") or {}).get(operation, 0)) for rank in ranks]
            if len(set(counts)) > 1:
                members = list(map(_read_member, ranks, counts))
                answer.mismatches.append(Mismatch(comm_id, operation, members))
        if len(ranks) == answer.sizes[comm_id]:
            answer.launched[comm_id] = _alike(ranks)
        missing = comm.get("missing_ranks") or ()
        answer.errors.extend(_errors(comm_id, ranks))
        answer.states.extend(_states(comm_id, ranks, missing))
        for lost in missing:
            is_dead = bool((lost.get("status") or {}).get("considered_dead"))
            if _has_left(lost):
                continue  # it answered
            # A communicator that is only being made may list ranks that do not exist: 2.28 reads foreign memory there.
            rank = index(lost.get("rank", -1))
            if lost.get("pid") and 0 <= rank < answer.sizes[comm_id]:
                answer.lost.append(Lost(_text(lost, "host"), _number(lost, "pid"), comm_id, rank, is_dead))
    most = max(answer.sizes.values(), default=0)
    answer.whole = [comm_id for comm_id, size in answer.sizes.items() if size == most >= len(answer.pids)]
    return answer


_ERRORS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
    8: "Timeout",
}
"""``ncclResult_t`` in the words of the text; 0 and 7 (in progress) are not errors."""
_STAGES = {"Initialization": "init_state", "Asynchronous": "async_error"}


def _errors(comm_id: str, ranks: Any) -> Iterator[State]:
    """Yield what the ranks of a communicator report."""
    for stage, key in _STAGES.items():
        for code, what in _ERRORS.items():
            members = [_read_member(rank) for rank in ranks if (rank.get("status") or {}).get(key) == code]
            if members:
                yield State(comm_id, what, 1, members, len(members), stage)


def _states(comm_id: str, ranks: Any, missing: Any) -> list[State]:
    """Return the status of all ranks of a communicator, where they differ in it."""
    by_status = group_values((_status(rank.get("status") or {}), _read_member(rank)) for rank in ranks)
    for rank in missing:
        if _has_left(rank):
            by_status.setdefault("NOCOMM", []).append(_read_member(rank))
    return [State(comm_id, what, 1, members, len(members)) for what, members in by_status.items() if len(by_status) > 1]


def _status(entry: Mapping[str, Any]) -> str:
    """Return the word for it in a text."""
    if entry.get("abort_flag"):
        return "ABORT"
    if entry.get("finalize_called") or entry.get("destroy_flag"):
        return "FINALIZE"
    return "INIT" if entry.get("init_state") else "RUNNING"


def _has_left(missing: Mapping[str, Any]) -> bool:
    """Return whether a process answered that has the communicator no more, or not yet."""
    status = missing.get("status") or {}
    has_answered = status.get("unresponsive") is False and not status.get("considered_dead")
    return has_answered and (_number(missing, "pid") or 0) > 0


def _read_member(rank: Mapping[str, Any], launched: int = 0) -> Member:
    pid = _number(rank, "pid")
    return Member(index(rank.get("rank", -1)), _text(rank, "host"), pid, _number(rank, "cuda_dev"), launched)


def _alike(ranks: Any) -> dict[str, int]:
    """Return the operations that all ranks have launched, equally often."""
    counts = [rank.get("collective_counts") or {} for rank in ranks]
    first = counts[0] if counts else {}
    alike = {name for name, number in first.items() if number and all(of.get(name) == number for of in counts)}
    return {name: index(first[name]) for name in first if name in alike}


def _number(entry: Mapping[str, Any], key: str) -> int | None:
    """Return a number, where there is one; a TypeError for anything else."""
    return None if entry.get(key) is None else index(entry[key])


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    return None if entry.get(key) is None else str(entry[key])


def _read_text(name: str, text: str) -> Answer:
    version = _VERSION.search(text)
    answer = Answer(name, nccl_version=version[1] if version else None)
    comm_id, kind = None, ""
    counts: _Counts | None = None
    states: _States | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if section := _SECTION.match(line):
            comm_id, kind, counts, states = f"0x{section[3].lstrip('0')}", section[4], None, None
            answer.lines.setdefault(comm_id, number)
        elif line in ("INCOMPLETE", "DEAD"):
            comm_id, kind = None, line
        elif differs := _COUNTS.match(line):
            states, counts = None, _Counts(comm_id or "", differs[1])
            answer.mismatches.append(counts.mismatch)
        elif line == _DIFFERENT:
            states = _States(comm_id or "", answer.states)
        elif failed := _FAILED.match(line):
            states = _States(comm_id or "", answer.errors, failed[1])
        elif states and line.strip():
            states.take(line, number)
        elif counts and line.strip():
            counts.take(line)
        elif kind in ("INCOMPLETE", "DEAD"):
            if comm_id is None and (match := _LOST.match(line)):
                answer.lost.append(Lost(match["host"], int(match["pid"]), is_dead=kind == "DEAD", line=number))
            elif comm_id is not None and (match := _RANK.match(line)) and match["pid"]:
                answer.lost.append(Lost(match["host"], int(match["pid"]), comm_id, int(match["rank"]), line=number))
    answer.pids.update(map(int, _PID.findall(text)))
    for mismatch in answer.mismatches:
        answer.members.setdefault(mismatch.comm_id, []).extend(mismatch.members)
    for lost in answer.lost:
        if lost.comm_id is not None and lost.rank is not None:
            answer.members.setdefault(lost.comm_id, []).append(Member(lost.rank, lost.host, lost.pid))
    # The communicators of all processes, by the table of groups; without one that which is the only one.
    groups = {match[1]: int(match[2]) for match in _GROUP.finditer(text)}
    comms = {f"0x{match[2].lstrip('0')}": match[1] for match in _HEADING.finditer(text)}
    most = max(groups.values(), default=0)
    whole = [comm_id for comm_id, group in comms.items() if groups.get(group) == most >= len(answer.pids)]
    answer.whole = whole if groups else list(comms) if len(comms) == 1 else []
    return answer


class _Counts:
    """Reads how many operations the ranks of a communicator have launched.

    A line for several ranks is followed by these ranks, unless they are too many to be listed.
    """

    def __init__(self, comm_id: str, operation: str) -> None:
        self.mismatch = Mismatch(comm_id, operation, [])
        self._several = 0

    def take(self, line: str) -> None:
        """Take in one line."""
        if several := _SEVERAL.match(line):
            self._several = int(several[2] or 0)
            self.mismatch.usual = max(self._several, self.mismatch.usual or 0)
        elif match := _LAUNCHED.match(line):
            self._add(match, int(match["count"] or 0))
        elif match := _RANK.match(line):
            self._add(match, self._several)

    def _add(self, match: re.Match[str], launched: int) -> None:
        self.mismatch.members.append(_member(match, launched))


class _States:
    """Reads what ranks of a communicator say of it: lines for several ranks, which may be listed, and for one."""

    def __init__(self, comm_id: str, states: list[State], stage: str = "") -> None:
        self._comm_id, self._found, self._stage = comm_id, states, stage
        self._several: State | None = None

    def take(self, line: str, number: int) -> None:
        """Take in one line."""
        if several := _SEVERAL_SAY.match(line):
            self._several = self._add(several[2], number, int(several[1]))
        elif status := _SAYS.match(line):
            self._add(status["what"], number, 1).members.append(_member(status))
        elif self._several and (listed := _RANK.match(line)):
            self._several.members.append(_member(listed))

    def _add(self, what: str, number: int, count: int) -> State:
        state = State(self._comm_id, what, number, [], count, self._stage)
        self._found.append(state)
        return state


def _member(match: re.Match[str], launched: int = 0) -> Member:
    pid, gpu = (int(number) if number else None for number in match.group("pid", "gpu"))
    return Member(int(match["rank"]), match["host"], pid, gpu, launched)
