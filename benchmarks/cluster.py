"""Measures what a cluster is worth: ``python benchmarks/cluster.py [RANKS …]``.

First what each rank of a wide job costs, in processor time of one process, so that it depends little on what else the
machine does; nothing is sent anywhere. What ``docs/performance.md`` works out for very many ranks rests on it.

Then ``--cluster`` with one and with two workers of this machine, compared with one process within one run, as in
``run.py``. Client, scheduler and workers share the machine: on two processors two workers cannot be twice as fast.
``NCCLINSPECT_BENCH_BYTES`` sets the size of the largest log, ``NCCLINSPECT_BENCH_ROUNDS`` how often each pair runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import logs
import measuring
import run
from tabulate import tabulate

from nccl_inspect.ingest.sources import partition
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import distributed, reading
from nccl_inspect.pipeline.distributed import tasks
from nccl_inspect.scanning.found import NOTHING_KNOWN
from nccl_inspect.util.gc_pause import uncollected

COSTS = (
    *("ranks", "log kB", "fold kB, packed", "list ms", "read and pack ms", "join ms", "merge here ms"),
    *("resolve and judge ms", "JSON ms", "JSON kB"),
)
SHARED = (
    *("summarize --cluster", "workers", "seconds", "one process's", "ratio", "spread", "client's processor"),
    *("client's MB", "one process's MB"),
)
_Result = TypeVar("_Result")


def main() -> None:
    """Print both tables; in the first one, everything is for each rank."""
    counts = [int(word) for word in sys.argv[1:]] or [1024, 4096, 16384]
    print(measuring.machine() + "\n")
    with uncollected():
        _row(64)  # what is loaded and compiled once counts for nobody
        print(tabulate([_row(ranks) for ranks in counts], COSTS, tablefmt="github", floatfmt=".3f") + "\n")
    formats = ("", "", ".1f", ".1f", ".2f", "", ".2f", ".0f", ".0f")
    print(tabulate(_comparisons(), SHARED, tablefmt="github", floatfmt=formats))


def _comparisons() -> Iterator[tuple[object, ...]]:
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (files := folder / "files").mkdir()
        logs.per_process(files, run.BYTES // 10)
        wide = run.written(folder / "wide.log", logs.many_hosts(logs.WIDE.read_bytes(), run.BYTES // 4))
        sparse = run.written(folder / "sparse.log", logs.training(run.BYTES))
        named = {
            f"{len(list(files.iterdir()))} files, a tenth": str(files),
            "every line NCCL's, a quarter": wide,
            "1 % of the lines NCCL's": sparse,
        }
        for kind, path in named.items():
            alone = [*run.TOOL, path, "--jobs", "1"]
            for workers in (1, 2):
                with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster:
                    command = [*run.TOOL, path, "--cluster", cluster.scheduler_address]
                    yield (
                        kind,
                        workers,
                        *run.ratio(command, alone),
                        measuring.cost(command).peak,
                        measuring.cost(alone).peak,
                    )


def _row(ranks: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        logs.per_process(Path(folder), len(logs.WIDE.read_bytes()) * ranks // 8)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        groups, listing = _timed(lambda: partition.all_of(folder, lambda size: distributed.task_count(size, 2)))
        asker = tasks.Asker.here()
        found, reads = _timed(lambda: [tasks.read(group, 0, NOTHING_KNOWN, asker) for group in groups])
    (stretch,), joins = _timed(lambda: tasks.joined(found, asker))
    state, merges = _timed(lambda: _merged(stretch))
    job, judges = _timed(lambda: reading.Judge(reading.Options())(state))
    text, writes = _timed(lambda: json.dumps(job.to_dict(), indent=1))
    kilobytes = size / 1e3, len(stretch.packed) / 1e3
    times = (1e3 * seconds for seconds in (listing, reads, joins, merges, judges, writes))
    return [ranks, *(value / ranks for value in (*kilobytes, *times, len(text) / 1e3))]


def _merged(stretch: tasks.Stretch) -> Fold:
    state = Fold()
    state.merge(stretch.fold())
    return state


def _timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    begin = time.process_time()
    return work(), time.process_time() - begin


if __name__ == "__main__":
    main()
