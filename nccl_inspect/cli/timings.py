"""``nccl-inspect timings``: where the time of each initialisation went."""

from __future__ import annotations

import click

from nccl_inspect.answers import selection, timings
from nccl_inspect.cli import questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect timings job.log
  nccl-inspect timings job.log --limit 5            the five slowest
  nccl-inspect timings job.log --rank 3
  nccl-inspect timings job.log --format csv -o timings.csv
"""
_NONE = "the log has no timings; NCCL 2.22 and later print them with NCCL_DEBUG=INFO"


@click.command(epilog=_EXAMPLES, short_help="List how long each rank took to initialise, and in which phase.")
@questions.question(timings, "timing")
def command(job: Job, fits: selection.Fits) -> questions.Answered:
    """List how long each rank took to initialise each communicator, and which phase took most of it; the slowest first.

    The phases: bootstrap (ranks find each other), topo (the machine), graphs (rings and trees), connections, kernels
    (CUDA loads them), alloc, allgathers and rest, as far as the release names them. Ranks wait for each other in
    bootstrap and allgathers: there the one with the shortest time came last.
    """
    everything = timings.rows(job)
    rows = [row for row in everything if fits([] if row.rank is None else [row.rank], [row.host])]
    return rows, "no timing matches" if everything else _NONE
