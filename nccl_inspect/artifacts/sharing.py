"""Reads the evidence of thousands of ranks in several processes: a dump of 2,000 calls takes some 20 ms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nccl_inspect import artifacts
from nccl_inspect.artifacts import Kind
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.partition import processors
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.util import processes

_MOST = 8
"""Processes: what they find is put together in one."""


def read(files_of_kind: Sequence[tuple[File, Kind]], count: Callable[[int], None]) -> Iterator[list[Artifact] | None]:
    """Yield what files hold, in their order; None for one that proves to be a log.

    Args:
        files_of_kind: files on disk, with their kinds.
        count: called with the number of bytes read: all processes are taken to be as quick as this one.
    """
    number = min(processors(), _MOST) if processes.can_fork() else 1  # an opened file and a kind cannot be pickled
    shares = [
        files_of_kind[len(files_of_kind) * place // number : len(files_of_kind) * (place + 1) // number]
        for place in range(number)
    ]
    with processes.Helpers() as helpers:
        started = [helpers.start(_work, share) for share in shares[1:]]
        yield from artifacts.one_by_one(shares[0], lambda size: count(size * number))
        for share, helper in zip(shares[1:], started, strict=True):
            yield from helper.result() or artifacts.one_by_one(share)


def _work(share: Sequence[tuple[File, Kind]]) -> list[list[Artifact] | None]:
    return list(artifacts.one_by_one(share))
