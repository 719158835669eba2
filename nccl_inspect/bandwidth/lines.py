"""Keeps the lines of a log that may be part of a result table, or state the speed of a training step.

They are read when the whole log is in (:mod:`nccl_inspect.bandwidth.tables`), so that pieces of a log can be read apart
and put together. Logs are mostly lines of NCCL: except near their beginning, only blocks with a character that tables
consist of are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TYPES = r"(?:b?float(?:16|32|64)?|half|double|u?int(?:8|32|64)|f(?:p|loat)?8_?e\dm\d\w*)"
"""Names of types in nccl-tests and rccl-tests."""
_RARE = (b"#", b"|", b"%", b'"coll')
_OF_NCCL = re.compile(rb" NCCL (?:INFO|WARN|TRACE|CALL) ")
_KEPT = re.compile(
    rb"[Bb][Uu][Ss]_?[Bb][Ww]|BW average|[Bb]us bandwidth|bandwidth \(GB/s\)|Matrix \(GB/s\)|Out of bounds|_perf\b"
    rb"|RDMA_\w+ .{0,20}BW Test|nThread \d+ nGpus|Rank +\d+ .{0,30}Pid +\d+ on |Performance of \w+ on \d+ devices"
    rb"|average bandwidth of \w+|^Running \w+\.|\d +" + TYPES.encode() + rb" "  # a row of nccl-tests
    rb"|^ *(?:sum|prod|min|max|avg|all|none|mulsum)?[\d .eE+/NA-]+\r?$"  # the rest of one, a matrix, perftest
    rb"|\| *[\d.]+[KMGT]?i?B \|| \d+x\d+ +[\d.]+ [un\xc2\xb5m]*s "  # all_reduce_bench, ds_bench
    rb"|\"coll_perf\""
    rb"|elapsed time per iteration|tokens?(?:[_ ]per[_ ]sec|/s)|[\d.]+(?:it/s|s/it)\b|samples[_ ]per[_ ]sec"
    rb"|\bstep[_ ]time|train_runtime|\btps: "
)
_WIDEST = 4096
"""Bytes of a line that are kept; a document in JSON is one line."""


def kept(text: bytes, is_begin: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that may belong to results, with their places from 0.

    Args:
        text: the lines, with a line end between each two.
        is_begin: whether it is near the beginning of its source, where any line may be such a one.
    """
    if not (is_begin or any(sign in text for sign in _RARE)):
        return
    for place, line in enumerate(text.split(b"\n")):
        is_document = line.startswith(b"{") and b'"bus_bw"' in line
        if is_document or (_KEPT.search(line) and not _OF_NCCL.search(line)):
            yield place, line if is_document else line[:_WIDEST]
