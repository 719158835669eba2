"""Keeps the lines of a log that may be part of a result table, or state the speed of a training step.

They are read when the whole log is in (:mod:`nccl_inspect.bandwidth.tables`), so that pieces of a log can be read apart
and put together. Each line is looked at near the beginning of a source; further on, only those near the head of a
table, for logs are long and tables are rare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TYPES = r"(?:b?float(?:16|32|64)?|half|double|u?int(?:8|32|64)|f(?:p|loat)?8_?e\dm\d\w*)"
"""Names of types in nccl-tests and rccl-tests."""
_HEAD, _RARE = b"busbw", (b"#", b"|", b"{")
"""What tables have, and characters, one of which is there with it and which most blocks of a log lack."""
_WORDS = (
    *(b"busbw", b"BusBW", b"bus_bw", b"Bus bandwidth", b"bus bandwidth", b"BW average", b"BW Test", b"GB/s", b"GBps"),
    *(b"_perf", b"nThread", b" Pid ", b"Performance of ", b"average bandwidth", b"Running ", b'"coll_perf"'),
    *(b"float", b"half ", b"double ", b"int8 ", b"int32 ", b"int64 ", b"e4m3", b"e5m2", b" ms ", b" us ", b" s "),
    *(
        b"per iteration",
        b"tokens",
        b"it/s",
        b"s/it",
        b"samples",
        b"step_time",
        b"step time",
        b"train_runtime",
        b"tps: ",
        b'"bus_bw"',
    ),
)
"""One of these is in each line that is kept, but for those of numbers only."""
_KEPT = re.compile(
    rb"[Bb][Uu][Ss]_?[Bb][Ww]|BW average|[Bb]us bandwidth|bandwidth \(GB/s\)|Matrix \(GB/s\)|_perf(?![a-z])"
    rb"|RDMA_\w+ .{0,20}BW Test|nThread \d+ nGpus|Rank +\d+ .{0,30}Pid +\d+ on |Performance of \w+ on \d+ devices"
    rb"|average bandwidth of \w+|^Running \w+\.|\d +" + TYPES.encode() + rb" "  # a row of nccl-tests
    rb"|\| *[\d.]+[KMGT]?i?B \|| \d+x\d+ +[\d.]+ [un\xc2\xb5m]*s "  # all_reduce_bench, ds_bench
    rb"|\"coll_perf\""
    rb"|elapsed time per iteration|tokens?(?:[_ ]per[_ ]sec|/s)|[\d.]+(?:it/s|s/it)\b|samples[_ ]per[_ ]sec"
    rb"|^\{.*\"bus_bw\"|\bstep[_ ]time|train_runtime|\btps: "
)
_NUMBERS = re.compile(rb" *(?:(?:sum|prod|min|max|avg|all|none|mulsum) )?[\d .eE+/NA-]+\r?$")
"""The rest of a wrapped row, a matrix, a row of perftest."""
_OF_NCCL = (b" NCCL INFO ", b" NCCL WARN ", b" NCCL TRACE ", b" NCCL CALL ")
_WIDEST = 4096
"""Bytes of a line that are kept; a document in JSON is one line."""
NEAR = 1 << 17
"""Bytes of a block that are looked at from its beginning, and to both sides of the head of a table."""


def kept(text: bytes, is_begin: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that may belong to results, with their places from 0.

    Args:
        text: the lines, with a line end between each two.
        is_begin: whether the block begins its source, or follows a table.
    """
    place = after = 0
    for begin, end in _spans(text, is_begin):
        place += text.count(b"\n", after, begin)
        for line in text[begin:end].split(b"\n"):
            if _is_kept(line):
                yield place, line if line.startswith(b"{") else line[:_WIDEST]
            place += 1
        after = end + 1


def _spans(text: bytes, is_begin: bool) -> Iterator[tuple[int, int]]:
    """Yield the parts of a block that are looked at, as whole lines."""
    end = _line_end(text, NEAR) if is_begin else -1
    if is_begin:
        yield 0, end
    if not any(sign in text for sign in _RARE):
        return
    while (at := text.find(_HEAD, end + 1)) >= 0:
        begin = max(end + 1, text.rfind(b"\n", 0, max(0, at - NEAR)) + 1)
        end = _line_end(text, at + NEAR)
        yield begin, end


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return end if end >= 0 else len(text)


def goes_on(text: bytes) -> bool:
    """Whether a table near the end of a block may continue in the next one."""
    return text.find(_HEAD, max(0, len(text) - NEAR)) >= 0


def _is_kept(line: bytes) -> bool:
    if any(map(line.__contains__, _OF_NCCL)):
        return False
    if any(map(line.__contains__, _WORDS)) and _KEPT.search(line):
        return True
    return bool(line) and _NUMBERS.match(line) is not None
