"""``nccl-inspect summarize``: the main job."""

from __future__ import annotations

import click

from nccl_inspect import reading, report
from nccl_inspect.cli import shared
from nccl_inspect.model.job import Job
from nccl_inspect.rules.engine import SEVERITIES

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
@click.option(
    "--format", "form", type=click.Choice(report.names()), default="text", show_default=True, help="Output format."
)
@click.option(
    "--fail-on",
    type=click.Choice(("error", "warning", "info", "never")),
    default="never",
    show_default=True,
    help="Exit with status 1 when there is a finding of this severity or a higher one.",
)
@click.option(
    "--select", multiple=True, metavar="RULE", help="Run only these rules: name, glob or category. May be repeated."
)
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave these rules out. May be repeated.")
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
    """Verdict, job, network, paths and findings of one job.

    LOG is a file (plain or gzip), a folder of logs, or - for standard input, which is also read when nothing is
    named and something is piped in. Several LOGs are parts of one job.
    """
    options = reading.Options(platform, topologies, select, ignore)
    job = shared.read(logs, options, progress)
    shared.write(report.load(form).render(job, shared.style(no_color, output, verbose)), output)
    return status(job, fail_on)


def status(job: Job, fail_on: str) -> int:
    """The exit status: 1 when a finding is as severe as asked for."""
    if fail_on == "never":
        return 0
    limit = SEVERITIES.index(fail_on)
    return int(any(SEVERITIES.index(finding.severity) >= limit for finding in job.findings))
