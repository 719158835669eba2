"""NCCL's RAS, asked again and again beside a log: how far each rank came, and who lags while the job still runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.artifacts import ras, ras_counts
from nccl_inspect.artifacts.ras import Answer
from nccl_inspect.extras.collect.ras import FORMS, FormatError, answer
from nccl_inspect.judging.evidence.ras import who
from nccl_inspect.model.inventory import Artifact

_LONGEST = 30.0
"""Seconds that an answer may take: RAS itself waits for processes that are silent."""
_MOST = 3


class Asker:
    """Asks RAS every few seconds, in a thread: a slow answer delays no line of the log.

    Args:
        where: ``HOST:PORT`` of any process of the job.
    """

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self._seconds = where, seconds
        self._forms: tuple[str, ...] = FORMS[::-1]  # JSON has the counts of all ranks, a text only those that differ
        self._found: queue.SimpleQueue[Artifact | str] = queue.SimpleQueue()
        self._over = threading.Event()

    def __enter__(self) -> Asker:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def ask(self) -> Artifact | str:
        """Return the answer to one question, or why there is none."""
        name = f"ras://{self.where}"
        for form in self._forms:
            try:
                data = answer(self.where, form, _LONGEST)
            except FormatError:
                self._forms = FORMS[:1]
                continue
            except OSError as error:
                return error.strerror or str(error)
            (found,) = artifacts.contents(name, ras, iter([data]))
            return found.problem or found
        return "no answer"

    def take_found(self) -> Iterator[Artifact | str]:
        """Yield what came since the last call."""
        while not self._found.empty():
            yield self._found.get()

    def _run(self) -> None:
        while True:
            self._found.put(self.ask())
            if self._over.wait(self._seconds):
                return


class Late(NamedTuple):
    """Holds those that hold others up, by an answer."""

    ranks: list[int]
    """Of the job, as far as they are known."""
    words: list[str]
    """What is known of the first few."""
    names: list[str]


def count_operations(found: Answer) -> dict[tuple[str, str, int], int]:
    """Return how many operations each rank of a communicator launched, as far as the answer shows it."""
    counts = {
        (comm, operation, member.rank): number
        for comm, launched in found.launched.items()
        for operation, number in launched.items()
        for member in found.members.get(comm, ())
    }
    for one in found.mismatches:
        counts[one.comm_id, one.operation, -1] = one.usual or 0
        counts |= {(one.comm_id, one.operation, member.rank): member.launched for member in one.members}
    return counts


def find_late(found: Answer, ranks: Mapping[int, int]) -> Late | None:
    """Return who launched less than the others, or does not answer; None if nobody."""
    late = ras_counts.last_to_come(found)
    words: dict[str, str] = {}
    for mismatch in found.mismatches:
        most = max((*(member.launched for member in mismatch.members), mismatch.usual or 0), default=0)
        for member in mismatch.behind:
            if member in late or (member.pid and member.pid in {one.pid for one in late}):
                counts = f"{member.launched} {mismatch.operation}, others {most}, in communicator {mismatch.comm_id}"
                words.setdefault(who(member, ranks), counts)
    for lost in found.lost:
        member = ras.Member(-1 if lost.rank is None else lost.rank, lost.host, lost.pid)
        words[who(member, ranks)] = "considered dead" if lost.is_dead else "does not answer"
    if not words:
        return None
    pids = {one.pid for one in late} | {lost.pid for lost in found.lost}
    known = sorted({rank for pid in pids if pid is not None and (rank := ranks.get(pid)) is not None})
    said = [f"{name}: {text}" for name, text in words.items()]
    return Late(known, said[:_MOST], list(words))
