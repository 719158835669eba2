"""What NCCL's RAS answers: for each communicator which ranks answer, and how many operations each has launched.

Format: src/ras/client_support.cc, 2.24 to 2.30: ``STATUS`` and ``VERBOSE STATUS`` as text, and as JSON from 2.28 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import chain, product
from operator import index
from typing import Any

from nccl_inspect.artifacts import Identity, Kind, comm_number
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, Record

_TEXT = re.compile(rb"^NCCL version [^\n]* compiled with CUDA [^\n]*\n.*?^Job summary\n=+\n", re.MULTILINE | re.DOTALL)
_WITHOUT_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status":)')
"""2.28 leaves a comma out where it lists ranks from which it has no answer."""
_SECTION = re.compile(r"^#(\d+)-(\d+) \(([0-9a-f]+)\) ([A-Z,]+)$")
_COUNTS = re.compile(r"^  Communicator ranks have different (\w+) operation counts$")
_STATES = re.compile(r"^  (?:Communicator ranks have different status|(\w+) errors? on \d+ ranks?)$")
_SAYS = re.compile(
    r"^  (?:Rank (?P<rank>\d+)|(?P<several>\d{1,9}) ranks)"
    r"(?P<says> ha(?:s|ve) (?:launched up to operation (?P<count>\d+)|not launched any operations)"
    r"| (?:ha(?:s|ve) status|reported) (?P<what>.+?))?"
    r"(?: -- (?:\[process information not found\]|"
    r"GPU \d+(?: \(NVML \d+\))? managed by process (?P<pid>\d+) on node (?P<host>\S+)))?$"
)
"""What a rank, or several that may follow, have launched, have as their status, or report as an error."""
_GROUP = re.compile(r"^ +(\d+) +\d+ +\S+ +\S+ +(\d+) +\d+ +[A-Z]", re.MULTILINE)
"""Number of a group of communicators, and the ranks of each of them."""
_PID = re.compile(r"\b[Pp]rocess (\d{1,9}) on node ")
_LOST = re.compile(r"^  Process (?P<pid>\d+) on node (?P<host>\S+) managing GPUs? ")


class Member(Frozen):
    """A rank of a communicator."""

    rank: int  # in the communicator
    host: str | None = None  # as RAS names it: an address
    pid: int | None = None
    launched: int = 0  # operations of one kind


class Mismatch(Record):
    """Ranks of a communicator that have launched different numbers of one operation."""

    comm_id: str  # `0x15182f3f22f8233d`: the `commId` of the log
    operation: str
    members: list[Member]  # all ranks; where the answer is text those that it lists
    usual: int | None = None  # the most that several ranks have launched, where the answer is text

    @property
    def behind(self) -> list[Member]:
        """Return the ranks that have launched fewer than others."""
        most = max((*(member.launched for member in self.members), self.usual or 0), default=0)
        return [member for member in self.members if member.launched < most]


class State(Record):
    """Ranks of a communicator that say the same of it, where others say something else or where it is an error."""

    comm_id: str
    what: str  # a status: `RUNNING`, `INIT`, `FINALIZE`, `ABORT`, `NOCOMM`; or an error in words
    line: int  # of a text; 1 of JSON
    members: list[Member]  # those that the answer lists
    count: int = 0  # how many there are, listed or not
    stage: str = ""  # of an error: `Initialization` or `Asynchronous`


class Lost(Frozen):
    """A process from which RAS has no answer."""

    host: str | None
    pid: int | None
    comm_id: str | None = None
    rank: int | None = None  # in that communicator
    is_dead: bool = False  # whether RAS gave it up: no connection to it can be made
    line: int = 1  # of a text; 1 of JSON


class Answer(Record):
    """One answer of RAS."""

    name: str  # of the file
    sizes: dict[str, int] = field(default_factory=dict)  # ranks of each communicator, where the answer lists them
    mismatches: list[Mismatch] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    errors: list[State] = field(default_factory=list)  # what ranks report, most frequent first
    states: list[State] = field(default_factory=list)  # of communicators whose ranks differ in it
    launched: dict[str, dict[str, int]] = field(default_factory=dict)
    """The operations of each communicator that all its ranks have launched equally often; JSON only."""
    lines: dict[str, int] = field(default_factory=dict)  # line number of each communicator in a text
    pids: set[int] = field(default_factory=set)  # all processes that it names
    members: dict[str, list[Member]] = field(default_factory=dict)
    """The ranks of each communicator that it names with their processes."""
    whole: list[str] = field(default_factory=list)  # the communicators of all processes that it knew
    most: int = 0  # the ranks of these; 0 if the answer does not say

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


def _is_answer(head: bytes) -> bool:
    if head.lstrip().startswith(b"{"):
        return b'"nccl_version"' in head and b'"communicators_count"' in head
    return _TEXT.search(head) is not None


def read(name: str, data: bytes) -> Answer:
    """Return an answer; a ValueError says that it is damaged."""
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        whole = _WITHOUT_COMMA.sub(r"\1,\2", text.lstrip())
        document, _ = json.JSONDecoder().raw_decode(whole)  # a client may append why it ended
        return _read_document(name, document)
    return _read_text(name, text)


_ERRORS = {  # `ncclResult_t` in the words of the text; 0 and 7 (in progress) are not errors
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
    8: "Timeout",
}
_STAGES = {"Initialization": "init_state", "Asynchronous": "async_error"}


def _read_document(name: str, document: Mapping[str, Any]) -> Answer:
    answer = Answer(name)
    for comm in document.get("communicators") or ():
        comm_id = str(comm.get("hash"))
        size = answer.sizes[comm_id] = index(comm.get("size", 0))
        ranks, missing = comm.get("ranks") or (), comm.get("missing_ranks") or ()
        members, absent = list(map(_read_member, ranks)), list(map(_read_member, missing))
        answer.members[comm_id] = [*members, *absent]
        answer.pids.update(member.pid for member in members if member.pid)
        counts = [rank.get("collective_counts") or {} for rank in ranks]
        if len(ranks) == size:
            answer.launched[comm_id] = {}
        for operation in dict.fromkeys(chain.from_iterable(counts)):
            launched = [index(one.get(operation, 0)) for one in counts]
            if len(set(launched)) > 1:
                answer.mismatches.append(Mismatch(comm_id, operation, list(map(_read_member, ranks, launched))))
            elif launched[0] and comm_id in answer.launched:
                answer.launched[comm_id][operation] = launched[0]
        statuses = [rank.get("status") or {} for rank in ranks]
        for (stage, key), (code, what) in product(_STAGES.items(), _ERRORS.items()):
            failed = [member for member, status in zip(members, statuses, strict=True) if status.get(key) == code]
            if failed:
                answer.errors.append(State(comm_id, what, 1, failed, len(failed), stage))
        by_status = group_values(zip(map(_status, statuses), members, strict=True))
        for rank, member in zip(missing, absent, strict=True):
            status = rank.get("status") or {}
            is_dead = bool(status.get("considered_dead"))
            if status.get("unresponsive") is False and not is_dead and (member.pid or 0) > 0:
                by_status.setdefault("NOCOMM", []).append(member)  # it answered, and has it no more or not yet
            # A communicator that is only being made may list ranks that do not exist: 2.28 reads foreign memory there.
            elif member.pid and 0 <= member.rank < size:
                answer.lost.append(Lost(member.host, member.pid, comm_id, member.rank, is_dead))
        if len(by_status) > 1:
            answer.states += [State(comm_id, what, 1, some, len(some)) for what, some in by_status.items()]
    answer.most = max(answer.sizes.values(), default=0)
    answer.whole = [comm_id for comm_id, size in answer.sizes.items() if size == answer.most >= len(answer.pids)]
    return answer


def _status(entry: Mapping[str, Any]) -> str:
    if entry.get("abort_flag"):
        return "ABORT"
    if entry.get("finalize_called") or entry.get("destroy_flag"):
        return "FINALIZE"
    return "INIT" if entry.get("init_state") else "RUNNING"


def _read_member(rank: Mapping[str, Any], launched: int = 0) -> Member:
    pid, _ = (None if rank.get(key) is None else index(rank[key]) for key in ("pid", "cuda_dev"))  # both are numbers
    host = None if rank.get("host") is None else str(rank["host"])
    return Member(index(rank.get("rank", -1)), host, pid, launched)


def _read_text(name: str, text: str) -> Answer:
    answer = Answer(name)
    comm_id, kind, stage, usual = "", "", "", 0
    group_of: dict[str, str] = {}  # of each communicator
    mismatch: Mismatch | None = None
    states: list[State] | None = None
    several: State | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if section := _SECTION.match(line):
            comm_id, kind = f"0x{section[3].lstrip('0')}", section[4]
            mismatch = states = None
            answer.lines.setdefault(comm_id, number)
            group_of[comm_id] = section[1]
        elif line in ("INCOMPLETE", "DEAD"):
            comm_id, kind = "", line
            mismatch = states = None
        elif differs := _COUNTS.match(line):
            states, usual, mismatch = None, 0, Mismatch(comm_id, differs[1], [])
            answer.mismatches.append(mismatch)
        elif listed := _STATES.match(line):
            states, several, stage = answer.errors if listed[1] else answer.states, None, listed[1] or ""
        elif kind in ("INCOMPLETE", "DEAD") and not comm_id and (lost := _LOST.match(line)):
            answer.lost.append(Lost(lost["host"], int(lost["pid"]), is_dead=kind == "DEAD", line=number))
        elif not (match := _SAYS.match(line)):
            continue
        elif match["several"]:
            if states is not None and match["what"]:
                several = State(comm_id, match["what"], number, [], int(match["several"]), stage)
                states.append(several)
            elif states is None and mismatch:
                usual = int(match["count"] or 0)
                mismatch.usual = max(usual, mismatch.usual or 0)
        else:
            pid = int(match["pid"]) if match["pid"] else None
            member = Member(int(match["rank"]), match["host"], pid)
            if states is not None and match["what"]:
                states.append(State(comm_id, match["what"], number, [member], 1, stage))
            elif states is not None and several and not match["says"]:
                several.members.append(member)
            elif states is None and mismatch and not match["what"]:
                launched = int(match["count"] or 0) if match["says"] else usual
                mismatch.members.append(replace(member, launched=launched))
            elif kind == "INCOMPLETE" and comm_id and pid and not match["says"]:
                answer.lost.append(Lost(match["host"], pid, comm_id, member.rank, line=number))
    _name_members(answer, text, group_of)
    return answer


def _name_members(answer: Answer, text: str, group_of: Mapping[str, str]) -> None:
    answer.pids.update(map(int, _PID.findall(text)))
    for mismatch in answer.mismatches:
        answer.members.setdefault(mismatch.comm_id, []).extend(mismatch.members)
    for missing in answer.lost:
        if missing.comm_id is not None and missing.rank is not None:
            answer.members.setdefault(missing.comm_id, []).append(Member(missing.rank, missing.host, missing.pid))
    # By the table of groups; without one that which is the only one.
    sizes = {match[1]: int(match[2]) for match in _GROUP.finditer(text)}
    answer.most = max(sizes.values(), default=0)
    whole = [comm_id for comm_id, group in group_of.items() if sizes.get(group) == answer.most >= len(answer.pids)]
    answer.whole = whole if sizes else list(group_of) if len(group_of) == 1 else []


KIND = Kind("ras", "RAS answer", _is_answer, read)
