"""Reads made-up logs block by block and line by line, and compares: ``tools/fuzz_blocks.py --seconds 3600 --seed 1``.

A log is that of a capture, with what happens to logs: lines in envelopes, times in front, lines torn and glued, odd
bytes, other numbers, repeats, lines of other programs, and block borders anywhere. It runs on one core: start one for
each core, each with its own seed. The first difference is printed as the smallest log that shows it.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import lzma
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from nccl_inspect.grammar import engine
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model.fold import Burst, Fold, Note, ProcessLog
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.report import Style
from nccl_inspect.report import json as report
from nccl_inspect.scanning.bulk import BulkScanner, rejoin_block
from nccl_inspect.scanning.found import Counts, Found

SAMPLES = Path(__file__).parent.parent / "sample_logs"
Blocks = list[list[bytes]]
_MOST = 400
"""Lines of a log."""


def difference(blocks: Blocks) -> str | None:
    """Return what reading blocks finds otherwise than reading line by line; None when all is the same."""
    at_once, by_line = fold_log(blocks), fold_log(blocks, by_line=True)
    found = reading_difference(at_once, by_line)
    if found is None and (mine := document(at_once)) != (others := document(by_line)):
        found = f"document:\n{_first_difference(mine, others)}"
    return found


def reading_difference(at_once: Fold, by_line: Fold) -> str | None:
    """Return what was read otherwise; None when all is the same."""
    for name, mine, others in zip(_NAMES, state(at_once), state(by_line), strict=True):
        if mine != others:
            return f"{name}:\n{_first_difference(mine, others)}"
    return None


def document(fold: Fold) -> Any:
    """Return all that is said of a log."""
    return json.loads("".join(report.pieces(Judge(Options())(fold), Style())))


class LineReader(Reader):
    """Reads each line by itself."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._scanner = _LineScanner(engine.load_grammar(), self.fold.is_countable, self.fold.connects)


class _LineScanner(BulkScanner):
    def read(self, lines: Lines, counts: Counts) -> Found:
        if not counts.lines:
            lines = rejoin_block(lines, self._grammar)
        return self._by_line(lines, counts)


def fold_log(blocks: Blocks, by_line: bool = False) -> Fold:
    """Return the fold of a log.

    Args:
        blocks: its lines.
        by_line: whether each is read by itself.
    """
    reader = LineReader() if by_line else Reader()
    reader.fold.start("job.log")
    for block in blocks:
        reader.feed(Lines(block, sum(map(len, block)) + len(block)))
    return reader.fold


_NAMES = ("processes", "unknown lines", "counts", "last lines", "productions", "envelopes", "exceptions")


def state(fold: Fold) -> tuple[Any, ...]:
    """Return all that was read, in a form that compares."""
    source = fold.sources[0]
    counts = {own.name: getattr(source.counts, own.name) for own in fields(source.counts) if own.name != "tail"}
    return (
        [(process, *_log(log)) for process, log in fold.processes.items()],
        [(text, *_note(note)) for text, note in fold.unrecognised.items()],
        counts,
        list(source.counts.tail),
        sorted(fold.productions),
        fold.known.wrapped,
        list(source.raised),
    )


def _log(log: ProcessLog) -> tuple[Any, ...]:
    """Return what a process printed."""
    return (
        [_step(step) for step in log.steps],
        [(key, *_note(note)) for key, note in log.notes.items()],
        log.calls,
        (log.first, log.last, log.opening, log.closing.origin, log.long_notes, log.bootstraps),
        [(tid, _step(burst)) for tid, burst in sorted(log.open.items())],
        [(tid, burst and _step(burst)) for tid, burst in sorted(log.begun.items())],
    )


def _note(note: Note) -> tuple[Any, ...]:
    return note.event, note.printed.origin, note.level, note.message, note.place, note.last, note.count, note.places


def _step(step: Any) -> Any:
    if not isinstance(step, Burst):
        return step.place, step.printed.origin, step.printed.time, step.event
    edges = [
        (key, one.channel, one.message, one.printed.origin, one.place, one.channels, one.lines, one.level)
        for key, one in step.edges.items()
    ]
    return step.key, step.place, step.printed.origin, step.printed.time, edges


def _first_difference(mine: Any, others: Any) -> str:
    """Return the innermost difference."""
    while isinstance(mine, list | tuple | dict) and type(mine) is type(others) and len(mine) == len(others):
        if isinstance(mine, dict) and isinstance(others, dict):
            mine, others = list(mine.items()), list(others.items())
        unequal = [pair for pair in zip(mine, others, strict=True) if pair[0] != pair[1]]
        if not unequal:
            break
        mine, others = unequal[0]
    return f"  blocks: {str(mine)[:2000]}\n  lines:  {str(others)[:2000]}"


_OPENED = {".gz": gzip.decompress, ".xz": lzma.decompress}


@cache
def captures() -> tuple[tuple[bytes, ...], ...]:
    """Return the lines of the captures."""
    files = sorted(file for file in SAMPLES.rglob("*.log*") if file.is_file())
    contents = (_OPENED.get(file.suffix, bytes)(file.read_bytes()) for file in files)
    return tuple(tuple(content.split(b"\n")) for content in contents)


def log(chance: random.Random) -> Blocks:
    """Return a made-up log in blocks."""
    lines = list(chance.choice(captures()))
    start = chance.randrange(max(1, len(lines) - _MOST))
    lines = lines[start : start + chance.randrange(2, _MOST)]
    if chance.random() < 0.3:
        lines = _mix_logs(lines, list(chance.choice(captures()))[: chance.randrange(1, _MOST)], chance)
    for change in chance.sample(CHANGES, chance.choice((0, 1, 1, 2, 3))):
        lines = change(lines, chance)
    lines = [line.replace(b"\n", b"") for line in lines] or [b""]
    cuts = sorted(chance.randrange(len(lines) + 1) for _ in range(chance.choice((0, 1, 2, 4))))
    blocks = [lines[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(lines)])]
    return [block for block in blocks if block]


def _mix_logs(lines: list[bytes], others: list[bytes], chance: random.Random) -> list[bytes]:
    """Return two logs in one."""
    places = sorted(chance.choices(range(len(lines) + 1), k=len(others)))
    for place, line in zip(reversed(places), reversed(others), strict=True):
        lines.insert(place, line)
    return lines


def _times(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return a time before each line, in one of several forms."""
    form = chance.choice(
        (b"2026-11-20T%02d:%02d:%02d.%09dZ ", b"[2026-11-20 %02d:%02d:%02d.%06d] ", b"%02d:%02d:%02d,%03d ")
    )
    begin, step = chance.randrange(86_000), chance.choice((0, 1, 7, 100))
    clock = (begin + index * step // 7 for index in range(len(lines)))
    times = ((at // 3600 % 24, at // 60 % 60, at % 60, chance.randrange(1000)) for at in clock)
    return [form % time + line for time, line in zip(times, lines, strict=True)]


def _labels(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return what a launcher puts before each line."""
    form = chance.choice(
        (b"[pod/llama-%d] ", b"[1,%d]<stdout>:", b"%d: ", b"(worker pid=%d) ", b"node-%d | ", b"[rank%d]: ")
    )
    many = chance.choice((1, 4, 1000))
    return [form % chance.randrange(many) + line if chance.random() < 0.95 else line for line in lines]


def _partials(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return what a container runtime writes of each line, some of them in parts."""
    front = b"2026-11-20T23:13:07.071868123Z stdout "
    found = []
    for line in lines:
        place = chance.randrange(len(line) + 1)
        is_cut = chance.random() < 0.03
        found += [front + b"P " + line[:place], front + b"F " + line[place:]] if is_cut else [front + b"F " + line]
    return found


def objects(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return what a collector writes of each line in JSON."""
    forms = (
        b'{"log":"%b","stream":"%b","time":"%b"}',
        b'{"time":"%b","log":"%b","kubernetes":{"pod_name":"%b"}}',
        b'{"severity":"INFO","textPayload":"%b","resource":{"type":"%b"},"timestamp":"%b"}',
        b'{"@timestamp": "%b", "message": "%b", "fields": {"host": "%b"}}',
        b'{"text":"%b","tag":"%b","at":"%b"},',
        b'{"log":"%b","stream":"stderr","attrs":{"name":"%b","tag":"a"},"time":"%b"}',
    )
    form = chance.choice(forms)
    is_time_first, end = b"time" in form[:12], chance.choice((b"\\n", b"\\n", b"", b"\\r\\n"))
    ends = chance.choice(((b"Z",), (b"+01:00", b"Z")))
    pods = [b"llama-%d" % number for number in range(chance.choice((3, 12, 200)))]
    words = chance.choice(((b"stdout",), (b"stdout", b"", b"7"), pods))
    found = []
    for number, line in enumerate(lines):
        second, fraction = number // 50 % 60, b".%d" % chance.randrange(10**6) if chance.random() < 0.9 else b""
        time = b"2026-11-20T23:13:%02d%b%b" % (second, fraction, chance.choice(ends))
        text = json.dumps(line.decode("utf-8", "surrogateescape"), ensure_ascii=False)[1:-1]
        values = text.encode("utf-8", "surrogateescape") + end, chance.choice(words), time
        record = form % ((time, *values[:2]) if is_time_first else values)
        found.append(record if chance.random() < 0.98 else line)
    return found


def _bytes(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return other bytes here and there."""
    found = []
    for line in lines:
        if line and chance.random() < 0.1:
            place = chance.randrange(len(line))
            some = bytes(chance.choices(b"\x00\x1b\r\xc2\xa0\xff\t -0159afX[]:/\\", k=chance.randrange(3)))
            line = line[:place] + some + line[place + chance.randrange(2) :]
        found.append(line)
    return found


def _letters(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return letters of several bytes in a word, wherever it occurs."""
    words = sorted({word for line in lines for word in re.findall(rb"[A-Za-z]{2,}", line)})
    if not words:
        return lines
    word = chance.choice(words)
    place = chance.randrange(len(word))
    other = word[:place] + chance.choice(("é", "日本", "\u00a0", "🖥")).encode() + word[place:]
    return [line.replace(word, other) for line in lines]


def _line_ends(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return line ends of Windows, of all lines or of those of some programs."""
    share = chance.choice((1, 0.5))
    return [line + b"\r" if chance.random() < share else line for line in lines]


def _ranks(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return the same in a larger job."""
    first = chance.choice((1000, 999_990, 10**8, 2**31 - 2))
    return [re.sub(rb"(\d{1,9})(?=\[)", lambda found: b"%d" % (int(found[1]) + first), line) for line in lines]


def _numbers(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return other numbers, of which some have other widths or zeros in front."""

    def replace_some(found: re.Match[bytes]) -> bytes:
        if chance.random() > 0.05:
            return found[0]
        return b"%0*d" % (chance.choice((0, len(found[0]))), chance.randrange(10 ** chance.choice((1, 2, 4, 8))))

    return [re.sub(rb"\d+", replace_some, line) for line in lines]


def _tear_lines(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return lines cut, or run together."""
    found: list[bytes] = []
    for line in lines:
        if chance.random() < 0.05 and found:
            found[-1] += line[: chance.randrange(len(line) + 1)]
        else:
            found.append(line[: chance.randrange(len(line) + 1)] if chance.random() < 0.05 else line)
    return found


def _repeats(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return some lines again and again."""
    place = chance.randrange(len(lines) + 1)
    again = [*lines[place : place + chance.randrange(1, 9)], *chance.choice(((), (b"",), (b"step 1 loss 2",)))]
    return lines[:place] + again * chance.randrange(1, 120) + lines[place:]


def _reorder_lines(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return the same lines in another order, as threads print them."""
    found = list(lines)
    for _ in range(len(found) // 4):
        one, other = chance.randrange(len(found)), chance.randrange(len(found))
        found[one], found[other] = found[other], found[one]
    return found


def _channels(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Return more connection lines: for other channels, ranks and ways."""
    found = []
    ways = (
        b"P2P/CUMEM",
        b"P2P/CUMEM/read",
        b"SHM/direct/direct",
        b"NET/IB/1/GDRDMA",
        b"NET/IBext_v8/0(3)/GDRDMA(PCI)/Shared",
    )
    for line in lines:
        found.append(line)
        head, mark, _ = line.partition(b" NCCL INFO ")
        if mark and chance.random() < 0.3:
            one, other = chance.randrange(12), chance.randrange(12)
            direction = chance.choice((b"", b" [send]", b" [receive]"))
            for channel in range(chance.randrange(5), chance.choice((6, 12, 70))):
                text = b"Channel %02d/%d : %d[%d] -> %d[%x]%b via %b"
                values = channel, chance.randrange(2), one, one % 8, other, other % 8, direction, chance.choice(ways)
                found.append(head + mark + text % values)
    return found


Change = Callable[[list[bytes], random.Random], list[bytes]]
CHANGES: tuple[Change, ...] = (
    *(
        _times,
        _labels,
        _partials,
        objects,
        _bytes,
        _letters,
        _line_ends,
        _ranks,
        _numbers,
        _tear_lines,
        _repeats,
        _reorder_lines,
    ),
    *(_channels, _channels),
)


def find_smallest(blocks: Blocks) -> Blocks:
    """Return the smallest part of a log that still shows a difference."""
    for size in (64, 16, 4, 1):
        at = 0
        while at < sum(map(len, blocks)):
            less = _drop_lines(blocks, at, size)
            if less and difference(less):
                blocks = less
            else:
                at += size
    return blocks


def _drop_lines(blocks: Blocks, begin: int, size: int) -> Blocks:
    """Return a log without some of its lines; blocks stay apart."""
    found, at = [], 0
    for block in blocks:
        found.append([line for index, line in enumerate(block, at) if not begin <= index < begin + size])
        at += len(block)
    return [block for block in found if block]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make logs until the time is over, or one shows a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.seconds
    number = 0
    while time.monotonic() < until:
        blocks = log(random.Random(f"{options.seed}/{number}"))
        try:
            what = difference(blocks)
        except Exception as error:  # what breaks is a difference, too
            what = f"{type(error).__name__}: {error}"
            print(*map(repr, blocks), sep="\n")
        if what:
            found = find_smallest(blocks)
            print(f"seed {options.seed}, log {number}:")
            for block in found:
                print(b"\n".join(block).decode("utf-8", "backslashreplace"), end="\n---- end of block\n")
            print(difference(found) or what)
            sys.exit(1)
        number += 1
    print(f"{number} logs, no difference")


if __name__ == "__main__":
    main()
