"""``nccl-inspect diff``: what changed between two runs."""

from __future__ import annotations

import click

from nccl_inspect.cli import shared
from nccl_inspect.extras.gate import differences
from nccl_inspect.extras.gate.formats import DIFF_FORMATS
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.pipeline import reading

_EXAMPLES = """
Examples:
  nccl-inspect diff yesterday.log today.log
  kubectl logs job/llama | nccl-inspect diff good.log -
  nccl-inspect diff run1/ run2/ --fail-on warning --format json -o diff.json

Exit status: 0 compared; 1 the runs differ (--exit-code), or B has a finding
that A lacks (--fail-on); 3 A or B cannot be read, or, with --exit-code or
--fail-on, only part of one; 130 Ctrl-C: what was read of B is compared;
if B was not begun, nothing is.
"""
_FAIL_ON = "Exit with status 1 if B has a finding of this severity or higher that A lacks, or only B failed."


@click.command(epilog=_EXAMPLES, short_help="Show what changed between two runs, and which change explains which.")
@click.argument("before", metavar="A", type=shared.FILE)
@click.argument("after", metavar="B", type=shared.FILE)
@shared.format_option(DIFF_FORMATS, DIFF_FORMATS.__getitem__)
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if there is any difference.")
@shared.fail_on_option(_FAIL_ON)
@shared.rule_options
@shared.read_options
@shared.output_options
def command(
    before: str,
    after: str,
    form: str,
    exit_code: bool,
    fail_on: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """Compare versions, network, environment, communicators, paths and findings: what B adds, lacks or changes.

    A and B are each a file, a folder or an archive of logs, or a quoted glob; one of them may be - (standard input).
    Runs are compared by rank: host names and process ids may differ. If a change explains a finding of B, the report
    shows how to fix the finding and how to revert the change. If A or B holds several jobs, the worst one is compared;
    --job selects another by name or number, in each input that holds several.
    """
    if before == after == "-":
        raise click.UsageError("only one of the two runs can be standard input; name a file for the other")
    options = shared.with_settings_file(options)
    a = shared.read((before,), options, is_last=False, is_one_of_two=True)
    if a.partial:
        raise KeyboardInterrupt
    b = shared.read((after,), options, is_one_of_two=True)
    difference = differences.compare(a, b)
    out.write(DIFF_FORMATS[form].render(difference, out.style))
    if not exit_code and fail_on == "never":
        return shared.status(b)
    is_closed = exit_code and bool(difference.changes)
    if fail_on != "never" and not is_closed:
        is_closed = b.verdict == "failed" != a.verdict
        for old, new in differences.pair_findings(a.findings, b.findings):  # that A lacks, or has at a lower severity
            is_new = new and (old is None or SEVERITIES.index(old.severity) < SEVERITIES.index(new.severity))
            is_closed |= bool(new and is_new and SEVERITIES.index(new.severity) >= SEVERITIES.index(fail_on))
    return shared.gate(is_closed, a, b)
