"""``nccl-inspect nics``: which NIC each GPU uses, and which nothing uses."""

from __future__ import annotations

import click

from nccl_inspect.answers import nics, selection
from nccl_inspect.cli import questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect nics job.log
  nccl-inspect nics job.log --state idle            NICs that nothing uses
  nccl-inspect nics job.log --host gpu-node-0001
  nccl-inspect nics job.log --rank 3                the NICs of one rank
  nccl-inspect nics job.log --format json -o nics.json
"""
_NONE = "the log shows no NIC; NCCL lists NICs with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"


@click.command(epilog=_EXAMPLES, short_help="List NICs with the ranks and GPUs that use them; find idle ones.")
@questions.question(nics, "NIC")
@click.option(
    "--state",
    "states",
    type=click.Choice((nics.USED, nics.IDLE, nics.UNKNOWN)),
    multiple=True,
    metavar="STATE",
    help="Only NICs in this state: used, idle or unknown. May be repeated.",
)
def command(job: Job, fits: selection.Fits, states: tuple[str, ...]) -> questions.Answered:
    """List the NICs of each host with the ranks that send and receive through them; hosts with idle NICs come first.

    A NIC is idle if NCCL lists it, no connection line uses it, and other NICs of its host are used; it is unknown if
    the log is an excerpt or has no network connection of its host. Since NCCL 2.22 connections are made at first use:
    a NIC that is idle at the start of a log may be used later.
    """
    everything = nics.rows(job)
    rows = [
        row
        for row in everything
        if (not states or row.state in states) and fits([*row.ranks, *row.pxn_ranks], [row.host])
    ]
    none = f"no NIC is {' or '.join(states)}" if states else "no NIC matches"
    return rows, none if everything else _NONE
