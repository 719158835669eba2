"""``nccl-inspect check``: a gate for pipelines."""

from __future__ import annotations

import json

import click

from nccl_inspect import reading
from nccl_inspect.cli import say, shared
from nccl_inspect.model.job import Job
from nccl_inspect.policy import document, file, learn, words

_EXAMPLES = """
\b
Examples:
  nccl-inspect check good.log --learn -o policy.toml
  nccl-inspect check job.log --policy policy.toml
  nccl-inspect check logs/ --policy policy.toml --strict --format json -o check.json

Exit status: 0 the policy is kept; 1 it is broken, or with --strict undecided; with --learn: 1 the log is not healthy.
"""


@click.command(epilog=_EXAMPLES, short_help="Hold a job against a policy: exit 1 with what broke.")
@shared.inputs
@click.option("--policy", metavar="FILE", type=shared.FILE, help="Expectations, as TOML.")
@click.option("--learn", "learns", is_flag=True, help="Write a policy from this log, which is a good one.")
@click.option("--strict", is_flag=True, help="What the log does not tell breaks the policy, too.")
@shared.formats(("text", "json"))
@shared.selecting
@shared.judging
@shared.output
@click.option("-v", "--verbose", is_flag=True, help="Tell what is kept, too.")
def command(
    logs: tuple[str, ...],
    policy: str | None,
    learns: bool,
    strict: bool,
    form: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    platform: str | None,
    topologies: tuple[str, ...],
    progress: bool | None,
    output: str,
    no_color: bool,
    verbose: bool,
) -> int:
    """Hold a job against a policy: transports, GPUDirect, channels, versions, environment, severities.

    Each expectation is kept, broken, or undecided where the log does not tell. What is broken is told in one line with
    what was found, the line of the log, and what to do.
    """
    if learns == (policy is not None):
        raise click.UsageError("give either --policy FILE, or --learn to write one from a good log")
    expected = file.read(policy) if policy is not None else None
    job = shared.read(logs, reading.Options(platform, topologies, select, ignore), progress)
    if expected is None:
        return _learn(job, output)
    checked = expected.check(job)
    if form == "json":
        text = json.dumps(document.to_dict(checked, strict), indent=1) + "\n"
    else:
        text = words.render(checked, strict, shared.style(no_color, output, verbose))
    shared.write(text, output)
    return shared.status(job) or int(not checked.is_met(strict))


def _learn(job: Job, output: str) -> int:
    """Write a policy, unless the log would make a bad one."""
    if job.partial:
        return shared.status(job)
    if job.verdict in ("failed", "degraded"):
        leads = [finding.rule for finding in job.findings if finding.severity != "info"]
        because = f" ({leads[0]})" if leads else ""
        say(
            f"not written: the job is {job.verdict}{because}; take the log of a good run, or accept the finding "
            "with a reason under [[suppress]] in nccl-inspect.toml"
        )
        return 1
    if job.verdict == "unknown":
        say("the log leaves open whether the job is healthy; 'nccl-inspect summarize' says what is missing")
    shared.write(learn.policy(job), output)
    return 0
