"""``nccl-inspect env``: which variables ranks have."""

from __future__ import annotations

import click

from nccl_inspect.answers import env, selection
from nccl_inspect.cli import questions, shared, writing
from nccl_inspect.pipeline import reading

_EXAMPLES = """
\b
Examples:
  nccl-inspect env job.log
  nccl-inspect env job.log --differs                variables that differ between ranks
  nccl-inspect env job.log --rank 3
  nccl-inspect env job.log --format csv -o env.csv
"""
_NONE = "the log shows no variable; NCCL prints those it uses with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV"


@click.command(epilog=_EXAMPLES, short_help="List NCCL variables by value, with the ranks that have it and who set it.")
@questions.question_options("variables")
@click.option("--differs", is_flag=True, help="Only variables whose values differ, or that only some ranks have.")
def command(
    logs: tuple[str, ...],
    places: selection.PlaceFilter,
    differs: bool,
    limit: int | None,
    form: str,
    options: reading.Options,
    out: writing.Output,
) -> int:
    """List each variable and value that NCCL reports using, with the ranks that have it and who set it.

    Set by: the environment, a configuration file (config) or a plugin. NCCL prints a variable when it uses it, so a
    rank without such a line may still have the variable.
    """
    job = shared.read(logs, options)
    fits = places.of(job)
    rows = [row for row in env.rows(job) if row.differs >= differs and fits(row.ranks, row.hosts)]
    none = "no variable differs between ranks" if differs else "no variable matches"
    questions.answer(env, rows, "variable", none if job.environment else _NONE, form, limit, out)
    return shared.status(job)
