"""``nccl-inspect traffic``: the collectives of a job and the bytes on each path."""

from __future__ import annotations

import click

from nccl_inspect.answers import selection
from nccl_inspect.cli import shared
from nccl_inspect.cli.shared import format_option
from nccl_inspect.pipeline import reading
from nccl_inspect.traffic import BY, FORMATS, count_traffic

_EXAMPLES = """
Examples:
  nccl-inspect traffic job.log    (of a job with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING)
  nccl-inspect traffic job.log --communicator world
  nccl-inspect traffic job.log --format csv --by path -o paths.csv
  nccl-inspect traffic job.log --format json --platform p5.48xlarge
"""


@click.command(epilog=_EXAMPLES, short_help="Show collectives by size and algorithm, and the bytes on each path.")
@shared.inputs
@shared.communicator_option()
@click.option("--by", type=click.Choice(BY), default="operation", show_default=True, help="What each csv row is.")
@format_option(FORMATS)
@shared.read_options
@shared.output_options
def command(
    logs: tuple[str, ...],
    names: tuple[str, ...],
    by: str,
    form: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """Show collectives and send/recv by communicator, size, algorithm and protocol, and the payload on each path.

    The log needs subsystem COLL; with TUNING it also names the algorithms, otherwise rings are assumed and marked.
    Times are estimates from the usual bandwidth of such paths; --platform narrows them.
    """
    job = shared.read(logs, options)
    traffic = count_traffic(job, selection.match_communicators(job, names))
    out.write(FORMATS[form](traffic, by, out.style))
    return shared.status(job)
