"""Which ranks the labels mean that launchers put in front of lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.event.base import Process
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.fold.fold import ProcessLog
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.fold.source_counts import SourceCounts


def of_nobody(logs: Iterable[ProcessLog]) -> dict[Process, list[int]]:
    """The labelled ranks of what no known process printed.

    Args:
        logs: of processes, and of nobody.
    """
    labels = ((log.process, log.opening.rank) for log in logs if not log.process.host)
    return {process: [rank] for process, rank in labels if rank is not None}


def of_exceptions(
    sources: Mapping[int, SourceCounts], processes: Iterable[ProcessMembers], ranks: Mapping[Process, list[int]]
) -> dict[tuple[str, int], int]:
    """The ranks of labelled exceptions, by source and number of the line.

    They are those of the processes of which NCCL's lines have the same label: a task of srun may have launched several.

    Args:
        sources: with the exceptions, by their numbers.
        processes: of the job.
        ranks: of each process.
    """
    labelled: dict[tuple[int, int], set[int]] = {}
    for process in processes:
        log = process.log
        if log.opening.rank is not None:
            key = source_and_line(log.first)[0], log.opening.rank
            labelled.setdefault(key, set()).update(ranks.get(log.process, ()))
    return {
        (source.name, exception.number): next(iter(candidates))
        for index, source in sources.items()
        for exception in source.raised
        if exception.rank is not None and len(candidates := labelled.get((index, exception.rank), set())) == 1
    }
