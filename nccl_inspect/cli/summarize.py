"""``nccl-inspect summarize``: the main job."""

from __future__ import annotations

import click

from nccl_inspect import report
from nccl_inspect.cli import shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading

_BRIEF = ("text", "markdown")
"""Formats of ``--brief``."""
_EXAMPLES = """
\b
Examples:
  nccl-inspect summarize job.log
  kubectl logs llama-node-0-0 | nccl-inspect summarize
  nccl-inspect summarize job.log --brief    (ten lines for a colleague)
  nccl-inspect summarize rank*.log --format json -o job.json
  nccl-inspect summarize job.log --topology topo.txt    (nvidia-smi topo -m > topo.txt)
  nccl-inspect summarize logs/ --job 2    (of a folder with several jobs)
  nccl-inspect summarize job.log --fail-on error --select 'socket-*' --select gdr-disabled
"""


@click.command(epilog=_EXAMPLES, short_help="Report the verdict, network, paths and findings of one job.")
@shared.inputs
@formats(report.names())
@shared.choosing
@shared.judging
@shared.output
@shared.verbose("Show evidence lines in full.")
@click.option(
    "--brief",
    "is_brief",
    is_flag=True,
    help="Ten lines for a colleague: verdict, culprit, cause, first fix, evidence; text or Markdown.",
)
def command(
    logs: tuple[str, ...],
    form: str,
    is_brief: bool,
    fail_on: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """Report the verdict, job, network, paths and findings of one job."""
    if is_brief and form not in _BRIEF:
        raise click.UsageError(f"--brief supports {' or '.join(_BRIEF)}, not {form}; omit one of them")
    job = shared.read(logs, options, tells_runs=True, tells_jobs=True)
    out.write(_brief(job, form) if is_brief else report.load(form).render(job, out.style))
    return shared.status(job, fail_on)


def _brief(job: Job, form: str) -> str:
    from nccl_inspect.report import brief  # only where it is asked for

    return brief.render(job, form)
