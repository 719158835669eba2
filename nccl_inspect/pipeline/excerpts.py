"""Reads excerpts in their own way.

Most logs are read once. What is short, begins no communicator and has lines that nobody knows may be an excerpt: it is
read again as one (:mod:`nccl_inspect.scanning.excerpts`).
"""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.elisions import PASTE
from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.statements.excerpts import has_communicator
from nccl_inspect.pipeline.reader import Piece, Reader, account
from nccl_inspect.scanning.found import Found


def may_be(fold: Fold) -> bool:
    """Whether there may be lines in it that only the reading of excerpts knows."""
    counts = [source.counts for source in fold.sources]
    if sum(source.bytes for source in fold.sources) > PASTE or has_communicator(fold):
        return False
    if any(log_detection.is_program(source.name) for source in fold.sources):
        return False
    if any(source.decorated for source in fold.sources):
        return True
    return any(counted.lines > counted.typed_lines + counted.related_lines for counted in counts)


def read(pieces: Iterable[Piece]) -> Fold:
    """The fold of short texts.

    Args:
        pieces: their sources and lines.
    """
    reader = Reader()
    open_: list[Lines] = []
    for piece in pieces:
        if isinstance(piece, Lines) and piece.mended is None:
            open_.append(piece)
            continue
        _finish(reader.fold, open_)
        reader.add(piece)
    _finish(reader.fold, open_)
    return reader.fold


def _finish(fold: Fold, open_: list[Lines]) -> None:
    """Read the lines of a source, which are all there now."""
    if not open_:
        return
    from nccl_inspect.scanning.excerpts import Excerpt  # whole logs never need it

    source, block, excerpt = fold.sources[-1], Found(), Excerpt(engine.shipped())
    excerpt.scan([line for lines in open_ for line in lines.lines], source.counts, block.keep)
    before = 0
    for lines in open_:
        account(source, lines, before)
        before += len(lines)
    fold.restored += excerpt.read
    fold.productions.update(production.key for production in excerpt.productions)
    fold.take(block)
    open_.clear()
