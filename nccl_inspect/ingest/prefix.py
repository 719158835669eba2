"""Takes the prefix of an NCCL line apart: ``[time ]host:pid:tid [dev][ file:line[ (func)]]`` before ``NCCL LEVEL``.

Source: src/debug.cc of all releases. The device is that of the calling thread and absent from CALL lines; WARN has a
location (since 2.30.7 with the function), for which plugins pass anything, a C++ signature with blanks included.
"""

import re
from dataclasses import dataclass

from nccl_inspect.ingest import envelopes
from nccl_inspect.records import Record
from nccl_inspect.text import decode

LEVELS = (b"INFO", b"WARN", b"TRACE", b"CALL", b"ABORT")
_SPLIT = re.compile(rb"^(.*?) NCCL (INFO|WARN|TRACE|CALL|ABORT)(?: |$)", re.DOTALL)

_TIME = rb"(?:(?P<time>\[\d[\d/:., TZ+-]{5,40}\]|\d{9,11}(?:\.\d{1,9})?) )?"
_HEAD = (
    _TIME + rb"(?P<host>[A-Za-z0-9_][^\s:\[\]<>(){}]*):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    rb"(?: \[(?P<device>-?\d{1,10})\](?P<location> .+:\d{1,7}(?: \([^()]*\))?)?)?"
)
_CORE = re.compile(_HEAD, re.DOTALL)
_LED = re.compile(rb".{0,500}?(?:[\s>|\]]|[>\]]:)" + _HEAD, re.DOTALL)
"""Anything that an unknown launcher may have put in front, as long as it is set apart from the host."""
_PRINTER = re.compile(rb":\d{1,10}:\d{1,10} \[-?\d{1,10}\]")
"""What every prefix holds once; twice where a torn line was run together with another."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Origin(Record):
    """Who printed a line."""

    head: bytes
    """The line up to ``NCCL``, as it stands: with the message it is the line again."""
    process: tuple[str, int]
    """Host and pid: what identifies a process in a log."""
    tid: int
    device: int | None
    time: str | None = None
    location: str | None = None
    label: str | None = None

    @property
    def host(self) -> str:
        """The host as the line names it; under Kubernetes that is the pod."""
        return self.process[0]


NOBODY = Origin(b"", ("", 0), 0, None)
"""The origin of a bare line, such as the version line of NCCL 2.21 and before."""


def split(line: bytes) -> tuple[bytes, bytes] | None:
    """A line as (head, level and message), or None when it holds no ``NCCL LEVEL``."""
    at = line.find(b" NCCL ")
    if at < 0:
        return None
    rest = line[at + 6 :]
    if rest[:5] in _FIRST:
        return line[:at], rest
    found = _SPLIT.match(line)
    return (found[1], line[found.start(2) :]) if found else None


_FIRST = frozenset(level[:5].ljust(5) if len(level) < 5 else level for level in LEVELS)


def parse(head: bytes) -> Origin | None:
    """The origin that a head states, or None when it is damaged."""
    rest, time, label = _unwrap(head)
    if len(_PRINTER.findall(rest)) > 1:
        return None
    found = _CORE.fullmatch(rest) or _LED.fullmatch(rest)
    if not found:
        return None
    own_time, host, pid, tid, device, location = found.groups()
    return Origin(
        head=head,
        process=(decode(host), int(pid)),
        tid=int(tid),
        device=None if device is None else int(device),
        time=decode(own_time).strip("[]") if own_time else time,
        location=decode(location[1:]) if location else None,
        label=label,
    )


def unwrapped(line: bytes) -> bytes:
    """A line without what collectors put in front of it."""
    return _unwrap(line)[0]


def _unwrap(head: bytes) -> tuple[bytes, str | None, str | None]:
    """The head without its envelopes, and the time and label that they state."""
    time = label = None
    taken = True
    while taken:
        taken = False
        for pattern in envelopes.patterns():
            if found := pattern.match(head):
                known = found.groupdict()
                time = decode(known["time"]) if known.get("time") else time
                label = decode(known["label"]) if known.get("label") else label
                head = head[found.end() :]
                taken = True
    return head, time, label
