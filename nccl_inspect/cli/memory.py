"""``nccl-inspect memory``: what NCCL allocated."""

from __future__ import annotations

import click

from nccl_inspect.answers import memory, selection
from nccl_inspect.cli import questions, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.event_stream import EventStream

_EXAMPLES = """
Examples:
  nccl-inspect memory job.log
  nccl-inspect memory job.log --memory GPU          without the memory of hosts
  nccl-inspect memory job.log --rank 3 --limit 10
  nccl-inspect memory job.log --format csv -o memory.csv
"""
_NONE = "the log shows no allocation; NCCL prints them with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ALLOC"


@click.command(epilog=_EXAMPLES, short_help="List what NCCL allocated, by rank, communicator and kind.")
@questions.question(memory, "row", tells_logs=True)
@click.option(
    "--memory",
    "memories",
    type=click.Choice((memory.GPU, memory.HOST)),
    multiple=True,
    metavar="WHERE",
    help="Only memory of GPU or of host. May be repeated.",
)
def command(job: Job, fits: selection.Fits, memories: tuple[str, ...], logs: tuple[str, ...]) -> questions.Answered:
    """List the memory that NCCL allocated on GPUs and hosts, by rank, communicator and kind; the largest first.

    Sizes are sums over the log: NCCL prints no line when it frees memory. A communicator is named for what its own
    thread allocated between the first and the last line of its initialisation. The logs are read twice, so standard
    input cannot be used.
    """
    if shared.inputs_or_stdin(logs) == ["-"]:
        raise NcclInspectError("memory reads the log twice", "save it to a file first, then name that file")
    everything = memory.rows(job, EventStream(list(logs)).with_places())
    rows = [
        row
        for row in everything
        if (not memories or row.memory in memories) and fits([] if row.rank is None else [row.rank], [row.host])
    ]
    return rows, "no allocation matches" if everything else _NONE
