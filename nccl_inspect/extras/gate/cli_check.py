"""``nccl-inspect check``: a gate for pipelines."""

from __future__ import annotations

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.cli.shared import format_option
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.gate import learning
from nccl_inspect.extras.gate.formats import CHECK_FORMATS
from nccl_inspect.extras.gate.policy import Policy, Worst, expect_no_actions, read_policy
from nccl_inspect.extras.live import exit_conditions
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading

_EXAMPLES = """
Examples:
  nccl-inspect check good.log --learn -o policy.toml
  nccl-inspect check job.log --policy policy.toml
  nccl-inspect check logs/ --policy policy.toml --strict --format json -o check.json
  nccl-inspect check job.log --policy policy.toml --format junit -o nccl.xml
  nccl-inspect check job.log --exit-on action=drain-host     before the next start: is a host at fault?

Exit status: 0 the policy is kept; 1 it is broken, a finding needs an action of --exit-on, or --strict and undecided
(with --learn: the log does not show a healthy job, so nothing is written); 3 no readable input, or the policy is kept
by the part that could be read.
"""


@click.command(epilog=_EXAMPLES, short_help="Check a job against a policy; exit 1 and list violations.")
@shared.inputs
@click.option("--policy", metavar="FILE", type=shared.FILE, help="Policy file: expectations in TOML.")
@click.option(
    "--exit-on",
    "exit_on",
    type=click.Choice(exit_conditions.TO_ACT),
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if a finding needs this action: action=drain-host, …=fix-then-restart, …=restart, …=wait. Needs "
    "no policy; may be repeated.",
)
@click.option("--learn", "learns", is_flag=True, help="Generate a policy from a known-good log.")
@click.option("--force", is_flag=True, help="With --learn: accept a log that does not show a healthy job.")
@click.option("--strict", is_flag=True, help="Treat undecided expectations as broken.")
@format_option(CHECK_FORMATS, CHECK_FORMATS.__getitem__)
@shared.rule_options
@shared.read_options
@shared.output_options
@shared.verbose_option("Also list expectations that are kept.")
def command(
    logs: tuple[str, ...],
    policy: str | None,
    exit_on: tuple[str, ...],
    learns: bool,
    force: bool,
    strict: bool,
    form: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """Check a job against a policy: transports, GPUDirect, channels, versions, environment, severities.

    Each expectation is kept, broken, or undecided if the log does not show it. For each violation the report states
    what was found, the log line and the fix; a fix for several violations is listed once.
    """
    if learns == bool(policy is not None or exit_on):
        raise click.UsageError("give either --policy FILE, or --learn to write one from a good log, or --exit-on")
    if force and not learns:
        raise click.UsageError("--force needs --learn")
    if learns:
        return _learn(shared.read(logs, options), force, out)
    expected = read_policy(policy) if policy is not None else Policy("--exit-on", [])
    if exit_on:
        unwanted = tuple(condition.partition("=")[2] for condition in exit_on)
        expected = expected.with_fields(expectations=[*expected.expectations, expect_no_actions(unwanted)])
    worst = Worst(expected)
    job = shared.read(logs, options, visit=worst.take)
    checked = worst.check_worst(job)
    out.write(CHECK_FORMATS[form].render(checked, strict, out.style))
    return shared.gate(not checked.is_met(strict), job)


def _learn(job: Job, force: bool, out: shared.Output) -> int:
    """Write a policy, unless the log would make a bad one."""
    if job.partial:
        print_stderr("not written: reading was interrupted")
        return shared.status(job)
    if job.jobs:
        raise NcclInspectError(f"the input holds {len(job.jobs)} jobs", "select the one to learn from with --job")
    doubt = learning.doubt(job)
    if doubt and not force:
        hint = "use the whole log of a run that 'nccl-inspect summarize' calls OK, or add --force"
        print_stderr(f"not written: {doubt}; {hint}")
        return 1
    if not doubt and (caution := learning.caution(job)):
        print_stderr(f"warning: {caution}; a longer log gives a policy that fits more runs")
    out.write(learning.write_policy(job))
    return 0
