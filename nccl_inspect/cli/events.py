"""``nccl-inspect events``: typed events as a table in a file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.event import writers
from nccl_inspect.event.base import PlacedEvent
from nccl_inspect.event.types import KINDS
from nccl_inspect.pipeline import reading
from nccl_inspect.util import atomic_files
from nccl_inspect.util.progress import Bar
from nccl_inspect.util.wording import count


@click.command(short_help="Export typed events as parquet, arrow, csv or jsonl.")
@shared.inputs
@shared.target_option("Write to FILE; its suffix sets the format. FILE.gz is compressed.")
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(writers.FORMATS)),
    metavar="FORMAT",
    help=f"Output format: {', '.join(writers.FORMATS)}. Default: the suffix of FILE; jsonl on standard output.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="NAME",
    help="Only events of this class, and only its columns. May be repeated.",
)
@click.option("--all-columns", is_flag=True, help="Parquet: also the columns that this log leaves empty.")
@shared.progress_option
def command(
    logs: tuple[str, ...],
    output: str,
    form: str | None,
    kinds: tuple[str, ...],
    all_columns: bool,
    progress: bool | None,
) -> None:
    """Write one row for each event: the fields of a recognized line, or of several lines that form one message.

    All events of all logs share one schema, so tables of different runs can be combined; --kind keeps the columns
    of the named classes only, and Parquet those that the log fills, unless --all-columns is given. Ranks are those
    of the communicator that printed the line. Memory use stays flat.

    Examples:
      nccl-inspect events job.log -o events.parquet
      nccl-inspect events logs/ --kind ChannelConnect -o connections.csv
      nccl-inspect events job.log --kind Notice | jq -r .message
      nccl-inspect events job.log --format arrow | python analyse.py

    Exit status: 130 Ctrl-C; FILE is not written.
    """
    name = form or ("jsonl" if output == "-" else writers.format_of(output))
    wanted, seen = writers.find_kinds(kinds), Counter[str]()
    columns = writers.find_kinds(KINDS.keys() - {"Event"}) if all_columns and not wanted else wanted

    def select() -> Iterator[PlacedEvent]:
        """Yield the selected events; errors come at the end, so that no file is written."""
        for where, event in stream.with_places():
            seen["events"] += 1
            if not wanted or type(event).__name__ in wanted:
                seen["matches"] += 1
                yield where, event
        stream.require_nccl()

    target: AbstractContextManager[BinaryIO]
    if output != "-":
        target = atomic_files.open_compressed(output, "-o")
    elif not writers.FORMATS[name].streams:
        raise NcclInspectError(f"{name} cannot be written to standard output", f"name a file: -o events.{name}")
    elif not writers.FORMATS[name].text and sys.stdout.isatty():
        raise NcclInspectError(f"{name} is binary, not for a terminal", f"name a file, -o events.{name}, or pipe it")
    else:
        target = nullcontext(atomic_files.standard_output())
    with Bar(progress) as bar:
        stream = reading.EventStream(shared.inputs_or_stdin(logs), bar.update if bar.wanted else None)
        try:
            with target as file:
                writers.FORMATS[name].write(select(), columns, file)
                file.flush()
        except BrokenPipeError:
            shared.exit_quietly()
        except ModuleNotFoundError as error:  # the zipapp and the image lack pyarrow, because of its size
            hint = "use --format jsonl, or install the package with pip"
            raise NcclInspectError(f"this format needs {error.name}, which is not installed here", hint) from None
    for problem in stream.problems:
        print_stderr(str(problem))
    if not seen["matches"]:
        print_stderr(f"no event matches; the log has {count(seen['events'], 'event')}")
