"""What the workers of a cluster do: read a group of files, put together what others read.

Results are bytes that nobody changes: a task that runs again, because a worker died, finds them as they were.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from nccl_inspect.ingest.sources import limits
from nccl_inspect.ingest.sources.partition import Part
from nccl_inspect.ingest.sources.streams import StreamError
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import workers
from nccl_inspect.pipeline.distributed import cluster
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.scanning.found import Known
from nccl_inspect.util.gc_pause import uncollected

_FAST = 1
"""Of zlib: folds become a sixth in a tenth of the time that reading took."""


class Asker(NamedTuple):
    """What a worker must know of the process that asks."""

    version: str
    limit: str | None
    """How much a packed log may unpack to."""

    @classmethod
    def here(cls) -> Asker:
        """This process."""
        return cls(cluster.version(), limits.given())

    def check(self) -> None:
        """Make sure that this worker can do what is asked: it may have come when others already read.

        Raises:
            NcclInspectError: it has another version.
        """
        if self.version != cluster.version():
            raise cluster.differs(f"the worker {_worker()}", cluster.version(), self.version)


class Stretch(NamedTuple):
    """The fold of some groups that follow each other."""

    first: int
    end: int
    packed: bytes

    def fold(self) -> Fold:
        """The fold, made anew."""
        fold = pickle.loads(zlib.decompress(self.packed))  # noqa: S301 - from the user's own cluster
        assert isinstance(fold, Fold)
        return fold


def _stretch(first: int, end: int, fold: Fold) -> Stretch:
    return Stretch(first, end, zlib.compress(pickle.dumps(fold, pickle.HIGHEST_PROTOCOL), _FAST))


@uncollected()
def read(group: Sequence[Part], number: int, known: Known, asker: Asker) -> list[Stretch]:
    """The fold of a group.

    Args:
        group: what to read.
        number: of the group.
        known: what the lines before show about how these are to be read.
        asker: who wants it.

    Raises:
        NcclInspectError: this worker has another version.
    """
    asker.check()
    reader = Reader(Fold(known))
    with limits.as_given(asker.limit):
        for part in group:
            for piece in workers.read(reader.fold, [part], lambda _: None):
                reader.add(piece)
            _look_for(part, reader.fold)
    return [_stretch(number, number + 1, reader.fold)]


def _look_for(part: Part, state: Fold) -> None:
    """Say so when a file that is there for the user is not there for this worker."""
    if part.place is None or not state.sources or not state.sources[-1].problem:
        return
    try:
        part.place.stat()
    except (StreamError, OSError) as error:
        what = error.what if isinstance(error, StreamError) else error.strerror
        worker = f"not visible to the worker {_worker()} ({what})"
        state.sources[-1].problem = f"{part.name}: {worker}; let all workers see it under this name"


def _worker() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def unread(group: Sequence[Part], number: int, known: Known, why: str) -> list[Stretch]:
    """The fold of a group that nobody could read.

    Args:
        group: what it was to read.
        number: of the group.
        known: what the lines before show about how these are to be read.
        why: it could not be read.
    """
    state = Fold(known)
    for part in group:
        state.start(part.name).problem = f"{part.name}: {why}"
    return [_stretch(number, number + 1, state)]


@uncollected()
def joined(results: Sequence[list[Stretch]], asker: Asker) -> list[Stretch]:
    """The folds of neighbours as one; as several where merging would not give what reading on would have given.

    Args:
        results: by tasks whose groups follow each other.
        asker: who wants it.

    Raises:
        NcclInspectError: this worker has another version.
    """
    asker.check()
    done: list[Stretch] = []
    last: Fold | None = None
    for stretch in (stretch for stretches in results for stretch in stretches):
        fold = stretch.fold()
        if last is not None and last.can_merge(fold):
            last.merge(fold)
            done[-1] = Stretch(done[-1].first, stretch.end, b"")
        else:
            _finish(done, last)
            done.append(stretch)
            last = fold
    _finish(done, last)
    return done


def _finish(done: list[Stretch], last: Fold | None) -> None:
    if last is not None and not done[-1].packed:
        done[-1] = _stretch(done[-1].first, done[-1].end, last)
