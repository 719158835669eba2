"""Takes the prefix of an NCCL line apart: ``[time ]host:pid:tid [dev][ file:line[ (func)]]`` before ``NCCL LEVEL``.

Source: src/debug.cc of all releases. The device is that of the calling thread and absent from CALL lines; WARN has a
location (since 2.30.7 with the function), for which plugins pass anything, a C++ signature with blanks included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nccl_inspect.event.base import NO_HOST, Process
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import NOTHING, Stated
from nccl_inspect.util.levels import ANY, LEVELS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode, encode

MARK = b" NCCL "  # what stands between a prefix and the level
FATAL = b" [FATAL ERROR]:"
"""What RCCL prints instead of name and level before an error that ends the process (2.27 and later)."""
_FATAL = compile_later(rb"^(.*?\[-?\d{1,10}\]" + re.escape(FATAL) + rb") (.*)", re.DOTALL)
_SPLIT = compile_later(rb"^(.*?) NCCL (" + ANY + rb")(?: |$)", re.DOTALL)

_TIME = rb"(?:(?P<time>\[(?=\d{1,4}[/:-]|\d{9,11}[.\]])\d[\d/:., TZ+-]{5,40}\]|\d{9,11}(?:\.\d{1,9})?) )?"
_USUAL_TIME = compile_later(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\]")
"""As NCCL prints it, unless another form is set; others mostly come from what collects the log."""
_HEAD = (
    _TIME + rb"(?P<host>(?!MESSAGE=)[A-Za-z0-9_][^\s:\[\]<>(){},\"'|\\\x80-\xff]*):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    rb"(?: \[(?P<device>-?\d{1,10})\](?P<location> .+(?::|\w, )\d{1,7}(?: \([^()]*\))?"
    rb"| \[?[\w/]{1,80}\.(?:cc|cu|h)(?::\d{1,7})?(?:\]\([^()\s]*\))?)?)?"
)  # those who pass a line on leave out the number of the line, or make a link of the file
_CORE = re.compile(_HEAD, re.DOTALL)
_LED = compile_later(rb"(?P<lead>.{0,500}?(?:[\s>|\]]|:(?!\d)))" + _HEAD, re.DOTALL)
"""Anything that an unknown launcher may have put in front, as long as it is set apart from the host."""
_NUMBER = rb"\d{1,10}|[Xx]{1,10}|[*#?]{1,10}|<\w{1,10}>|\{\w{1,10}\}|pid|tid|PID|TID|"
_PLACEHOLDER = rb"<\w[\w.-]{0,63}>|\{{1,2}\w[\w.-]{0,63}\}{1,2}|\[[A-Za-z][\w.-]{0,63}\]"
_MASKED = compile_later(
    _TIME
    + rb"(?:(?P<host>[A-Za-z0-9_][\w.-]*|[*#?]{1,64}|"
    + _PLACEHOLDER
    + rb"|):{1,2}(?P<pid>"
    + _NUMBER
    + rb"):(?P<tid>"
    rb"" + _NUMBER + rb") |(?P<alone>(?=[\d._-]*[A-Za-z])[A-Za-z0-9_][\w.-]*)(?::[Xx*#?]{1,10})? )?"
    rb"\[(?P<device>-?\d{1,10})\](?P<location> [\w./+-]+:\d{1,7}(?: \([^()]*\))?)?"
)
"""A prefix whose host or numbers were taken out before the log was passed on, or that has the device only.

A host that stands ``alone`` has a letter: a number is what is left of others.
"""
_PLACE = compile_later(
    rb"(?:/?[a-z_][\w/]{0,120}\.(?:cc|cpp|cu|c|h):\d{1,7}(?: \([^()]{1,200}\))?"
    rb"|[a-z]{2,40}_\w{2,80}:\d{1,7}|[a-z]\w{1,40} [a-z]\w{1,80}\([^()]{0,200}\):\d{1,7})"
)
"""What is left where everything before the place in NCCL's source was taken out: ``misc/socket.cc:71``.

Plugins print the function instead: ``find_ofi_provider:543``, ``tcpxResult_t tcpxCommProgress(tcpxComm*):1231``.
"""
_NO_HOST = compile_later(
    rb"[Xx*#?]*|(?i:(?:my|your|the)?[_-]?(?:host|hostname|host[_-]name|node|nodename|node[_-]name|server|machine|name|pod)|"
    rb"redacted|masked|removed|hidden|censored|private|anonymi[sz]ed|hostname[_-]redacted|redacted[_-](?:host|hostname|name))"
)  # what stands for every host alike; ``<node-A>`` stands for one
_PRINTER = re.compile(rb"(?<![\s\[(T]\d\d):\d{1,10}:\d{1,10} \[-?\d{1,10}\]")
"""What every prefix holds once, twice where a torn line was run together with another; no time of the day."""
_TWICE = rb":\d{1,10}:\d{1,10} \[-?\d{1,10}\] "


class Origin(NamedTuple):
    """Holds who printed a line."""

    head: bytes  # the line up to ``NCCL``, as it stands: with the message it is the line again
    process: Process
    tid: int
    device: int | None
    time: str | None = None
    location: str | None = None
    label: str | None = None
    rank: int | None = None  # the rank that an envelope states
    wrapped: bool = False  # whether the line stood in an envelope
    lead: bytes = b""  # the text before it, if that is not a known envelope

    @property
    def host(self) -> str | None:
        """Return the host as the line names it; under Kubernetes that is the pod. None where it was taken out."""
        return None if is_masked(self.process) else self.process[0]

    @property
    def pid(self) -> int | None:
        """Return the process id; None where it was taken out."""
        return None if self.process[1] < 0 else self.process[1]

    @property
    def origin(self) -> Origin:
        """Return this: of a line with a time of its own it is made when somebody asks."""
        return self


NOBODY = Origin(b"", Process("", 0), 0, None)
"""The origin of a bare line, such as the version line of NCCL 2.21 and before."""


def split(line: bytes) -> tuple[bytes, bytes] | None:
    """Return (head, level and message); None for a line with neither ``NCCL LEVEL`` nor RCCL's mark of an error."""
    at = line.find(MARK)
    if at < 0:
        match = _FATAL.match(line) if FATAL in line else None
        return (match[1], b"WARN " + match[2]) if match else None
    rest = line[at + 6 :]
    if rest[:5] in BEGINNINGS:
        return line[:at], rest
    match = _SPLIT.match(line)
    return (match[1], line[match.start(2) :]) if match else None


def join_line(head: bytes, level: str, message: str) -> str:
    """Return the line with this head, as it stood."""
    mark = "" if head.endswith(FATAL) else f" NCCL {level}"
    return f"{decode(head)}{mark} {message}" if head else message


BEGINNINGS = frozenset(level[:5].ljust(5) if len(level) < 5 else level for level in LEVELS)
"""The first five bytes of level and message."""


def is_masked(process: Process) -> bool:
    """Return whether the host of a process was taken out of the log: then its name is made up."""
    return process[0].startswith(NO_HOST)


def parse(head: bytes) -> Origin | None:
    """Return the origin that a head states, or None when it is damaged or the beginning of a whole-line envelope."""
    rest, stated = head.removesuffix(FATAL), NOTHING
    seen = [rest]
    for _ in range(envelopes.MAX_DEPTH):
        if match := _CORE.fullmatch(rest):
            return _origin(head, match, stated)
        if (match := _MASKED.fullmatch(rest)) and not _PRINTER.search(match["location"] or b""):
            groups = match.groupdict()
            alone = groups.pop("alone")  # a host without the numbers of process and thread
            return _read_masked_origin(head, stated, **{**groups, "host": groups["host"] or alone})
        if _PLACE.fullmatch(rest):
            return _read_masked_origin(head, stated, location=b" " + rest)
        layer = envelopes.peel(rest + b" ")
        if layer is None or layer.stated.partial:
            break
        stated = layer.stated.add_outer(stated)
        if layer.text == b"":
            return _read_masked_origin(head, stated)
        rest = layer.text[:-1]
        if not rest:
            return None
        seen.append(rest)
    else:
        return None
    if layer or any(map(envelopes.is_whole, seen)) or len(_PRINTER.findall(rest)) > 1:
        return None
    match = _LED.fullmatch(rest)
    return _origin(head, match, stated) if match else None


def _origin(head: bytes, match: re.Match[bytes], stated: Stated) -> Origin | None:
    time, host, pid, tid, device, location = match.group("time", "host", "pid", "tid", "device", "location")
    if location and len(_PRINTER.findall(match[0])) > 1:
        return None
    lead = match["lead"] if "lead" in match.re.groupindex else b""
    return Origin(
        head,
        Process(decode(host), int(pid), stated.label or ""),
        int(tid),
        None if device is None else int(device),
        decode(time).strip("[]") if time else stated.time,
        decode(location[1:].partition(b"](")[0].removeprefix(b"[")) if location else None,
        stated.label,
        stated.rank,
        len(match[0]) < len(head) or bool(lead or (time and not _USUAL_TIME.fullmatch(time))),
        head[: len(head) - len(match[0]) + len(lead)] if lead else b"",
    )


def _read_masked_origin(
    head: bytes,
    stated: Stated,
    time: bytes | None = None,
    host: bytes | None = None,
    pid: bytes | None = None,
    tid: bytes | None = None,
    device: bytes | None = None,
    location: bytes | None = None,
) -> Origin:
    """Return the origin of a line without host, process id or both: what is left keeps processes apart."""
    host = host and host.strip(b"<>{}[]")
    name = decode(host) if host and not _NO_HOST.fullmatch(host) else " ".join(_marks(stated))
    own = int(pid) if pid and pid.isdigit() else -1 if device is None else -2 - abs(int(device))
    return Origin(
        head=head,
        process=Process(name, own, stated.label or ""),
        tid=int(tid) if tid and tid.isdigit() else own,
        device=None if device is None else int(device),
        time=decode(time).strip("[]") if time else stated.time,
        location=decode(location[1:]) if location else None,
        label=stated.label,
        rank=stated.rank,
        wrapped=stated != NOTHING,
    )


def _marks(stated: Stated) -> list[str]:
    """Return the made-up name of a process whose host is not known."""
    rank = [] if stated.rank is None else [f"rank {stated.rank}"]
    return [NO_HOST, *([stated.label] if stated.label else []), *rank]


def pieces(line: bytes, origin: Origin) -> list[bytes]:
    """Return a line cut before every prefix of its own host: several lines may have been run together."""
    again = re.compile(rb"(?:\[\d[\d/:., TZ+-]{5,40}\] )?" + re.escape(encode(origin.process.host)) + _TWICE)
    starts = [match.start() for match in again.finditer(line)][1:]
    return [line[begin:end] for begin, end in zip([0, *starts], [*starts, len(line)], strict=True)]


def read_unprefixed(line: bytes) -> bytes | None:
    """Return level and message of a line that begins with ``NCCL``: its whole prefix was taken out."""
    return line[5:] if _ALONE.match(line) else None


_ALONE = compile_later(rb"NCCL (?:" + ANY + rb") ")
ALONE = _read_masked_origin(b"", NOTHING)  # the origin of such a line


def nearest(head: bytes) -> Origin | None:
    """Return who printed a message, by NCCL's prefix somewhere before it, or by a rank.

    None where several are there.
    """
    found = _ANYWHERE.findall(head)
    if len(found) > 1:
        return None
    origin = parse(b" ".join(filter(None, found[0]))) if found else None
    rank = _RANK.search(head)
    return origin or (stated_by(ALONE, Stated(rank=int(rank[1]))) if rank else ALONE)


_RANK = compile_later(rb"\[rank(\d{1,7})\]")
_ANYWHERE = compile_later(
    rb"(?<![\w.:/-])([A-Za-z0-9_][\w.-]{0,252}:\d{1,10}:\d{1,10}) ?(\[-?\d{1,10}\])(?: ([\w./+-]+:\d{1,7})(?=\W))?"
)


PREFIX_END = compile_later(rb"[\])\d:*?>] *$|^ *$")
"""The end of what precedes ``NCCL``, unless that is a sentence: as of prefixes, or half of one."""
_DIGITS = compile_later(rb"\d+")
_MAX_LEADS = 32


def learn(lead: bytes, leads: dict[bytes, re.Pattern[bytes]]) -> None:
    """Remember what precedes a prefix, whatever its numbers."""
    shape = _DIGITS.sub(b"0", lead)
    if len(leads) < _MAX_LEADS and shape not in leads:
        leads[shape] = re.compile(rb"\d+".join(map(re.escape, _DIGITS.split(lead))))


def layers(line: bytes, leads: Iterable[re.Pattern[bytes]]) -> Iterator[bytes]:
    """Yield a line without a prefix, without leading and trailing decoration: each reading in turn."""
    for layer in (*envelopes.layers(line), *(line[lead.end() :] for pattern in leads if (lead := pattern.match(line)))):
        if (shorter := envelopes.without_trailer(layer)) != layer:
            yield shorter
        yield layer


def stated_by(origin: Origin, stated: Stated) -> Origin:
    """Return the origin of a line in a whole-line envelope, with what that states."""
    fields = Stated(origin.time, origin.label, origin.rank)
    fields = stated if fields == NOTHING else fields.add_outer(stated)
    host = " ".join(_marks(fields)) if is_masked(origin.process) else origin.process.host
    process = Process(host, origin.process.pid, fields.label or "")
    return origin._replace(process=process, time=fields.time, label=fields.label, rank=fields.rank, wrapped=True)
