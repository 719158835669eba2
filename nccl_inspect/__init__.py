"""Reads the ``NCCL_DEBUG=INFO`` log of a job and shows which path every pair of ranks takes, and why.

>>> import nccl_inspect
>>> job = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
>>> job.paths.between(0, 1).detail
'P2P/CUMEM'
"""

from __future__ import annotations

from nccl_inspect._version import __version__

# Import as little as possible: this is loaded before the command can handle Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    import pyarrow

    from nccl_inspect.event.types import Event
    from nccl_inspect.ingest.sources.files import Input
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
    job: str | int | None = None,
    run: int | str | None = None,
) -> Job:
    """Read and judge a log.

    If it holds several jobs, the result is the worst one; its ``jobs`` lists all of them briefly, the worst first.

    Args:
        inputs: a path, ``-`` for standard input, bytes, a file object, or a list
            of these.
        platform: machine type, such as ``p5.48xlarge``, if the log does not name it.
        topology: file or files with ``nvidia-smi topo -m`` output, or NCCL's topology or graph XML.
        select: rule or rules to run, by name, glob or category; all if empty.
        ignore: rule or rules to skip.
        config: a settings file (``nccl-inspect.toml``), or a folder: the file there or in the nearest parent folder.
            Default: no settings file.
        job: number or name of one of several jobs. Default: the worst.
        run: number of a run of a restarted job; 1 is the first. Default: the latest.

    Returns:
        The job: ``verdict``, ``findings``, ``paths``, ``communicators``, …

    Raises:
        nccl_inspect.errors.NoInputError: no input, none that could be read, or no NCCL line in it.
        nccl_inspect.errors.NcclInspectError: an unknown rule, platform, job or run, or an invalid file.
    """
    from pathlib import Path

    from nccl_inspect import artifacts
    from nccl_inspect.pipeline import configuration, reading
    from nccl_inspect.util.memory import pause_collector

    # A string is also a sequence: of characters.
    files, wanted, unwanted = (
        (value,) if isinstance(value, str) else tuple(value) for value in (topology, select, ignore)
    )
    options = reading.Options(
        platform,
        files,
        select=wanted,
        ignore=unwanted,
        job=None if job is None else str(job),
        run=None if run is None else int(run),
    )
    if config is not None:
        options = configuration.apply_settings(options, Path(config))
    with pause_collector():
        inventory = artifacts.inventory(inputs)
        return reading.Judge(options).find_job(reading.fold(inventory.logs), beside=inventory)


def events(inputs: Input | Sequence[Input]) -> Iterator[Event]:
    """Return the typed events of a log in line order; lines that form one message are one event.

    Args:
        inputs: as for :func:`read`.

    Returns:
        Frozen dataclasses of :mod:`nccl_inspect.event.types`.
    """
    from nccl_inspect.pipeline import reading

    return reading.events(inputs)


def events_table(inputs: Input | Sequence[Input], kinds: str | Sequence[str] = ()) -> pyarrow.Table:
    """Return the typed events of a log as an Arrow table; its ``to_pandas()`` gives a data frame.

    Args:
        inputs: as for :func:`read`.
        kinds: event classes, such as ``ChannelConnect``: only these, and only their columns; all if empty.

    Returns:
        One row per event, in line order, with the columns that ``nccl-inspect events`` writes.
    """
    from nccl_inspect.event import arrow, writers  # pyarrow is slow to load
    from nccl_inspect.pipeline import reading

    wanted = writers.find_kinds((kinds,) if isinstance(kinds, str) else kinds)
    stream = reading.EventStream(inputs)
    rows = arrow.table((row for row in stream.with_places() if not wanted or type(row[1]).__name__ in wanted), wanted)
    stream.raise_problem()
    return rows
