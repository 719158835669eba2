"""Short sources that follow each other, as ``NCCL_DEBUG_FILE`` writes one for each process: they are read in groups.

What decides how a source is read takes as long for a line as for many, and what repeats is found in large blocks only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.ingest.sources.streams import BLOCK, GROWN
from nccl_inspect.pipeline.reader import Group, Piece


def grouped(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same pieces, with short sources in groups.

    Args:
        pieces: after each source what belongs to it.
    """
    group = Group()
    try:
        for piece in pieces:
            if isinstance(piece, Source):
                if group.size >= GROWN:
                    yield group
                    group = Group()
                group.sources.append((piece, []))
            elif group.sources and isinstance(piece, Lines) and not group.sources[-1][1] and piece.size < BLOCK:
                group.sources[-1][1].append(piece)
                group.size += piece.size
            else:
                if group.sources:
                    yield from group.without_last()
                    group = Group()
                yield piece
    except KeyboardInterrupt:  # what was read counts
        yield group
        raise
    yield group
