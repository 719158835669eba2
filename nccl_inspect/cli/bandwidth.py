"""``nccl-inspect bandwidth``: what benchmarks measured, against what the hardware should give."""

from __future__ import annotations

import click

from nccl_inspect.answers import bandwidth, selection
from nccl_inspect.bandwidth import words
from nccl_inspect.cli import questions
from nccl_inspect.model.job import Job

_EXAMPLES = """
Examples:
  nccl-inspect bandwidth job.log
  nccl-inspect bandwidth job.log --platform p5.48xlarge
  nccl-inspect bandwidth job.log --sizes            each message size; marks dips
  all_reduce_perf -b 8 -e 8G -f 2 -g 8 | nccl-inspect bandwidth
  nccl-inspect bandwidth job.log --format csv -o bandwidth.csv
  nccl-inspect diff good.log bad.log                two runs, and what explains the change
"""
_NONE = (
    "the log has no results of a benchmark; run all_reduce_perf of nccl-tests on the same hosts, and give its output"
)


@click.command(epilog=_EXAMPLES, short_help="Compare measured bandwidth with what the hardware should give.")
@questions.question(bandwidth, "result")
@click.option("--sizes", "of_sizes", is_flag=True, help="One line for each message size; marks dips.")
def command(job: Job, fits: selection.Fits, of_sizes: bool) -> questions.Answered:
    """List the bus bandwidth that benchmarks measured, with what such hardware gives, the furthest behind first.

    Results of nccl-tests and rccl-tests of all releases are read, also without a head and as JSON (-J), and those of
    all_reduce_bench, ds_bench, perftest, nvbandwidth, p2pBandwidthLatencyTest and NCCL Inspector; alone or in a log.
    The best size counts, not the average. Below 80 % of the least that is known of such hardware is low, an error below
    50 %. A size is a dip if smaller messages get more than twice as much. What is not judged says why.
    """
    everything = bandwidth.rows(job, of_sizes=of_sizes)
    rows = [row for row in everything if not row.hosts or fits([], row.hosts)]
    if not everything and job.training:
        return rows, f"{_NONE}; the training states {', '.join(map(words.speed, job.training))}"
    return rows, "no result matches" if everything else _NONE
