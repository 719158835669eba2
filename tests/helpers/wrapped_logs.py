"""Logs in envelopes, and what must not change in one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sample_data

import nccl_inspect
from nccl_inspect.ingest.lines import prefix

LINE = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
CAPTURES = ("v2.28.9-libfabric-2node", "peer-killed", "timestamps", "rank-missing-hang")


def first_origin(line: bytes) -> prefix.Origin | None:
    found: list[prefix.Origin] = []
    scanned(line, lambda number, origin, text: found.append(origin))
    return found[0] if found else None


def scanned(line: bytes, sink: Callable[[int, prefix.Origin, object], None]) -> None:
    from nccl_inspect.grammar import engine
    from nccl_inspect.scanning.counts import Counts
    from nccl_inspect.scanning.scanner import Scanner

    Scanner(engine.shipped()).scan(line.split(b"\n"), Counts(), sink)


def summary(data: bytes) -> tuple[object, ...]:
    """What must not change when a log is wrapped."""
    job = nccl_inspect.read(data)
    return (
        [(path.src, path.dst, path.src_host, path.detail, path.scope, path.gdr, path.channels) for path in job.paths],
        sorted((finding.rule, finding.severity) for finding in job.findings),
        [(comm.id, comm.parent, comm.nranks, comm.ranks, comm.rings, comm.state) for comm in job.communicators],
        job.nccl_versions,
        (job.sources[0].nccl_lines, job.sources[0].typed_lines, job.sources[0].damaged_lines),
    )


@cache
def capture(name: str) -> tuple[bytes, ...]:
    (data,) = sample_data.contents(name)
    return tuple(data.rstrip(b"\n").split(b"\n"))


@cache
def plain(name: str) -> tuple[object, ...]:
    return summary(b"\n".join(capture(name)))
