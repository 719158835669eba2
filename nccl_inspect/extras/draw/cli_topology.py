"""``nccl-inspect topology``: communicators, rings and trees."""

from __future__ import annotations

from dataclasses import replace

import click

from nccl_inspect import topology as machines
from nccl_inspect.answers import selection
from nccl_inspect.cli import shared
from nccl_inspect.extras import draw as drawings
from nccl_inspect.pipeline import reading
from nccl_inspect.report.picture import View, make_views


def pick_largest(candidates: list[View]) -> list[View]:
    """Return the communicator that a picture shows by default: the largest one with links."""
    if len(candidates) < 2:
        return candidates
    best = max(candidates, key=lambda view: (bool(view.links), view.comm.nranks))
    return [replace(best, others=tuple(view.comm.id for view in candidates if view is not best))]


@click.command(short_help="Show communicators with their rings and trees, as text or a picture.")
@shared.inputs
@shared.communicator_option("Default: all; in a picture, the largest.")
@click.option("--channel", "wanted", multiple=True, metavar="C", help="Only these channels: 0 or 0-3. May be repeated.")
@shared.format_option(drawings.names(), drawings.load)
@shared.read_options
@shared.output_options
def command(
    logs: tuple[str, ...],
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    form: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """Show communicators with their hosts, rings and trees, in global ranks.

    Each link shows its transport if the log has a connection line for it. Above 64 ranks, pictures show hosts instead
    of ranks. Machines are shown with --topology, or if the log holds NCCL's own topology (subsystem GRAPH).

    Examples:
      nccl-inspect topology job.log
      nccl-inspect topology job.log --format svg -o job.svg
      nccl-inspect topology job.log --format dot | dot -Tpng -o job.png
      nccl-inspect topology job.log --communicator 'split 1*' --channel 0
      nccl-inspect topology job.log --topology topo.xml  (the file of NCCL_TOPO_DUMP_FILE)
    """
    channels = selection.parse_ranges("channel", wanted)
    given = [machines.read(path) for path in options.topologies]
    job = shared.read(logs, options)
    format_ = drawings.load(form)
    chosen = selection.match_communicators(job, names)
    comms = [comm for comm in job.communicators if not chosen or comm.id in chosen]
    sizes = [max(comm.channels or 0, len(comm.rings), len(comm.trees)) for comm in comms]
    paths = job.paths.filter_values(("communicators",), set(chosen).intersection) if chosen else job.paths
    known = {*range(max(sizes, default=0)), *(channel for kind in paths.kinds for channel in kind.channels)}
    selection.require_numbers("channel", channels, known)
    chosen_views = make_views(job, chosen, channels)
    if format_.DRAWS and not names:
        chosen_views = pick_largest(chosen_views)
    machines_known = [*given, *machines.topologies(job)]
    out.write(format_.render(chosen_views, machines_known, out.style))
    return shared.status(job)
