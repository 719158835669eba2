"""What files about machines have in common: a tool printed them, one line after the other, on one host or on several.

Each tool is an entry of ``tools.toml``. ``pdsh`` and ``clush`` put the host in front of each line;
otherwise the file name gives it (:mod:`nccl_inspect.artifacts.owner`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Any, NamedTuple

from nccl_inspect.artifacts import NotOfKindError
from nccl_inspect.util.records import Frozen, frozen

_LEAD = re.compile(  # what a terminal shows before the output: blank lines, and the command behind a prompt
    rb"[ \t\r\n]*\n|Defaulted container [^\n]*\n|(?:[^\n]{0,120}[$#%>]|\+{1,3})[ \t][^\n]{0,300}\n|\xef\xbb\xbf"
)
_MAX_LEADS = 8
_MAX_HEAD = 1 << 14
_LABEL = re.compile(rb"([A-Za-z0-9][\w.-]{0,252}): ?")
_LABELED = re.compile(r"([A-Za-z0-9][\w.-]{0,252}): ?(.*)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OF_JOB = re.compile(rb"NCCL (?:INFO|WARN|VERSION|TRACE|ABORT|ERROR|version)|ProcessGroupNCCL")


class Line(NamedTuple):
    """One line of a tool."""

    number: int
    text: str


@frozen
class Item(Frozen):
    """Holds what a tool says of one part of a machine."""

    part: str
    """What it is: ``port``, ``gid``, ``gpu``, ``nvlink``, ``module``, ``limit``, ``filesystem``, ``inodes``,
    ``provider``, ``counter`` or ``list`` (that all of a kind were listed)."""
    name: str  # such as `mlx5_0`, `0000:18:00.0`, `nvidia_peermem`
    values: Mapping[str, Any] = field(default_factory=dict)
    line: int = 1
    text: str = ""
    host: str | None = None


@frozen
class Report(Frozen):
    """Holds what one file says."""

    name: str
    items: tuple[Item, ...]


Reader = Callable[[list[Line]], Iterable[Item]]


class Tool:
    """A kind of evidence that a tool prints line by line (:class:`~nccl_inspect.artifacts.Kind`).

    Args:
        name: of the tool, by which rules ask for what it printed.
        kind: in words.
        start: how its output begins.
        items: returns what the lines of one host say.
    """

    def __init__(self, name: str, kind: str, start: bytes, items: Reader) -> None:
        self.__name__, self.KIND = name, kind
        self.START = re.compile(start)
        self._items = items

    def recognises(self, _name: str, head: bytes) -> bool:
        """Return whether a file is such an output, by its first bytes."""
        return begins(head, self.START)

    def read(self, name: str, data: bytes) -> Report:
        """Return what the lines say.

        Raises:
            NotOfKindError: the rest of the file is the log of a job.
            ValueError: nothing in it is understood.
        """
        if is_of_job(data):
            raise NotOfKindError
        by_host = _by_host(data, self.START)
        items = [replace(item, host=host) for host, lines in by_host.items() for item in self._items(lines)]
        if not items:
            raise ValueError("nothing in it is understood")
        return Report(name, tuple(items))


def begins(head: bytes, start: re.Pattern[bytes]) -> bool:
    """Return whether a file begins as a tool's output does, maybe behind a prompt or with the host in front."""
    return _beginning(head, start) is not None and not is_of_job(head)


def _beginning(data: bytes, start: re.Pattern[bytes]) -> bool | None:
    """Return whether the output has the host in front of its lines; None where it does not begin so."""
    at = 0
    for _ in range(_MAX_LEADS):
        if start.match(data, at):
            return False
        if label := _LABEL.match(data, at):  # the lines of one host may be mixed with those of others
            lines = (line for line in data[at : at + _MAX_HEAD].split(b"\n") if line.startswith(label[1] + b":"))
            if start.match(b"\n".join(line[len(label[1]) + 1 :].removeprefix(b" ") for line in lines)):
                return True
        lead = _LEAD.match(data, at)
        if lead is None:
            return None
        at = lead.end()
    return None


def sections(data: bytes, starts: Sequence[re.Pattern[bytes]]) -> list[tuple[int, bytes]]:
    """Return the outputs of several tools in one file, each with its tool and preceded by that many lines."""
    begins: list[tuple[int, int]] = []
    for place, start in enumerate(starts):
        line = re.compile(rb"^(?:" + start.pattern + rb")", start.flags | re.MULTILINE)
        begins += [(match.start(), place) for match in line.finditer(data)]
    firsts = [next(group) for _, group in groupby(sorted(begins), key=lambda begin: begin[1])]
    ends = [*(at for at, _ in firsts[1:]), len(data)]
    return [
        (place, b"\n" * data.count(b"\n", 0, at) + data[at:end]) for (at, place), end in zip(firsts, ends, strict=False)
    ]


def is_of_job(data: bytes) -> bool:
    """Return whether there are lines of NCCL or PyTorch, which no tool prints: scripts may run one first."""
    return _OF_JOB.search(data) is not None


def _by_host(data: bytes, start: re.Pattern[bytes]) -> dict[str | None, list[Line]]:
    """Return the lines by the hosts in front of them, which all lines have or none."""
    text = _ANSI.sub("", data.decode("utf-8-sig", "replace"))
    lines = [Line(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]
    if not _beginning(data, start):
        return {None: lines}
    by_host: dict[str | None, list[Line]] = {}
    for line in lines:
        if match := _LABELED.match(line.text):
            by_host.setdefault(match[1], []).append(Line(line.number, match[2]))
    return by_host


def hosts(data: bytes, start: re.Pattern[bytes]) -> set[str]:
    """Return the hosts in front of the lines of a file.

    Raises:
        NotOfKindError: the rest of the file is the log of a job.
    """
    if is_of_job(data):
        raise NotOfKindError
    return {host for host in _by_host(data, start) if host}


def number(text: str) -> float | None:
    """Return the number that a value begins with; None where it is ``N/A`` or the like."""
    return float(match[1]) if (match := re.match(r"\s*(\d+(?:\.\d+)?)", text)) else None


def pairs(lines: Iterable[Line], separator: str = ":") -> Iterator[tuple[Line, int, str, str]]:
    """Yield lines of the form ``key: value`` with their indentation; a line without a separator has an empty value."""
    for line in lines:
        text = line.text.expandtabs(8)
        key, _, value = text.partition(separator)
        if key.strip():
            yield line, len(text) - len(text.lstrip()), key.strip(), value.strip()
