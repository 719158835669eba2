"""``nccl-inspect ranks``: how far each rank got."""

from __future__ import annotations

import click

from nccl_inspect.answers import ranks, selection
from nccl_inspect.cli import questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect ranks job.log
  nccl-inspect ranks job.log --state suspect --state missing
  nccl-inspect ranks job.log --host gpu-node-0001
  nccl-inspect ranks job.log --format json -o ranks.json
"""


@click.command(epilog=_EXAMPLES, short_help="List ranks, worst first: host, pid, GPU, state, last line, first error.")
@questions.question(ranks, "rank")
@click.option(
    "--state",
    "states",
    type=click.Choice(tuple(ranks.STATES)),
    multiple=True,
    metavar="STATE",
    help="Only ranks in this state, such as missing. May be repeated.",
)
def command(job: Job, fits: selection.Fits, states: tuple[str, ...]) -> questions.Answered:
    """List every rank, including those without a line in the log; the worst state first.

    States: failed (reports an error, in a job that failed), missing (no line in the log), silent (no line after the
    first error, while most others have some), seen (no communicator yet), begun (its communicator is incomplete),
    initialised (communicator complete, no connections), connected, ended (orderly).
    """
    everybody = ranks.rows(job)
    rows = [
        row
        for row in everybody
        if (not states or row.state in states) and fits([] if row.rank is None else [row.rank], [row.host])
    ]
    none = f"no rank is {' or '.join(states)}" if states else "no rank matches"
    return rows, none if everybody else "the log names no rank"
