"""Measures what each rank of a wide job costs when a cluster reads it: ``python benchmarks/cluster.py [RANKS …]``.

Processor time of one process, so that it depends little on what else the machine does; nothing is sent anywhere. What
``docs/performance.md`` works out for very many ranks rests on these figures.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import logs
from tabulate import tabulate

from nccl_inspect import distributed, reading
from nccl_inspect.distributed import tasks
from nccl_inspect.garbage import uncollected
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import parts
from nccl_inspect.model.fold import Fold

HEAD = (
    *("ranks", "log kB", "fold kB, packed", "list ms", "read and pack ms", "join ms", "merge here ms"),
    *("resolve and judge ms", "JSON ms", "JSON kB"),
)
_Result = TypeVar("_Result")


def main() -> None:
    """Print a table: everything for each rank."""
    counts = [int(word) for word in sys.argv[1:]] or [512, 1024, 2048, 4096]
    with uncollected():
        _row(64)  # what is loaded and compiled once counts for nobody
        print(tabulate([_row(ranks) for ranks in counts], HEAD, tablefmt="pipe", floatfmt=".3f"))


def _row(ranks: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        logs.per_process(Path(folder), len(logs.WIDE.read_bytes()) * ranks // 8)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        groups, listing = _timed(lambda: parts.all_of(folder, lambda size: distributed._tasks(size, 2)))
        asker = tasks.Asker.here()
        found, reads = _timed(lambda: [tasks.read(group, 0, False, asker) for group in groups])
    (stretch,), joins = _timed(lambda: tasks.joined(found, asker))
    state, merges = _timed(lambda: _merged(stretch))
    job, judges = _timed(lambda: reading.Judge(reading.Options())(state))
    text, writes = _timed(lambda: json.dumps(job.to_dict(), indent=1))
    kilobytes = size / 1e3, len(stretch.packed) / 1e3
    times = (1e3 * seconds for seconds in (listing, reads, joins, merges, judges, writes))
    return [ranks, *(value / ranks for value in (*kilobytes, *times, len(text) / 1e3))]


def _merged(stretch: tasks.Stretch) -> Fold:
    state = Fold(engine.shipped())
    state.merge(stretch.fold())
    return state


def _timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    begin = time.process_time()
    return work(), time.process_time() - begin


if __name__ == "__main__":
    main()
