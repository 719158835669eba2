"""``nccl-inspect check``: a gate for pipelines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from nccl_inspect._version import __version__
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.gate import policy as policies
from nccl_inspect.extras.gate.formats import CHECK_FORMATS
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.pipeline import reading
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, list_words

_EXAMPLES = """
Examples:
  nccl-inspect check good.log --learn -o policy.toml
  nccl-inspect check job.log --policy policy.toml
  nccl-inspect check logs/ --policy policy.toml --strict --format json -o check.json
  nccl-inspect check job.log --policy policy.toml --format junit -o nccl.xml

Exit status: 0 the policy is kept, or undecided without --strict; 1 it is broken, or --strict and undecided (with
--learn: the log does not show a healthy job, so nothing is written); 3 no readable input, or the policy is kept by the
part that could be read.
"""


@click.command(epilog=_EXAMPLES, short_help="Check a job against a policy; exit 1 and list violations.")
@shared.inputs
@click.option("--policy", metavar="FILE", type=shared.FILE, help="Policy file: expectations in TOML.")
@click.option("--learn", "learns", is_flag=True, help="Generate a policy from a known-good log.")
@click.option("--force", is_flag=True, help="With --learn: accept a log that does not show a healthy job.")
@click.option("--strict", is_flag=True, help="Treat undecided expectations as broken.")
@shared.format_option(CHECK_FORMATS, CHECK_FORMATS.__getitem__)
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
    if learns:
        job = shared.read(logs, options)
        if job.partial:
            print_stderr("not written: reading was interrupted")
            return shared.status(job)
        if job.jobs:
            raise NcclInspectError(f"the input holds {len(job.jobs)} jobs", "select the one to learn from with --job")
        doubt = find_doubt(job)
        if doubt and not force:
            hint = "use the whole log of a run that 'nccl-inspect summarize' calls OK, or add --force"
            print_stderr(f"not written: {doubt}; {hint}")
            return 1
        if not doubt and (caution := find_caution(job)):
            print_stderr(f"warning: {caution}; a longer log gives a policy that fits more runs")
        out.write(write_policy(job))
        return 0
    worst = policies.Worst(policies.read_policy(policy or ""))
    job = shared.read(logs, options, visit=worst.take)
    checked = worst.check_worst(job)
    out.write(CHECK_FORMATS[form].render(checked, strict, out.style))
    return shared.gate(not checked.is_met(strict), job)


# A policy from a good log

_HARMFUL = ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1")
"""Settings that take the fast paths away; a good log without them is a reason to keep them out."""
_OVER = ("destroyed", "aborted")  # states that a communicator has only after all others
_OF_ONE_RUN = re.compile(r"NCCL_COMM_ID|NCCL_HOSTID|NCCL_DEBUG.*|.*_FILE|.*_PATH")
"""Variables whose values say nothing about the next run."""
_SCOPE_WORDS = {"intra": "within a host", "inter": "between hosts"}


def write_policy(job: Job) -> str:
    """Return the policy as TOML with comments."""
    present = {setting.name for setting in job.environment}
    names = [(entry.partition("=")[0], entry) for entry in _HARMFUL]
    required = []
    for setting in job.environment:
        is_users = setting.source == "environment" and setting.ranks is None
        if is_users and not _OF_ONE_RUN.fullmatch(setting.name) and escape_controls(setting.value) == setting.value:
            value = re.sub(r"([*?[])", r"[\1]", setting.value)  # a glob that fits only this value
            required.append(f"{setting.name}={value}")
    paths = []
    for scope in policies.SCOPES:
        kinds = policies.select_scope(scope, job).kinds
        ways = [way for kind in kinds for way in policies.list_ways(kind)]
        paths.append((scope, _SCOPE_WORDS[scope], ways, min((len(kind.channels) for kind in kinds), default=0)))
    from nccl_inspect.report import words  # few policies are written

    pages = words.environment(Path(__file__).parent).overlay(autoescape=False)
    pages.filters |= {
        # Strings of JSON are those of TOML.
        "toml": lambda words: json.dumps(list(map(escape_controls, words)), ensure_ascii=False),
        "sort_names": lambda words: sorted(set(words)),
    }
    context = {
        "version": __version__,
        "names": list_words(escape_controls(source.name) for source in job.sources),
        "job": job,
        "doubt": find_doubt(job),
        "caution": find_caution(job),
        "comm": policies.world_communicator(job),
        "hosts": policies.count_hosts(job),
        "versions": [version for version in job.nccl_versions if "inferred" not in version],
        "paths": paths,
        "forbidden": [entry for name, entry in names if name not in present and is_echoed(name, job.nccl_versions)],
        "required": required,
    }
    return pages.get_template("policy.toml.j2").render(context)


def find_doubt(job: Job) -> str:
    """Return why the log does not show what a healthy job is like; empty when it does."""
    unread = sum(bool(source.problem) for source in job.sources)
    if unread:
        return f"{count(unread, 'input')} could not be read"
    if job.verdict in ("failed", "degraded"):
        leads = [finding.rule for finding in job.findings if finding.severity != "info"]
        return f"the job is {job.verdict}" + (f" ({leads[0]})" if leads else "")
    if job.verdict == "unknown":
        return "the log does not show whether the job is healthy"
    return _find_incomplete(job, "started", "completed", "the log ends before communicator {} is complete")


def find_caution(job: Job) -> str:
    """Return why a healthy log may not show all that a policy needs; empty where nothing hints at more."""
    # One that nobody has connected yet may be used later, or never.
    return _find_incomplete(job, "connected", "connected", "the log ends while communicator {} connects")


def _find_incomplete(job: Job, began: str, ended: str, words: str) -> str:
    for comm in job.communicators:
        number = len(getattr(comm, ended))
        if comm.state not in _OVER and getattr(comm, began) and number < comm.nranks:
            return f"{words.format(comm.id)} ({number} of {count(comm.nranks, 'rank')})"
    return ""
