"""Reads the parts of a log in several processes, and puts together what they found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from nccl_inspect.grammar import engine
from nccl_inspect.ingest.sources import blocks, partition
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.partition import Part
from nccl_inspect.model.fold import Fold
from nccl_inspect.pipeline.reader import Piece, Reader
from nccl_inspect.scanning.counts import Counts
from nccl_inspect.scanning.found import Known
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util import processes

HEAD = 1 << 16


def share_work(state: Fold, groups: Sequence[Sequence[Part]], progress: Callable[[int], None]) -> Iterator[Piece]:
    """Yield what is to be added to a fold; all groups but the first are read by processes of their own.

    The result is that of one process: where merging would not give exactly that, the part is read again here.
    """
    scanner = Scanner(engine.load_grammar())  # what the first lines show about how all are to be read
    first = (lines for source in partition.read(groups[0][0], lambda _: None) for lines in blocks.records_of(source))
    if isinstance(lines := next(first, None), Lines):
        scanner.scan(lines.text[:HEAD].split(b"\n"), Counts(), lambda *_: None)
    known = scanner.memory
    with processes.Helpers() as helpers:
        started = [helpers.start(_work, group, known, os.getpid()) for group in groups[1:]]
        yield from read(state, groups[0], progress)
        for group, helper in zip(groups[1:], started, strict=True):
            piece = helper.result()
            if isinstance(piece, Fold) and state.can_merge(piece):
                yield piece
                progress(sum(part.size for part in group))
            else:
                yield from read(state, group, progress)


def read(state: Fold, group: Sequence[Part], progress: Callable[[int], None]) -> Iterator[Piece]:
    """Yield what is to be added to a fold, read here."""
    for part in group:
        goes_on = part.start > 0 and bool(state.sources) and state.sources[-1].name == part.name
        if goes_on and state.sources[-1].problem:
            continue
        for source in partition.read(part, progress):
            if not goes_on:
                yield source
            yield from blocks.records_of(source)


def _work(group: Sequence[Part], known: Known, parent: int) -> Fold:
    reader = Reader(Fold(known))
    for piece in read(reader.fold, group, lambda _: processes.end_unless_child_of(parent)):
        reader.add(piece)
    return reader.fold
