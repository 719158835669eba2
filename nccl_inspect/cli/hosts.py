"""``nccl-inspect hosts``: the hosts, worst first."""

from __future__ import annotations

import click

from nccl_inspect.answers import hosts, selection
from nccl_inspect.cli import questions, shared, writing
from nccl_inspect.pipeline import reading

_EXAMPLES = """
\b
Examples:
  nccl-inspect hosts job.log
  nccl-inspect hosts job.log --limit 5              the worst five
  nccl-inspect hosts job.log --finding 'nic-*'      hosts named by such findings
  nccl-inspect hosts job.log --format csv -o hosts.csv
"""


@click.command(epilog=_EXAMPLES, short_help="List hosts, worst first: findings, paths, NICs, GPUs, last line.")
@questions.question_options("hosts")
@shared.finding_option("Only hosts named by these findings")
def command(
    logs: tuple[str, ...],
    places: selection.PlaceFilter,
    rules: tuple[str, ...],
    limit: int | None,
    form: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """List hosts, worst first: by the severity of their findings, then by paths slower than expected.

    A path counts for both of its hosts. On Kubernetes a host is a pod, unless pods use the network of the node.
    """
    names = selection.rules_known(rules)
    job = shared.read(logs, options)
    fits = places.of(job)
    rows = [
        row
        for row in hosts.rows(job)
        if fits(row.ranks, [row.host]) and (not names or not names.isdisjoint(row.findings))
    ]
    questions.answer(hosts, rows, "host", "no host matches" if job.hosts else "the log names no host", form, limit, out)
    return shared.status(job)
