"""``nccl-inspect summarize``: the main job."""

from __future__ import annotations

import click

from nccl_inspect import reading, report
from nccl_inspect.cli import shared, writing
from nccl_inspect.cli.formats import formats

_EXAMPLES = """
\b
Examples:
  nccl-inspect summarize job.log
  kubectl logs llama-node-0-0 | nccl-inspect summarize
  nccl-inspect summarize rank*.log --format json -o job.json
  nccl-inspect summarize job.log --topology topo.txt    (nvidia-smi topo -m > topo.txt)
  nccl-inspect summarize logs/ --job 2    (of a folder with several jobs)
  nccl-inspect summarize job.log --fail-on error --select 'socket-*' --select gdr-disabled
"""


@click.command(epilog=_EXAMPLES, short_help="Verdict, network, paths and findings of one job.")
@shared.inputs
@formats(report.names())
@shared.choosing
@shared.judging
@shared.output
@shared.verbose("Do not cut evidence lines.")
def command(
    logs: tuple[str, ...],
    form: str,
    fail_on: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """Verdict, job, network, paths and findings of one job."""
    job = shared.read(logs, options, tells_runs=True, tells_jobs=True)
    out.write(report.load(form).render(job, out.style))
    return shared.status(job, fail_on)
