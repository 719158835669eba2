"""``nccl-inspect run``: runs a job with the settings that a full report needs."""

from __future__ import annotations

import os

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.extras.fleet import library
from nccl_inspect.extras.live.session import Session, open_run_log, replace_process

_EXAMPLES = """
Examples:
  nccl-inspect run -- torchrun --nproc-per-node=8 train.py
  nccl-inspect run --out /shared/llama --stall 120 -- torchrun --nnodes=2 --nproc-per-node=8 train.py
  srun nccl-inspect run --out /shared/llama -- python train.py   (one per task; the first one reports)
  mpirun -np 16 nccl-inspect run --out /shared/llama -- ./all_reduce_perf -b 8 -e 1G
  nccl-inspect summarize /shared/llama                           (the report again)

Exit status: 0 that of COMMAND, whatever it is, and 128+N if signal N ended it; 126 COMMAND cannot be
run; 127 COMMAND was not found; 2 usage error
"""


@click.command(
    epilog=_EXAMPLES,
    short_help="Run a job, keep its logs, and report on them.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--out",
    "directory",
    metavar="DIR",
    type=shared.FILE,
    default="",
    help="Log folder, the same for all processes of a job. Default: a new one, nccl-run-JOBID or -TIME.",
)
@click.option(
    "--stall",
    type=click.FloatRange(min=0),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="After this time without output, query RAS, collect the machine's state, and report if ranks wait; 0: never.",
)
@click.option(
    "--report", metavar="FILE", type=shared.FILE, default="", help="Write the report to FILE instead of stderr."
)
@shared.append_option
@click.option("-q", "--quiet", is_flag=True, help="Keep the files; print only errors.")
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(directory: str, stall: float, report: str, store: str, quiet: bool, argv: tuple[str, ...]) -> int:
    """Run COMMAND with the settings that a full report needs, keep its output, and report on stderr when it ends.

    Sets, unless already set: NCCL_DEBUG, NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE (only if NCCL_DEBUG was not set, so that
    the output stays as it was), NCCL_TOPO_DUMP_FILE, and PyTorch's flight recorder with dumps on timeout. Input,
    output, signals and the exit status of COMMAND are passed through.
    """
    adding = library("nccl_inspect.extras.fleet.adding") if store else None  # loads pyarrow
    log = open_run_log(directory, os.environ, print_stderr)
    if log is None:
        return replace_process(argv)
    session = Session(log, os.environ, print_stderr, stall, report, quiet)
    status = session.run(argv)
    if adding and session.is_first:
        adding.append([str(session.folder)], store, print_stderr)
    return status
