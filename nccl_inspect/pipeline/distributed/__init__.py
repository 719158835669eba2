"""Reads logs on an existing Dask cluster: the fold of each part by a worker, put together in the order of the inputs.

The result is that of one process, byte for byte. What runs where, who tries again after a worker died, and what waits
for what is Dask's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.ingest.sources import partition
from nccl_inspect.ingest.sources.blocks import Input, Progress
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.distributed import cluster
from nccl_inspect.pipeline.reader import Piece
from nccl_inspect.pipeline.workers import known_of

SHARE = 4 << 20
"""Bytes for each task: some seconds of work at most, so that little is lost with a worker."""
_LEAST = 64 << 10
"""Bytes that are worth a task where the cluster could take more of them."""
_MOST = 10_000
"""More tasks would keep the scheduler busy with themselves."""


def shared(state: Fold, inputs: Input | Sequence[Input], address: str, progress: Progress | None) -> Iterator[Piece]:
    """What is to be added to a fold, read by the workers of a cluster.

    Args:
        state: the fold, to which each piece must be added before the next one is asked for.
        inputs: paths, globs and URLs that the workers see as this process does.
        address: of the scheduler, or a scheduler file.
        progress: called with the number of bytes read and their total.

    Raises:
        NcclInspectError: Dask is missing, the cluster cannot be used, or an input can be read here only.
    """
    with cluster.connected(address) as client:
        from nccl_inspect.pipeline.distributed.reduction import Reduction

        threads = sum(client.nthreads().values())
        groups = partition.all_of(inputs, lambda size: task_count(size, threads))
        total = sum(part.size for group in groups for part in group)
        reduction = Reduction(client, groups, known_of(groups[0][0]), lambda size: progress and progress(size, total))
        yield from reduction.pieces(state)


def task_count(size: int, threads: int, share: int | None = None) -> int:
    """Number of tasks for an input of this size, with ``share`` bytes for each."""
    return min(max(size // (share or SHARE), min(2 * threads, size // _LEAST)), _MOST)
