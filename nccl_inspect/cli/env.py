"""``nccl-inspect env``: which variables ranks have."""

from __future__ import annotations

import click

from nccl_inspect.answers import env, selection
from nccl_inspect.cli import questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect env job.log
  nccl-inspect env job.log --differs                variables that differ between ranks
  nccl-inspect env job.log --rank 3
  nccl-inspect env job.log --format csv -o env.csv
"""
_NONE = "the log shows no variable; NCCL prints those it uses with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV"


@click.command(epilog=_EXAMPLES, short_help="List NCCL variables by value, with the ranks that have it and who set it.")
@questions.question(env, "variable")
@click.option("--differs", is_flag=True, help="Only variables whose values differ, or that only some ranks have.")
def command(job: Job, fits: selection.Fits, differs: bool) -> questions.Answered:
    """List each variable and value that NCCL reports using, with the ranks that have it and who set it.

    Set by: the environment, a configuration file (config) or a plugin. NCCL prints a variable when it uses it, so a
    rank without such a line may still have the variable.
    """
    rows = [row for row in env.rows(job) if row.differs >= differs and fits(row.ranks, row.hosts)]
    none = "no variable differs between ranks" if differs else "no variable matches"
    return rows, none if job.environment else _NONE
