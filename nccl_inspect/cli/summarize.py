"""``nccl-inspect summarize``: the main job."""

from __future__ import annotations

import click

from nccl_inspect import reading, report
from nccl_inspect.cli import shared

_EXAMPLES = """
\b
Examples:
  nccl-inspect summarize job.log
  kubectl logs llama-node-0-0 | nccl-inspect summarize
  nccl-inspect summarize rank*.log --format json -o job.json
  nccl-inspect summarize job.log --topology topo.txt    (nvidia-smi topo -m > topo.txt)
  nccl-inspect summarize job.log --fail-on error --select 'socket-*' --select gdr-disabled
"""


@click.command(epilog=_EXAMPLES, short_help="Verdict, network, paths and findings of one job.")
@shared.inputs
@shared.formats(report.names())
@shared.choosing
@shared.judging
@shared.output
@click.option("-v", "--verbose", is_flag=True, help="Do not cut evidence lines.")
def command(
    logs: tuple[str, ...],
    form: str,
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    platform: str | None,
    topologies: tuple[str, ...],
    progress: bool | None,
    output: str,
    no_color: bool,
    verbose: bool,
) -> int:
    """Verdict, job, network, paths and findings of one job."""
    options = reading.Options(platform, topologies, select, ignore)
    job = shared.read(logs, options, progress)
    shared.write(report.load(form).render(job, shared.style(no_color, output, verbose)), output)
    return shared.status(job, fail_on)
