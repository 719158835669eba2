"""Commands that answer one question each with a table: hosts, nics, env, ranks, bandwidth, timings, memory, traffic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from typing import Any, NamedTuple

import click

from nccl_inspect.answers import rows as answers
from nccl_inspect.answers import selection
from nccl_inspect.bandwidth import describe_speed
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.document import clean
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.report import tables
from nccl_inspect.traffic import BY, FORMATS, count_traffic
from nccl_inspect.util.wording import count


class Picked(NamedTuple):
    """The rows of an answer, which of them the options of its own command pick, and what is said if these pick none."""

    rows: Sequence[Any]
    fits: Callable[[Any], bool] = lambda _: True
    otherwise: str = ""
    more: str = ""  # what is said besides if there is no row


def _pick_states(noun: str, rows: Sequence[Any], states: tuple[str, ...]) -> Picked:
    otherwise = f"no {noun} is {' or '.join(states)}" if states else ""
    return Picked(rows, lambda row: not states or row.state in states, otherwise)


def question(answer: answers.Answer) -> Callable[[Callable[..., Picked]], Callable[..., int]]:
    """Make a command of a function that takes a job and its own options."""
    noun = answer.noun

    def decorate(pick: Callable[..., Picked]) -> Callable[..., int]:
        @wraps(pick)
        def command(
            logs: tuple[str, ...],
            places: selection.PlaceFilter,
            limit: int | None,
            form: str,
            options: reading.Options,
            out: shared.Output,
            **own: Any,
        ) -> int:
            job = shared.read(logs, options)
            is_there = places.make_test(job)
            picked = pick(job, **own)
            placed = ((row, answer.places(row)) for row in filter(picked.fits, picked.rows))
            found = [row for row, place in placed if place is None or is_there(*place)]
            if not found:
                none = answer.nothing + picked.more
                print_stderr((picked.otherwise or f"no {noun} matches") if picked.rows else none)
            shown: Any = found[:limit]
            width, text = shared.output_width(out.target, tables.UNBOUNDED), f"no {noun}"
            if form == "json":
                text = json.dumps([clean(asdict(row)) for row in shown], indent=1)
            elif form == "csv":
                text = tables.write_records(answer.names, [asdict(row) for row in shown])
            elif shown:
                table = tables.fit_table(answer.columns, tables.make_cells(answer.columns, shown), width)
                if width < tables.UNBOUNDED and len(shown) < len(found):
                    table.notes.append(f"{len(shown)} of {count(len(found), noun)}")
                text = tables.draw_table(table, width)
            out.write(text)
            return shared.status(job)

        return shared.together(
            shared.inputs,
            shared.rank_and_host_options(f"Only {noun}s of these ranks", f"Only {noun}s of these hosts"),
            click.option("--limit", type=click.IntRange(1), metavar="N", help=f"Only the first N {noun}s."),
            shared.format_option(("table", "csv", "json")),
            shared.read_options,
            shared.output_options,
        )(command)

    return decorate


@click.command(short_help="List hosts, worst first: findings, paths, NICs, GPUs, last line.")
@question(answers.HOSTS)
@shared.finding_option("Only hosts named by these findings")
def hosts(job: Job, rules: frozenset[str]) -> Picked:
    """List hosts, worst first: by the severity of their findings, then by paths slower than expected.

    A path counts for both of its hosts. On Kubernetes a host is a pod, unless pods use the network of the node.

    Examples:
      nccl-inspect hosts job.log
      nccl-inspect hosts job.log --limit 5              the worst five
      nccl-inspect hosts job.log --finding 'nic-*'      hosts named by such findings
      nccl-inspect hosts job.log --format csv -o hosts.csv
    """
    return Picked(answers.list_hosts(job), lambda row: not rules or not rules.isdisjoint(row.findings))


@click.command(short_help="List NICs with the ranks and GPUs that use them; find idle ones.")
@question(answers.NICS)
@click.option(
    "--state",
    "states",
    type=click.Choice((answers.USED, answers.IDLE, answers.UNKNOWN)),
    multiple=True,
    metavar="STATE",
    help="Only NICs in this state: used, idle or unknown. May be repeated.",
)
def nics(job: Job, states: tuple[str, ...]) -> Picked:
    """List the NICs of each host with the ranks that send and receive through them; hosts with idle NICs come first.

    A NIC is idle if NCCL lists it, no connection line uses it, and other NICs of its host are used; it is unknown if
    the log is an excerpt or has no network connection of its host. Since NCCL 2.22 connections are made at first use:
    a NIC that is idle at the start of a log may be used later.

    Examples:
      nccl-inspect nics job.log
      nccl-inspect nics job.log --state idle            NICs that nothing uses
      nccl-inspect nics job.log --host gpu-node-0001
      nccl-inspect nics job.log --rank 3                the NICs of one rank
      nccl-inspect nics job.log --format json -o nics.json
    """
    return _pick_states("NIC", answers.list_nics(job), states)


@click.command(short_help="List NCCL variables by value, with the ranks that have it and who set it.")
@question(answers.ENV)
@click.option("--differs", is_flag=True, help="Only variables whose values differ, or that only some ranks have.")
def env(job: Job, differs: bool) -> Picked:
    """List each variable and value that NCCL reports using, with the ranks that have it and who set it.

    Set by: the environment, a configuration file (config) or a plugin. NCCL prints a variable when it uses it, so a
    rank without such a line may still have the variable.

    Examples:
      nccl-inspect env job.log
      nccl-inspect env job.log --differs                variables that differ between ranks
      nccl-inspect env job.log --rank 3
      nccl-inspect env job.log --format csv -o env.csv
    """
    otherwise = "no variable differs between ranks" if differs else ""
    return Picked(answers.list_settings(job), lambda row: bool(row.differs >= differs), otherwise)


@click.command(short_help="List ranks, worst first: host, pid, GPU, state, last line, first error.")
@question(answers.RANKS)
@click.option(
    "--state",
    "states",
    type=click.Choice(answers.STATES),
    multiple=True,
    metavar="STATE",
    help="Only ranks in this state, such as missing. May be repeated.",
)
def ranks(job: Job, states: tuple[str, ...]) -> Picked:
    """List every rank, including those without a line in the log; the worst state first.

    States: suspect (the verdict points at it), failed (reports an error, in a job that failed), missing (no line in the
    log), silent (no line after the first error, while most others have some), seen (no communicator yet), begun (its
    communicator is incomplete), initialised (communicator complete, no connections), connected, ended (orderly).

    Examples:
      nccl-inspect ranks job.log
      nccl-inspect ranks job.log --state suspect --state missing
      nccl-inspect ranks job.log --host gpu-node-0001
      nccl-inspect ranks job.log --format json -o ranks.json
    """
    return _pick_states("rank", answers.list_ranks(job), states)


@click.command(short_help="Compare measured bandwidth with what the hardware should give.")
@question(answers.BANDWIDTH)
@click.option("--sizes", "of_sizes", is_flag=True, help="One line for each message size; marks dips.")
def bandwidth(job: Job, of_sizes: bool) -> Picked:
    """List the bus bandwidth that benchmarks measured, with what such hardware gives, the furthest behind first.

    Results of nccl-tests and rccl-tests of all releases are read, also without a head and as JSON (-J), and those of
    all_reduce_bench, ds_bench, perftest, nvbandwidth, p2pBandwidthLatencyTest and NCCL Inspector; alone or in a log.
    The best size counts, not the average. Below 80 % of the least that is known of such hardware is low, an error below
    50 %. A size is a dip if smaller messages get more than twice as much. What is not judged says why.

    Examples:
      nccl-inspect bandwidth job.log
      nccl-inspect bandwidth job.log --platform p5.48xlarge
      nccl-inspect bandwidth job.log --sizes            each message size; marks dips
      all_reduce_perf -b 8 -e 8G -f 2 -g 8 | nccl-inspect bandwidth
      nccl-inspect bandwidth job.log --format csv -o bandwidth.csv
      nccl-inspect diff good.log bad.log                two runs, and what explains the change
    """
    trained = ", ".join(map(describe_speed, job.training))
    more = f"; the training states {trained}" if trained else ""
    return Picked(answers.list_bandwidths(job, of_sizes=of_sizes), more=more)


@click.command(short_help="List how long each rank took to initialise, and in which phase.")
@question(answers.TIMINGS)
def timings(job: Job) -> Picked:
    """List how long each rank took to initialise each communicator, and which phase took most of it; the slowest first.

    The phases: bootstrap (ranks find each other), topo (the machine), graphs (rings and trees), connections, kernels
    (CUDA loads them), alloc, allgathers and rest, as far as the release names them. Ranks wait for each other in
    bootstrap and allgathers: there the one with the shortest time came last.

    Examples:
      nccl-inspect timings job.log
      nccl-inspect timings job.log --limit 5            the five slowest
      nccl-inspect timings job.log --rank 3
      nccl-inspect timings job.log --format csv -o timings.csv
    """
    return Picked(answers.list_timings(job))


@click.command(short_help="List what NCCL allocated, by rank, communicator and kind.")
@question(answers.MEMORY)
@click.option(
    "--memory",
    "memories",
    type=click.Choice((answers.GPU, answers.HOST)),
    multiple=True,
    metavar="WHERE",
    help="Only memory of GPU or of host. May be repeated.",
)
def memory(job: Job, memories: tuple[str, ...]) -> Picked:
    """List the memory that NCCL allocated on GPUs and hosts, by rank, communicator and kind; the largest first.

    Sizes are sums over the log: NCCL prints no line when it frees memory. A communicator is named for what its own
    thread allocated between the first and the last line of its initialisation. The logs are read twice, so standard
    input cannot be used.

    Examples:
      nccl-inspect memory job.log
      nccl-inspect memory job.log --memory GPU          without the memory of hosts
      nccl-inspect memory job.log --rank 3 --limit 10
      nccl-inspect memory job.log --format csv -o memory.csv
    """
    logs = shared.inputs_or_stdin(click.get_current_context().params["logs"])
    if logs == ["-"]:
        raise NcclInspectError("memory reads the log twice", "save it to a file first, then name that file")
    found = answers.list_memory(job, reading.EventStream(logs).with_places())
    return Picked(found, lambda row: not memories or row.memory in memories, "no allocation matches")


@click.command(short_help="Show collectives by size and algorithm, and the bytes on each path.")
@shared.inputs
@shared.communicator_option()
@click.option("--by", type=click.Choice(BY), default="operation", show_default=True, help="What each csv row is.")
@shared.format_option(FORMATS)
@shared.read_options
@shared.output_options
def traffic(
    logs: tuple[str, ...], names: tuple[str, ...], by: str, form: str, options: reading.Options, out: shared.Output
) -> int:
    """Show collectives and send/recv by communicator, size, algorithm and protocol, and the payload on each path.

    The log needs subsystem COLL; with TUNING it also names the algorithms, otherwise rings are assumed and marked.
    Times are estimates from the usual bandwidth of such paths; --platform narrows them.

    Examples:
      nccl-inspect traffic job.log    (of a job with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,COLL,TUNING)
      nccl-inspect traffic job.log --communicator world
      nccl-inspect traffic job.log --format csv --by path -o paths.csv
      nccl-inspect traffic job.log --format json --platform p5.48xlarge
    """
    job = shared.read(logs, options)
    counted = count_traffic(job, selection.match_communicators(job, names))
    out.write(FORMATS[form](counted, by, out.style))
    return shared.status(job)
