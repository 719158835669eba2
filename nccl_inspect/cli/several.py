"""The options that select one of several jobs or runs in an input, and the note about the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nccl_inspect.cli import print_stderr
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.model.job import Job

_Command = TypeVar("_Command", bound=Callable[..., Any])


def job_options(command: _Command) -> _Command:
    """Add --job and --run; they become part of the argument ``options``."""
    words = "Judge run N of a restarted job; 1 is the first. Default: the latest."
    run = click.option("--run", type=click.IntRange(1), metavar="N", help=words)
    job = click.option(
        "--job",
        metavar="N|NAME",
        help="Judge this job of an input that holds several: number or name in the table of summarize. "
        "Default: the worst.",
    )
    return job(run(command))


def mention_others(job: Job, tells_runs: bool, tells_jobs: bool) -> None:
    """Name other jobs and runs of the input on stderr, if the report does not."""
    if job.jobs and not tells_jobs:
        print_stderr(
            f"the worst of {count(len(job.jobs), 'job')}: {job.name}; --job selects another, 'summarize' lists all"
        )
    if job.earlier_runs and not tells_runs:
        runs = count(len(job.earlier_runs), "earlier run")
        print_stderr(f"{runs} in the log skipped, the last one: {job.earlier_runs[-1]}; --run 1 selects the first")
