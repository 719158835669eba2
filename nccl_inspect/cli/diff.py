"""``nccl-inspect diff``: what changed between two runs."""

from __future__ import annotations

import click

from nccl_inspect.cli import shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.differences import Difference, compare, findings
from nccl_inspect.differences import formats as forms
from nccl_inspect.pipeline import reading

_EXAMPLES = """
\b
Examples:
  nccl-inspect diff yesterday.log today.log
  kubectl logs job/llama | nccl-inspect diff good.log -
  nccl-inspect diff run1/ run2/ --fail-on warning --format json -o diff.json
  nccl-inspect diff good.log bad.log -o diff.html     for a ticket; or diff.md

Exit status: 0 compared; 1 they differ (--exit-code), or B has a finding
that A does not have (--fail-on); 3 one of them cannot be read, or for a gate
(--exit-code, --fail-on) a part of one; 130 Ctrl-C: B is compared as far as it was read, and nothing before that.
"""
_FAIL_ON = "Exit with status 1 when B has a finding of this severity or a higher one that A has not, or B alone failed."


@click.command(epilog=_EXAMPLES, short_help="What changed between two runs, and which change explains which.")
@click.argument("before", metavar="A", type=shared.FILE)
@click.argument("after", metavar="B", type=shared.FILE)
@formats(forms.names())
@click.option("--exit-code", is_flag=True, help="Exit with status 1 when there is any difference.")
@shared.failing(_FAIL_ON)
@shared.selecting
@shared.judging
@shared.output
def command(
    before: str,
    after: str,
    form: str,
    exit_code: bool,
    fail_on: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """Versions, network, environment, communicators, paths and findings: what B has, what it lacks, what is other.

    A and B are each a file, a folder or an archive of logs, or a quoted glob; one of them may be -, standard input.
    Runs are compared by their ranks: names of hosts and process ids may differ. Where a change explains a finding of
    B, the report says how to mend it, and what takes the change back. Of several jobs in A or B the worst one is
    compared; --job selects by name or number in each of them that holds several.
    """
    if before == after == "-":
        raise click.UsageError("standard input can be one of the two runs only; name a file for the other")
    options = shared.settled(options)
    a = shared.read((before,), options, is_last=False, is_one_of_two=True)
    if a.partial:
        raise KeyboardInterrupt
    b = shared.read((after,), options, is_one_of_two=True)
    difference = compare.compare(a, b)
    out.write(forms.load(form).render(difference, out.style))
    if not exit_code and fail_on == "never":
        return shared.status(b)
    return shared.gate((exit_code and bool(difference.changes)) or _is_worse(difference, fail_on), a, b)


def _is_worse(difference: Difference, fail_on: str) -> bool:
    if fail_on == "never":
        return False
    a, b = difference.a, difference.b
    return bool(findings.worse(a, b, fail_on)) or (b.verdict == "failed" != a.verdict)
