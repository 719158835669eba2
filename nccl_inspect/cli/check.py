"""``nccl-inspect check``: a gate for pipelines."""

from __future__ import annotations

import json

import click

from nccl_inspect import reading
from nccl_inspect.cli import say, shared
from nccl_inspect.cli.formats import formats
from nccl_inspect.model.job import Job
from nccl_inspect.policy import document, file, learn, words

_EXAMPLES = """
\b
Examples:
  nccl-inspect check good.log --learn -o policy.toml
  nccl-inspect check job.log --policy policy.toml
  nccl-inspect check logs/ --policy policy.toml --strict --format json -o check.json

Exit status: 0 the policy is kept; 1 it is broken, or with --strict undecided (with --learn: the log does not show a
healthy job, and nothing is written); 3 no input could be read, or the policy is kept as far as it could.
"""


@click.command(epilog=_EXAMPLES, short_help="Hold a job against a policy: exit 1 with what broke.")
@shared.inputs
@click.option("--policy", metavar="FILE", type=shared.FILE, help="Expectations, as TOML.")
@click.option("--learn", "learns", is_flag=True, help="Write a policy from this log, which is a good one.")
@click.option("--force", is_flag=True, help="Learn also from a log that does not show a healthy job.")
@click.option("--strict", is_flag=True, help="What the log does not tell breaks the policy, too.")
@formats(("text", "json"))
@shared.selecting
@shared.judging
@shared.output
@shared.verbose("Tell what is kept, too.")
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
    """Hold a job against a policy: transports, GPUDirect, channels, versions, environment, severities.

    Each expectation is kept, broken, or undecided where the log does not tell. What is broken is told in one line with
    what was found, the line of the log, and what to do.
    """
    if learns == (policy is not None):
        raise click.UsageError("give either --policy FILE, or --learn to write one from a good log")
    if force and not learns:
        raise click.UsageError("--force belongs to --learn")
    expected = file.read(policy) if policy is not None else None
    job = shared.read(logs, options)
    if expected is None:
        return _learn(job, force, out)
    checked = expected.check(job)
    if form == "json":
        text = json.dumps(document.to_dict(checked, strict), indent=1) + "\n"
    else:
        text = words.render(checked, strict, out.style)
    out.write(text)
    return shared.gate(not checked.is_met(strict), job)


def _learn(job: Job, force: bool, out: shared.Output) -> int:
    """Write a policy, unless the log would make a bad one."""
    if job.partial:
        return shared.status(job)
    doubt = learn.doubt(job)
    if doubt and not force:
        say(f"not written: {doubt}; take the log of a good run that 'nccl-inspect summarize' calls OK, or add --force")
        return 1
    out.write(learn.policy(job))
    return 0
