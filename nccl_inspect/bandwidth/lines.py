"""Keeps the lines of a log that may be part of a result table, or state the speed of a training step.

They are read when the whole log is in (:mod:`nccl_inspect.bandwidth.tables`), so that pieces of a log can be read apart
and put together. Each line is looked at near the beginning and at the end of a source; between these, only those near
the head of a table, and a few of each block for the speed of a training: logs are long and tables are rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import not_

from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import read_parts, spell

TYPES = r"(?:b?float(?:16|32|64)?|half|double|u?int(?:8|32|64)|f(?:p|loat)?8_?e\dm\d\w*)"
"""Names of types in nccl-tests and rccl-tests."""
TAG = r"(?:\[[\w, ./-]{1,80}\](?:<std\w+>)?:? ?|\d{1,5}: ?|\d{4}-\d\d-\d\dT[\d:.]+\S* (?:std\w+ [FP] )?|> ){1,3}"
"""What launchers and collectors put in front of a line."""
CELLS = r"(?:(?:sum|prod|min|max|avg|all|none|mulsum) +)?{0}(?:\s+{0})*".format(r"(?:[\d.eE+/NA*-]+|-?inf|-?nan)")
"""The rest of a row, of which the beginning may be on another line."""
KEYS = (b'"bus_bw"', b'"bandwidth_matrix"')  # what a document of results in JSON has
_HEAD, _RARE = b"busbw", (b"#", b"|", b"{")
"""What tables have, and characters, one of which is there with it and which most blocks of a log lack."""
_PARTS = {name: text.replace("\n", "").encode() for name, text in read_parts(__file__, "lines.txt").items()}
_SPEED_WORDS, _WORDS = (spell(_PARTS[name]).split(";") for name in ("speed-words", "words"))
_SPEED, _KEPT = (compile_later(_PARTS[name].replace("«types»".encode(), TYPES.encode())) for name in ("speed", "kept"))
_NUMBERS = compile_later(rb"(?:" + TAG.encode() + rb")?\s*" + CELLS.encode() + rb"\s*$")
"""The rest of a wrapped row, a matrix, a row of perftest."""
_BEGUN = compile_later(rb"(?:" + TAG.encode() + rb")?\s*\d+ +\d+ +" + TYPES.encode() + rb"(?: +[a-z]+)?(?: +-?\d+)?")
"""A row that a message of NCCL interrupts."""
_OF_NCCL = compile_later(b" NCCL (?:INFO|WARN|TRACE|CALL) ")
_WIDEST = 4096  # bytes of a line that are kept; a document in JSON is one line
NEAR = 1 << 17  # bytes of a block that are looked at from its beginning, and to both sides of the head of a table
_SAMPLE = 1 << 12  # bytes of each block that are looked at for the speed of a training


def select_lines(text: bytes, is_begin: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that may belong to results, with their places from 0, all near a begin or a table."""
    place = after = 0
    for begin, end, is_sample in _spans(text, is_begin):
        place += text.count(b"\n", after, begin)
        if not is_sample:
            yield from _lines(text[begin:end], place)
        elif _SPEED.search(text, begin, end):
            yield from (found for found in _lines(text[begin:end], place) if _SPEED.search(found[1]))
        place, after = place + text.count(b"\n", begin, end) + 1, end + 1


def _lines(text: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yield what is kept of some lines; a document in JSON that spans several is one."""
    lines = text.split(b"\n")
    is_message = [_OF_NCCL.search(line) is not None and b"\r" not in line for line in lines]
    others = spell(b"\n".join(compress(lines, map(not_, is_message))))
    words, of_speed = ([word for word in some if word in others] for some in (_WORDS, _SPEED_WORDS))
    document: list[bytes] = []
    begun = 0
    has_documents = any(key in text for key in KEYS)
    for number, (line, is_of_nccl) in enumerate(zip(lines, is_message, strict=True), place):
        if is_of_nccl and not document:
            if _BEGUN.match(line):
                yield number, line[:_WIDEST]
        elif has_documents and (document or line.rstrip() == b"{"):
            begun = begun if document else number
            document.append(line)
            if line.rstrip() == b"}":
                yield begun, b" ".join(document)
                document = []
        elif b"\r" in line.rstrip(b"\r"):  # what a terminal shows of it is its last part
            parts = line.rstrip(b"\r").split(b"\r")
            part = next((part for part in reversed(parts) if is_kept(part, words, of_speed)), b"")
            yield from [(number, part[:_WIDEST])] if part else []
        elif is_kept(line, words, of_speed):
            yield number, line if line.startswith(b"{") else line[:_WIDEST]


def _spans(text: bytes, is_begin: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts of a block that are looked at, as whole lines; for speeds only where it is a sample."""
    end = -1
    if is_begin:
        is_document = text.startswith(b"{") and any(key in text for key in KEYS)
        end = len(text) if is_document else _line_end(text, NEAR)
        yield 0, end, False
    has_head = any(sign in text for sign in _RARE) and text.rfind(_HEAD, end + 1) >= 0  # in half the time of `find`
    at = text.find(_HEAD, end + 1) if has_head else -1
    if not is_begin and (at < 0 or at > NEAR + _SAMPLE):
        end = _line_end(text, _SAMPLE)
        yield 0, end, True
    while at >= 0:
        begin = max(end + 1, text.rfind(b"\n", 0, max(0, at - NEAR)) + 1)
        end = _line_end(text, at + NEAR)
        yield begin, end, False
        at = text.find(_HEAD, end + 1)


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return end if end >= 0 else len(text)


def may_continue(text: bytes) -> bool:
    """Return whether a table near the end of a block may continue in the next one."""
    return text.find(_HEAD, max(0, len(text) - NEAR)) >= 0


def is_kept(line: bytes, words: Sequence[str] = _WORDS, of_speed: Sequence[str] = _SPEED_WORDS) -> bool:
    """Return whether a line may belong to results, or state a speed; it must have one of some words."""
    if _OF_NCCL.search(line):
        return _BEGUN.match(line) is not None
    text = spell(line)
    if any(map(text.__contains__, words)) and _KEPT.search(line):
        return True
    if any(map(text.__contains__, of_speed)) and _SPEED.search(line):
        return True
    return bool(line) and _NUMBERS.match(line) is not None
