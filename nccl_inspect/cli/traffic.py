"""``nccl-inspect traffic``: the collectives of a job and the bytes on each path."""

from __future__ import annotations

import click

from nccl_inspect import traffic as reports
from nccl_inspect.answers import selection
from nccl_inspect.cli import filters, shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.pipeline import reading
from nccl_inspect.traffic.flows import traffic_of

_EXAMPLES = """
Examples:
  nccl-inspect traffic job.log    (of a job with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING)
  nccl-inspect traffic job.log --communicator world
  nccl-inspect traffic job.log --format csv --by path -o paths.csv
  nccl-inspect traffic job.log --format json --platform p5.48xlarge
"""


@click.command(epilog=_EXAMPLES, short_help="Show collectives by size and algorithm, and the bytes on each path.")
@shared.inputs
@filters.communicator_option()
@click.option(
    "--by", type=click.Choice(reports.BY), default="operation", show_default=True, help="What each csv row is."
)
@formats(reports.names(), reports.load)
@shared.read_options
@shared.output_options
def command(
    logs: tuple[str, ...],
    names: tuple[str, ...],
    by: str,
    form: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """Show collectives and send/recv by communicator, size, algorithm and protocol, and the payload on each path.

    The log needs subsystem COLL; with TUNING it also names the algorithms, otherwise rings are assumed and marked.
    Times are estimates from the usual bandwidth of such paths; --platform narrows them.
    """
    job = shared.read(logs, options)
    traffic = traffic_of(job, selection.communicators_named(job, names))
    out.write(reports.load(form).render(traffic, by, out.style))
    return shared.status(job)
