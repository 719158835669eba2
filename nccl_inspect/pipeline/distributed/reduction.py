"""Puts together what the workers read: a tree of tasks over neighbours, whose last steps are taken here.

The last ones here, because the whole fold is needed here anyway, and so that what came until an interruption counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeAlias, cast

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources.partition import Part
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import workers
from nccl_inspect.pipeline.distributed import cluster, tasks
from nccl_inspect.pipeline.distributed.tasks import Stretch
from nccl_inspect.pipeline.reader import Piece
from nccl_inspect.scanning.found import NOTHING_KNOWN, Known

if TYPE_CHECKING:
    from distributed import Client, Future

TOPS = 16
"""Folds that are merged here."""
FAN = 8
"""Folds that a task puts together."""
_RETRIES = 2
"""How often a task that failed is tried again; one whose worker died is tried again by Dask itself."""
_PATIENCE = 5.0
"""Seconds without news after which to look whether the cluster is still there."""
_TRANSFER = 300.0
"""Seconds for a result to come here, after which to look likewise."""
_TOGETHER = 0.5
"""Seconds within which the news of all tasks come that a worker took with it."""

_About = ParamSpec("_About")


class _News(NamedTuple):
    """A task has ended."""

    key: str
    group: int | None
    error: BaseException | None


_Waiting: TypeAlias = "deque[tuple[range, Future[list[Stretch]] | None]]"
"""Folds in the order of the inputs; None where nobody is asked before its turn."""


class Reduction:
    """The folds of all groups.

    Args:
        client: of the cluster.
        groups: what each task reads.
        known: what the first lines show about how all are to be read.
        progress: called with the number of bytes read.
    """

    def __init__(
        self, client: Client, groups: Sequence[Sequence[Part]], known: Known, progress: Callable[[int], object]
    ) -> None:
        self._client = client
        self._groups = groups
        self._known = known
        self._progress = progress
        self._asker = tasks.Asker.here()
        self._watch = cluster.Watch(client)
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._ended: set[str] = set()
        self._read: set[int] = set()
        self._suspects: set[int] = set()
        """Groups whose readers died: they may have died of another task that they had."""
        self._alone: set[int] = set()
        """Suspects that were, or will be, read again when what comes before them is done."""
        self._failures: dict[int, str] = {}
        """Groups that nobody could read, with the reason."""
        self._unfetched = 0
        self._given_up: set[int] = set()
        """Those of them that nobody is asked to read any more."""

    def pieces(self, state: Fold) -> Iterator[Piece]:
        """What is to be added to a fold, in the order of the inputs.

        Args:
            state: the fold, to which each piece must be added before the next one is asked for.
        """
        waiting = self._submitted(range(len(self._groups)), TOPS)
        while waiting:
            span, future = waiting.popleft()
            if self._is_given_up(span):
                stretches = self._unread(span.start)
            else:
                future = future or self._put_together(span)
                result = self._result(future)
                if result is None:
                    waiting.extendleft(reversed(self._submitted_again(span, future)))
                    continue
                stretches = result
            for stretch in stretches:
                fold = stretch.fold()
                if state.can_merge(fold):
                    yield fold
                elif self._begins_with(stretch.first) != state.known:
                    # Whoever read on from here expected other envelopes, or others in front of lines.
                    self._known = state.known
                    waiting = self._submitted(range(stretch.first, len(self._groups)), TOPS)
                    break
                else:
                    for group in self._groups[stretch.first : stretch.end]:
                        yield from workers.read(state, group, lambda _: None)

    def _begins_with(self, number: int) -> Known:
        return self._known if number else NOTHING_KNOWN

    def _submitted(self, span: range, most: int) -> _Waiting:
        return deque((part, None if self._is_given_up(part) else self._put_together(part)) for part in _cut(span, most))

    def _submitted_again(self, span: range, future: Future[list[Stretch]]) -> _Waiting:
        """What to wait for instead of a fold that failed: it goes without groups that nobody can read."""
        error = future.exception()
        if _is_killed(error):
            self._hear_the_rest()
        if len(span) == 1:
            self._blame(span.start, error)
        suspects = sorted(self._suspects.intersection(span) - self._alone - self._failures.keys())
        unread = self._failures.keys() & set(span) - self._given_up
        self._alone.update(suspects)
        self._given_up |= unread
        if suspects:
            parts = _around(span, suspects)
            later = [part.start in suspects or self._is_given_up(part) for part in parts]
            return deque((p, None if waits else self._put_together(p)) for p, waits in zip(parts, later, strict=True))
        return self._submitted(span, 1 if unread else FAN)

    def _blame(self, group: int, error: BaseException | None) -> None:
        """Remember why a group could not be read."""
        if _is_killed(error) and group not in self._alone:
            self._suspects.add(group)
        else:
            self._failures[group] = _reason(error)

    def _put_together(self, span: range) -> Future[list[Stretch]]:
        """The future fold of some groups; hears of its end."""
        future = self._fold_of(span)
        future.add_done_callback(partial(self._hear, None))
        return future

    def _fold_of(self, span: range) -> Future[list[Stretch]]:
        number = span.start
        if len(span) > 1:
            parts = [
                self._unread(part.start) if self._is_given_up(part) else self._fold_of(part) for part in _cut(span, FAN)
            ]
            folds = cast("list[list[Stretch]]", parts)  # Dask gives a task what its futures stand for
            return self._submit(number, tasks.joined, folds, self._asker)
        group, known = self._groups[number], self._begins_with(number)
        future = self._submit(number, tasks.read, group, number, known, self._asker)
        future.add_done_callback(partial(self._hear, number))
        return future

    def _is_given_up(self, span: range) -> bool:
        return len(span) == 1 and span.start in self._given_up

    def _unread(self, number: int) -> list[Stretch]:
        """The fold of a group that is given up, made here: a worker might die of what another one was given."""
        return tasks.unread(self._groups[number], number, self._begins_with(number), self._failures[number])

    def _submit(
        self, first: int, task: Callable[_About, list[Stretch]], *about: _About.args, **rest: _About.kwargs
    ) -> Future[list[Stretch]]:
        future: Future[list[Stretch]] = self._client.submit(
            task, *about, **rest, priority=-first, retries=_RETRIES, pure=False
        )
        return future

    def _hear(self, group: int | None, future: Future[list[Stretch]]) -> None:
        """Called in a thread of Dask's."""
        error = future.exception() if future.status == "error" else None
        self._news.put(_News(str(future.key), group, error))

    def _result(self, future: Future[list[Stretch]]) -> list[Stretch] | None:
        """What a task found; None when it failed."""
        while True:
            while str(future.key) not in self._ended:
                self._listen()
            if future.status == "error":
                return None
            if future.status == "cancelled":
                raise cluster.lost()
            if future.status == "finished" and (stretches := self._fetched(future)) is not None:
                return stretches
            # It had ended, and its worker died with the result: Dask has it made again.
            self._ended.discard(str(future.key))
            future.add_done_callback(partial(self._hear, None))

    def _fetched(self, future: Future[list[Stretch]]) -> list[Stretch] | None:
        """The result of a task that has ended; None when it did not come."""
        try:
            stretches: list[Stretch] = future.result(timeout=_TRANSFER)
        except Exception as error:
            self._watch.look()
            if future.status == "finished":  # else what became of the task, its state tells
                self._unfetched += 1
            if self._unfetched > _RETRIES:
                what = f"what the workers found cannot be fetched: {cluster.words(error)}"
                raise NcclInspectError(what, "see whether the scheduler reaches all workers") from None
            return None
        return stretches

    def _listen(self) -> None:
        try:
            news = self._news.get(timeout=_PATIENCE)
        except Empty:
            self._watch.look()
        else:
            self._take(news)

    def _hear_the_rest(self) -> None:
        """Hear of all tasks that died with one: the guilty one must not be read beside those it would take along."""
        until = monotonic() + _TOGETHER
        while (left := until - monotonic()) > 0:
            try:
                self._take(self._news.get(timeout=left))
            except Empty:
                return

    def _take(self, news: _News) -> None:
        key, group, error = news
        if isinstance(error, NcclInspectError):
            raise error
        if group is None:
            self._ended.add(key)
        elif error is not None:
            self._blame(group, error)
        elif group not in self._read:
            self._read.add(group)
            self._progress(sum(part.size for part in self._groups[group]))


def _cut(span: range, most: int) -> list[range]:
    """Split a span into at most this many parts of about the same length."""
    number = min(most, len(span))
    ends = [span.start + len(span) * place // number for place in range(number + 1)]
    return [range(start, end) for start, end in pairwise(ends)]


def _around(span: range, single: Sequence[int]) -> list[range]:
    """A span cut so that some of its numbers, which are sorted, stand alone."""
    ends = sorted({span.start, span.stop, *single, *(number + 1 for number in single)})
    return [range(start, end) for start, end in pairwise(ends)]


def _is_killed(error: BaseException | None) -> bool:
    from distributed.scheduler import KilledWorker

    return isinstance(error, KilledWorker)


def _reason(error: BaseException | None) -> str:
    if _is_killed(error):
        return "the workers that read it, or what comes with it, died: they may need more memory"
    return f"{type(error).__name__}: {cluster.words(error)}" if error else "for no known reason"
