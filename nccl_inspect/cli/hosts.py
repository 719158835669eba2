"""``nccl-inspect hosts``: the hosts, worst first."""

from __future__ import annotations

import click

from nccl_inspect.answers import hosts, selection
from nccl_inspect.cli import filters, questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect hosts job.log
  nccl-inspect hosts job.log --limit 5              the worst five
  nccl-inspect hosts job.log --finding 'nic-*'      hosts named by such findings
  nccl-inspect hosts job.log --format csv -o hosts.csv
"""


@click.command(epilog=_EXAMPLES, short_help="List hosts, worst first: findings, paths, NICs, GPUs, last line.")
@questions.question(hosts, "host")
@filters.finding_option("Only hosts named by these findings")
def command(job: Job, fits: selection.Fits, rules: frozenset[str]) -> questions.Answered:
    """List hosts, worst first: by the severity of their findings, then by paths slower than expected.

    A path counts for both of its hosts. On Kubernetes a host is a pod, unless pods use the network of the node.
    """
    rows = [
        row
        for row in hosts.rows(job)
        if fits(row.ranks, [row.host]) and (not rules or not rules.isdisjoint(row.findings))
    ]
    return rows, "no host matches" if job.hosts else "the log names no host"
