"""``nccl-inspect fleet``: many jobs in one store, and what the bad ones share."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from nccl_inspect.cli import prepare_command, shared
from nccl_inspect.errors import NoInputError
from nccl_inspect.extras.fleet import library
from nccl_inspect.extras.fleet.formats import FORMATS
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.pipeline.options import Options

_SINCE = re.compile(r"([1-9]\d{0,3})([dw])")
_KINDS = ("image", "release", "setting", "host", "nic", "gpu")


store_option = click.option("--store", required=True, metavar="DIR", type=shared.FILE, help="Folder of the store.")


@click.group(short_help="Keep many jobs; find the host, NIC or image behind bad ones.")
def command() -> None:
    """Keep the results of many jobs in a store (Parquet), and find what the bad ones share: which node is bad.

    'fleet add' judges logs and appends their jobs, 'fleet report' compares the bad jobs (failed or degraded) with the
    others. Requires: pip install 'nccl-inspect[fleet]'.

    Examples:
      nccl-inspect fleet add logs/ --store /shared/fleet
      nccl-inspect fleet report --store /shared/fleet --since 30d -o fleet.html
    """


@command.command("add", short_help="Judge logs and append their jobs to a store.")
@shared.inputs
@store_option
@click.option("--image", metavar="NAME", help="Container image of the jobs. Default: as manifests beside the logs say.")
@click.option("--together", is_flag=True, help="All LOGs are parts of one input, as for summarize.")
@shared.platform_options
def add(logs: tuple[str, ...], store: str, image: str | None, together: bool, options: Options) -> int:
    """Judge logs and append their jobs to a store, which is made if need be.

    Each file is a log of its own, which may hold several jobs. Files belong to one job if they name the same NCCL
    communicator, or if only a rank, a node or a rotation distinguishes their names. A job is identified by the content
    of its log: adding it again changes nothing. It is added as a whole or not at all, whenever the process is killed,
    and any number of processes may add at the same time. Add a log when its job is over.

    Examples:
      nccl-inspect fleet add job-4711.log --store /shared/fleet
      nccl-inspect fleet add 2026-11-28/ --store /shared/fleet
      kubectl logs job/llama | nccl-inspect fleet add --store /shared/fleet --image llama:1.4

    Exit status: 0 added, or there already; 3 nothing could be read, or no NCCL line in it
    """
    adding = library("nccl_inspect.extras.fleet.adding")  # loads pyarrow
    with tempfile.NamedTemporaryFile(prefix="nccl-inspect-", suffix=".log") as spooled:
        inputs = shared.inputs_or_stdin(logs)
        if "-" in inputs:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            spooled.flush()
        names = [spooled.name if name == "-" else name for name in inputs]
        groups, problems = adding.group_logs(names, together, spooled.name)
        target = adding.Target(store, shared.with_settings_file(options), image)
        outcome = adding.add(groups, target)
    problems += outcome.problems
    shared.print_problems(problems)
    added = outcome.added.total()
    if not added and not outcome.known:
        return NoInputError.exit_code
    verdicts = ", ".join(f"{number} {name}" for name, number in outcome.added.most_common())
    known = f"; {count(len(outcome.known), 'log')} already there" if outcome.known else ""
    click.echo(f"{count(added, 'job')} added{f' ({verdicts})' if added else ''}{known}")
    return 0


def _parse_since(_ctx: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    if value is None:
        return None
    if not (match := _SINCE.fullmatch(value)):
        raise click.BadParameter(f"'{value}' is not a number of days or weeks, such as 7d or 4w")
    return timedelta(days=int(match[1]) * (7 if match[2] == "w" else 1))


@command.command("report", short_help="Report what the bad jobs of a store share.")
@store_option
@shared.format_option(FORMATS, FORMATS.__getitem__)
@click.option("--since", metavar="7d|4w", callback=_parse_since, help="Only jobs of the days before the newest job.")
@click.option("--by", "by_kind", type=click.Choice(_KINDS), metavar="KIND", help=f"Also rate each {'|'.join(_KINDS)}.")
@shared.output_options
def report(store: str, form: str, since: timedelta | None, by_kind: str | None, out: shared.Output) -> int:
    """Report verdicts over time, frequent causes, and which host, NIC, GPU, image, release or setting is behind them.

    A suspect has more bad jobs than chance explains: by Fisher's exact test and against jobs of like size and day, both
    corrected for the number of comparisons (Holm), with at least three bad jobs and 1.5 times as many as expected. The
    jobs of a suspect are then set aside, so that hosts that shared them are cleared. Rates have Wilson intervals
    (95 %).

    Examples:
      nccl-inspect fleet report --store /shared/fleet
      nccl-inspect fleet report --store /shared/fleet --since 7d --by host
      nccl-inspect fleet report --store /shared/fleet -o fleet.html
    """
    reporting = library("nccl_inspect.extras.fleet.report")  # loads pyarrow
    document = reporting.make_report(reporting.Store(store), since, by_kind or "")
    out.write(FORMATS[form].render(document, out.style))
    return 0


for _subcommand in command.commands.values():
    prepare_command(_subcommand)
