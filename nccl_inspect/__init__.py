"""Reads the ``NCCL_DEBUG=INFO`` log of a job and shows which path every pair of ranks takes, and why.

>>> import nccl_inspect
>>> job = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
>>> job.paths.between(0, 1).detail
'P2P/CUMEM'
"""

from __future__ import annotations

from nccl_inspect._version import __version__

# Nothing is imported that need not be: it is loaded before the command can handle Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    import pyarrow

    from nccl_inspect.event.types import Event
    from nccl_inspect.ingest.sources.blocks import Input
    from nccl_inspect.model.job import Job

__all__ = ["__version__", "events", "events_table", "read"]


def read(
    inputs: Input | Sequence[Input],
    *,
    platform: str | None = None,
    topology: str | Sequence[str] = (),
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    config: str | PathLike[str] | None = None,
    cluster: str | None = None,
    job: str | int | None = None,
    run: int | str | None = None,
) -> Job:
    """Read and judge a log.

    Of several jobs in it the worst is the result; its ``jobs`` has all in brief, the worst first.

    Args:
        inputs: a path, a URL such as ``s3://bucket/*.log``, ``-`` for standard input, bytes, a file object, or a list
            of these.
        platform: machine type such as ``p5.48xlarge``, where the log does not name it.
        topology: file or files with ``nvidia-smi topo -m`` output, or NCCL's topology or graph XML.
        select: rule or rules to run, by name, glob or category; all when empty.
        ignore: rule or rules to leave out.
        config: a settings file (``nccl-inspect.toml``), or a folder: the file there or in the nearest folder above.
            Without it no file is looked for.
        cluster: address or scheduler file of a Dask cluster whose workers read the log; the result is the same.
        job: the number or name of one of several jobs, instead of the worst.
        run: the number of a run of a job that was started again, from 1 for the first, instead of the newest.

    Returns:
        The job: ``verdict``, ``findings``, ``paths``, ``communicators``, …

    Raises:
        nccl_inspect.errors.NoInputError: nothing is given or could be read, or no line is NCCL's.
        nccl_inspect.errors.NcclInspectError: an unknown rule, platform, job or run, a file that is not understood, or a
            cluster that cannot be used.
    """
    from pathlib import Path

    from nccl_inspect import artifacts
    from nccl_inspect.pipeline import configuration, reading

    # A single name is a sequence, too: of characters.
    files, wanted, unwanted = ((one,) if isinstance(one, str) else tuple(one) for one in (topology, select, ignore))
    one = None if job is None else str(job)
    options = reading.Options(
        platform, files, select=wanted, ignore=unwanted, job=one, run=None if run is None else int(run)
    )
    if config is not None:
        options = configuration.applied(options, Path(config))
    inventory = artifacts.inventory(inputs)
    return reading.Judge(options).worst(reading.fold(inventory.logs, cluster=cluster), beside=inventory)


def events(inputs: Input | Sequence[Input]) -> Iterator[Event]:
    """The typed events of a log in the order of their lines; lines that make one message are one event.

    Args:
        inputs: as for :func:`read`.

    Returns:
        Frozen dataclasses of :mod:`nccl_inspect.event.types`.
    """
    from nccl_inspect.pipeline import event_stream

    return event_stream.events(inputs)


def events_table(inputs: Input | Sequence[Input], kinds: str | Sequence[str] = ()) -> pyarrow.Table:
    """The typed events of a log as an Arrow table; its ``to_pandas()`` gives a data frame.

    Args:
        inputs: as for :func:`read`.
        kinds: event classes such as ``ChannelConnect``: only these, and only their columns; all when empty.

    Returns:
        A row for each event, in the order of their lines, with the columns that ``nccl-inspect events`` writes.
    """
    from nccl_inspect.event import arrow, writers  # pyarrow takes its time to load: only where it is used
    from nccl_inspect.pipeline import event_stream

    wanted = writers.kinds_named((kinds,) if isinstance(kinds, str) else kinds)
    stream = event_stream.EventStream(inputs)
    rows = arrow.table((row for row in stream.told() if not wanted or type(row[1]).__name__ in wanted), wanted)
    stream.raise_problem()
    return rows
