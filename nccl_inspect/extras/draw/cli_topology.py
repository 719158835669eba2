"""``nccl-inspect topology``: communicators, rings and trees."""

from __future__ import annotations

import click

from nccl_inspect import topology as machines
from nccl_inspect.answers import selection
from nccl_inspect.cli import filters, shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.extras import draw as drawings
from nccl_inspect.pipeline import reading
from nccl_inspect.report.picture.view import channels_of, largest, views
from nccl_inspect.topology import detected

_EXAMPLES = """
Examples:
  nccl-inspect topology job.log
  nccl-inspect topology job.log --format svg -o job.svg
  nccl-inspect topology job.log --format dot | dot -Tpng -o job.png
  nccl-inspect topology job.log --communicator 'split 1*' --channel 0
  nccl-inspect topology job.log --topology topo.xml  (the file of NCCL_TOPO_DUMP_FILE)
"""


@click.command(epilog=_EXAMPLES, short_help="Show communicators with their rings and trees, as text or a picture.")
@shared.inputs
@filters.communicator_option("Default: all; in a picture, the largest.")
@click.option("--channel", "wanted", multiple=True, metavar="C", help="Only these channels: 0 or 0-3. May be repeated.")
@formats(drawings.names(), drawings.load)
@shared.read_options
@shared.output_options
def command(
    logs: tuple[str, ...],
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    form: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """Show communicators with their hosts, rings and trees, in global ranks.

    Each link shows its transport if the log has a connection line for it. Above 64 ranks, pictures show hosts instead
    of ranks. Machines are shown with --topology, or if the log holds NCCL's own topology (subsystem GRAPH).
    """
    channels = selection.ranges_of("channel", wanted)
    given = [machines.read(path) for path in options.topologies]
    job = shared.read(logs, options)
    format_ = drawings.load(form)
    chosen = selection.communicators_named(job, names)
    selection.require_numbers("channel", channels, channels_of(job, chosen))
    chosen_views = views(job, chosen, channels)
    if format_.DRAWS and not names:
        chosen_views = largest(chosen_views)
    machines_known = [*given, *detected.topologies(job)]
    out.write(format_.render(chosen_views, machines_known, out.style))
    return shared.status(job)
