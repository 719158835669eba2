"""Host lists, as Slurm, LSF, MPI and their tools write them: ``gpu-a[17-18],gpu-b3``, ``gpu-a17:8,gpu-a18:8``.

One expression in brackets stands for many hosts. It is replaced by the list of what stands for those, so that it still
says how many there are and which ones, and no name can be put together from what is left of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from math import prod

EXPRESSION = r"[A-Za-z][\w.-]{0,100}+(?:\[\w[\w,/-]{0,2000}+\][\w.-]{0,60}+){1,4}+"
"""One expression in brackets: ``rack[1-2]-gpu[01-16,20]-ib``. The text before it must not be part of it."""
_WHOLE = re.compile(rf"{EXPRESSION}(?![\[])", re.ASCII)
_FOUND = re.compile(rf"(?<![\w.-]){EXPRESSION}".encode(), re.ASCII)
SIGN = re.compile(r"[A-Za-z-]\[\w|\w\[\w{1,40}+[-,]")
"""In every text with an expression; ``0[0]`` is none. To look for it alone takes a fraction of the time."""
_SIGN = re.compile(SIGN.pattern.encode())
_LIST = rb"[A-Za-z][\w.,:\[\]/-]{0,4000}+"
_STATED = re.compile(
    rb"(?:(?<![A-Za-z])(?i:node_?list|host_?list|nodenames?|mcpu_hosts|(?<=_)hosts)[\"']?\s?[=:]\s{0,2}"
    rb"|(?<!\S)(?:-host|--?hosts|--host|--node-?list|--host-?list)[ =]{1,2}"
    rb"|\b(?i:nodes?|hosts?|on)[ =:]{1,2}(?=[\w.-]{1,100}+\[))"
    rb"(?:\"([^\"\n]{1,4000}+)\"|'([^'\n]{1,4000}+)'|(" + _LIST + rb"))"
)
"""What a key, an option or a word in front says to be hosts."""
_COMMAND = re.compile(
    rb"\b(?:mpirun|mpiexec(?:\.hydra)?|prterun|orterun|horovodrun|srun|sbatch|salloc|pdsh|clush|scontrol)\s([^\n]{1,8000}+)"
)
_SHORT_OPTION = re.compile(rb"(?<!\S)-[Hw][ =]{0,2}[\"']?(" + _LIST + rb")")
_HOSTFILE = re.compile(rb"^[ \t]*([A-Za-z][\w.-]{1,250}+)[ \t]+(?:slots|max[_-]slots|sockets)[ \t]?=", re.MULTILINE)
"""``gpu-a17 slots=8``."""
_ITEM = re.compile(r"(?:\[[^\]]*\]|[^,\s\[\]])+")
"""One of a list: the commas within brackets part numbers."""
_RANGE = re.compile(r"([A-Za-z]*)(\d+)-([A-Za-z]*)(\d+)(?:/(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MOST = 20_000
"""Hosts of one expression; no job has more, and a number may be anything."""


def stated(text: bytes) -> Iterator[bytes]:
    """The lists that a text says to be hosts."""
    for match in _STATED.finditer(text):
        yield match[1] or match[2] or match[3]
    for command in _COMMAND.finditer(text):
        yield from (match[1] for match in _SHORT_OPTION.finditer(command[1]))
    yield from (match[1] for match in _HOSTFILE.finditer(text))


def expressions(text: bytes) -> Iterator[bytes]:
    """Return what a text holds that may be hosts in brackets."""
    return (match[0] for match in _FOUND.finditer(text)) if _SIGN.search(text) else iter(())


def hosts(listed: str) -> Iterator[str]:
    """The hosts of a list, without the numbers of slots behind them."""
    for item in _ITEM.findall(listed):
        name = item.partition(":")[0]
        if "[" in name:
            yield from expanded(name)
        elif name[:1].isalpha() and len(name) > 1:
            yield name


def expanded(expression: str) -> list[str]:
    """The hosts that an expression stands for; itself where it is none, or stands for more than any job has."""
    if not _WHOLE.fullmatch(expression):
        return [expression]
    texts, choices = expression.replace("]", "[").split("[")[::2], []
    for inner in expression.replace("]", "[").split("[")[1::2]:
        parts = [_span(part) for part in inner.split(",")]
        if sum(map(len, parts)) > _MOST:
            return [expression]
        choices.append([*itertools.chain.from_iterable(parts)])
    if prod(map(len, choices)) > _MOST:
        return [expression]
    ends = texts[1:]
    return [
        texts[0] + "".join(number + end for number, end in zip(chosen, ends, strict=True))
        for chosen in itertools.product(*choices)
    ]


class _Span:
    """The numbers from one to another, as they are written."""

    def __init__(self, front: str, first: str, last: str, step: int) -> None:
        self._front = front
        self._width = len(first) if first.startswith("0") else 0
        self._numbers = range(int(first), int(last) + 1, step)

    def __len__(self) -> int:
        return min(len(self._numbers), _MOST + 1)

    def __iter__(self) -> Iterator[str]:
        return (f"{self._front}{number:0{self._width}}" for number in self._numbers)


def _span(part: str) -> _Span | list[str]:
    """Return what ``017-020`` or ``a1-a3`` stands for."""
    match = _RANGE.fullmatch(part)
    if match is None or match[3] not in ("", match[1]) or max(len(match[2]), len(match[4])) > 9:
        return [part]
    return _Span(match[1], match[2], match[4], int(match[5] or 1) or 1)


def folded(names: Iterable[str]) -> str:
    """A list of names, shorter: ``host-[1-3,7],vm``."""
    matches = {name: _NUMBERED.fullmatch(name) for name in names}
    parted = [(match[1], match[2]) for match in matches.values() if match]
    padded = {(front, len(digits)) for front, digits in parted if digits.startswith("0")}
    fronts: dict[tuple[str, int], list[int]] = {}
    for front, digits in parted:
        width = len(digits) if (front, len(digits)) in padded else 0
        fronts.setdefault((front, width), []).append(int(digits))
    alone = [name for name, match in matches.items() if match is None]
    return ",".join([*itertools.starmap(_in_brackets, fronts.items()), *alone])


def _in_brackets(front: tuple[str, int], numbers: list[int]) -> str:
    name, width = front
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    texts = ["-".join(f"{number:0{width}}" for number in span) for span in spans]
    return f"{name}[{','.join(texts)}]" if len(numbers) > 1 else f"{name}{texts[0]}"
