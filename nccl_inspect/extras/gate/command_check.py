"""``nccl-inspect check``: a gate for pipelines."""

from __future__ import annotations

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.cli.shared import format_option
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.gate.policy import file, learn
from nccl_inspect.extras.gate.policy import formats as forms
from nccl_inspect.extras.gate.policy.worst import Worst
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading

_EXAMPLES = """
Examples:
  nccl-inspect check good.log --learn -o policy.toml
  nccl-inspect check job.log --policy policy.toml
  nccl-inspect check logs/ --policy policy.toml --strict --format json -o check.json
  nccl-inspect check job.log --policy policy.toml --format junit -o nccl.xml

Exit status: 0 the policy is kept; 1 it is broken, or with --strict undecided (with --learn: the log does not show a
healthy job, so nothing is written); 3 no readable input, or the policy is kept by the part that could be read.
"""


@click.command(epilog=_EXAMPLES, short_help="Check a job against a policy; exit 1 and list violations.")
@shared.inputs
@click.option("--policy", metavar="FILE", type=shared.FILE, help="Policy file: expectations in TOML.")
@click.option("--learn", "learns", is_flag=True, help="Generate a policy from a known-good log.")
@click.option("--force", is_flag=True, help="With --learn: accept a log that does not show a healthy job.")
@click.option("--strict", is_flag=True, help="Treat undecided expectations as broken.")
@format_option(forms.names(), forms.load)
@shared.rule_options
@shared.read_options
@shared.output_options
@shared.verbose_option("Also list expectations that are kept.")
def command(
    logs: tuple[str, ...],
    policy: str | None,
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
    if learns == (policy is not None):
        raise click.UsageError("give either --policy FILE, or --learn to write one from a good log")
    if force and not learns:
        raise click.UsageError("--force needs --learn")
    expected = file.read(policy) if policy is not None else None
    if expected is None:
        return _learn(shared.read(logs, options), force, out)
    worst = Worst(expected)
    job = shared.read(logs, options, visit=worst.take)
    checked = worst.checked(job)
    out.write(forms.load(form).render(checked, strict, out.style))
    return shared.gate(not checked.is_met(strict), job)


def _learn(job: Job, force: bool, out: shared.Output) -> int:
    """Write a policy, unless the log would make a bad one."""
    if job.partial:
        print_stderr("not written: reading was interrupted")
        return shared.status(job)
    if job.jobs:
        raise NcclInspectError(f"the input holds {len(job.jobs)} jobs", "select the one to learn from with --job")
    doubt = learn.doubt(job)
    if doubt and not force:
        hint = "use the whole log of a run that 'nccl-inspect summarize' calls OK, or add --force"
        print_stderr(f"not written: {doubt}; {hint}")
        return 1
    if not doubt and (caution := learn.caution(job)):
        print_stderr(f"warning: {caution}; a longer log gives a policy that fits more runs")
    out.write(learn.policy(job))
    return 0
