"""Compares what benchmarks measured with what the hardware of a job should give, by operation and number of ranks.

What is expected is a published figure (``figures/published.toml``), or follows from the slowest part of the way. Data
on a ring passes each link of each node once per direction, so that the slowest part decides: between nodes all NICs of
one node together, within a node NVLink, xGMI or PCIe. Two nodes are apart: trees and NVLS trees cross the network half
as often, and an all-reduce may show up to twice what the NICs carry. An all-to-all cannot share NICs: each GPU has its
own, and what stays within the node is not sent. ``docs/explanation/bandwidth.md`` explains all this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from nccl_inspect import platforms
from nccl_inspect.bandwidth import LOW, load_figures, tables
from nccl_inspect.bandwidth.tables import Row, Table
from nccl_inspect.event import types as events
from nccl_inspect.event.base import is_named
from nccl_inspect.judging import impact
from nccl_inspect.judging.facts import Facts, nics_used, once
from nccl_inspect.judging.machine_type import gpu_names
from nccl_inspect.model.inventory import OVER_TCP, Measured, Sized
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count

_RING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Operations that data goes round a ring or tree for."""
_RANGES, _ANY = ("ranks", "nodes", "per_node"), (0, math.inf)
_TWO = 2  # nodes of which each sends half as much over trees, and by how much that exceeds the NICs at most
_NVLS_SINCE = (2, 17)
_WITH_SWITCH = 8  # GPUs of a machine whose NVLinks go to switches, so that each pair has all of them


class Setup(Frozen):
    """Holds what ran a benchmark."""

    operation: str
    is_sure: bool  # whether it certainly was this operation
    ranks: int
    nodes: int  # 0 for unknown
    per_node: int
    names: frozenset[str]  # of the GPUs, without the maker


class Expected(Frozen):
    """A range of bus bandwidths in GB/s at large messages."""

    low: float
    high: float
    what: str
    source: str
    floor: float | None = None
    """Below it all is low, where the log does not show what makes the difference; None where ``low`` decides."""
    part: str = "nvlink"  # what limits: `network`, `nvlink` or `pcie`
    is_assumed: bool = False  # whether the rate of the NICs is not known, and the usual ones are taken


class Nics(Frozen):
    """The NICs of a node that a job uses."""

    number: int
    gbps: float | None
    network: str
    has_gdr: bool | None
    source: str
    least: int = 0  # how many it uses, where it lists more than that: some may be meant for something else


def complete_setup(facts: Facts, ran: Setup) -> Setup:
    """Return what ran a benchmark: what its table lacks, the log of the job may show."""
    job, nodes, per_node = facts.job, ran.nodes, ran.per_node
    hosts = [host for host in job.hosts if host.ranks]
    named = [host for host in job.hosts if is_named(host.name)]
    if not nodes and not hosts and len(named) > 1 and ran.ranks and ran.ranks % len(named) == 0:
        nodes = len(named)
    if not nodes and hosts and ran.ranks in (0, job.world_size, *(comm.nranks for comm in job.communicators)):
        comm = max(job.communicators, key=lambda comm: comm.nranks, default=None)
        world = comm if comm and comm.nranks == ran.ranks else None
        nodes = (world and world.nnodes) or len(hosts)
        per_node = (world and world.local_ranks) or max(host.gpus for host in hosts)
    names = ran.names or frozenset(platforms.drop_maker(gpu_names(job)))
    return replace(ran, nodes=nodes, per_node=per_node or (-(-ran.ranks // nodes) if nodes else 0), names=names)


def find_expected(facts: Facts, ran: Setup) -> Expected | str:
    """Return what is to be expected, or why nothing is."""
    if not ran.ranks:
        return "number of ranks unknown"
    if ran.ranks < 2:
        return "one rank only"  # copies within a GPU
    machine = facts.platform or platforms.find_by_gpus(ran.names)
    named = set(ran.names)
    if machine and not named:
        alike = [entry for entry in platforms.load_platforms().values() if entry.gpu_names and entry.gpu == machine.gpu]
        same = [entry.gpu_names[0] for entry in alike if entry.nvlink == machine.nvlink]
        named = {same[0]} if same else {machine.gpu} if machine.gpu and machine.gpu[:2] == "GB" else set()
    figures = [figure for figure in load_figures("published")["figure"] if _fits(figure, facts, ran, machine, named)]
    special = next((figure for figure in figures if "platforms" in figure), None)
    is_domain = any("domain" in figure for figure in figures)
    by_nics = None
    if ran.nodes > 1 and not special and not is_domain:
        nics = _nics(facts, ran)
        if nics and ran.operation in (*_RING, "alltoall", "sendrecv"):
            by_nics = _expect_from_network(ran, nics, machine)
            if nics.gbps is not None or not figures:  # GPUs tell what their NICs can do
                return by_nics
    figure = special or next(iter(figures), None)
    if figure is None:
        is_joined = ran.nodes == 1 and machine and machine.nvlink and ran.operation in _RING and ran.ranks > 2
        if machine and is_joined and (rate := impact.p2p(machine)):
            return Expected(rate.low, rate.high, f"NVLink {machine.nvlink}", rate.source)
        return _explain_unknown(facts, ran)
    part = (
        "network" if "platforms" in figure or "per_node" in figure else "pcie" if "PCIe" in figure["what"] else "nvlink"
    )
    if not ran.is_sure and (part == "network" or ran.ranks == _TWO):
        return _explain_unknown(facts, ran)
    floor = figure.get("floor")
    if part == "nvlink" and ran.nodes == 1 and facts.platform and (facts.platform.gpus or 0) >= _WITH_SWITCH:
        floor = None
    is_assumed = False
    if by_nics and floor is not None and (of_nics := by_nics.floor or by_nics.low) > floor:
        floor, is_assumed = of_nics, True  # as many NICs as connections use, each of the least usual rate
    what = (f"{ran.nodes} nodes x " if part == "network" else f"{ran.ranks} GPUs, ") + figure["what"]
    return Expected(figure["low"], figure["high"], what, figure["source"], floor, part, is_assumed)


def _explain_unknown(facts: Facts, ran: Setup) -> str:
    if not ran.is_sure:
        return "the log does not say which operation it was"
    if not ran.nodes:
        return "hosts of the ranks unknown"
    if ran.nodes > 1 and any(kind.net == "Socket" for kind in facts.paths("inter").kinds):
        return "TCP over interfaces of unknown rate"
    if ran.nodes > 1:
        return "NICs unknown (--platform)"
    if not ran.names and facts.platform is None:
        return "GPUs unknown (--platform)"
    return f"nothing published for {ran.operation} on {', '.join(sorted(ran.names)) or 'this machine type'}"


def _fits(
    figure: Mapping[str, Any], facts: Facts, ran: Setup, machine: platforms.Platform | None, named: set[str]
) -> bool:
    return (
        all(low <= getattr(ran, key) <= high for key in _RANGES for low, high in [figure.get(key, _ANY)])
        and ran.operation in figure.get("operations", (*_RING, "alltoall"))
        and figure.get("nvls", find_nvls(facts)) == find_nvls(facts)
        and ("platforms" not in figure or (machine is not None and machine.name in figure["platforms"]))
        and ("names" not in figure or (bool(named) and all(_is_one_of(name, figure["names"]) for name in named)))
    )


def _is_one_of(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns) and " MIG " not in name


@once
def find_nvls(facts: Facts) -> bool | None:
    """Return whether the job has NVLS for an all-reduce; None where the log does not show it."""
    job = facts.job
    values = {setting.name: setting.value for setting in job.environment}
    algorithms = values.get("NCCL_ALGO", "").lower()
    if values.get("NCCL_NVLS_ENABLE") == "0" or (algorithms and "nvls" not in algorithms and "^" not in algorithms):
        return False
    found = [re.search(r"(\d+)\.(\d+)", text) for text in job.nccl_versions]
    releases = [(int(release[1]), int(release[2])) for release in found if release]
    if releases and max(releases) < _NVLS_SINCE:
        return False
    return True if any("NVLS" in comm.algorithms for comm in job.communicators) else None


def _nics(facts: Facts, ran: Setup) -> Nics | None:
    """Return the NICs of a node: those of the machine type, else those that connections use, with their rates."""
    machine = facts.platform
    inter = facts.inter_host_net_paths()
    gdr = {kind.gdr for kind in inter.kinds}
    if machine and machine.nics and machine.nic_gbps and machine.network != "tcp":
        whole = machine.gpus or ran.per_node
        number = max(1, machine.nics * min(ran.per_node, whole) // whole)
        has_gdr = machine.gdr if machine.gdr is not None else (False if gdr == {False} else None)
        least = 0 if ran.per_node >= whole else 1  # part of a machine may not have all of its NICs
        return Nics(number, machine.nic_gbps, machine.network or "", has_gdr, machine.source("nic_gbps"), least)
    if any(kind.net in OVER_TCP for kind in inter.kinds):
        return None
    messages = [notice.message for notice in facts.job.notices if "NET/IB" in notice.message]
    rates = {int(rate) for message in messages for rate in re.findall(r"\bspeed=(\d+)\b", message)}  # Mb/s
    gbps = rates.pop() / 1000 if len(rates) == 1 else None
    lists = [notice.event for notice in facts.with_event(events.NetDevices, lambda event: event.net == "IB")]
    listed = max((len(each.devices) for each in lists if isinstance(each, events.NetDevices)), default=0)
    used = min((len(nics) for nics in nics_used(inter).values()), default=0)
    if not used and (inter or not listed):
        return None
    meant = max(used, min(listed, ran.per_node), 1)
    return Nics(meant, gbps, "", False if gdr == {False} else None, "", least=used or 1)


def _expect_from_network(ran: Setup, nics: Nics, machine: platforms.Platform | None) -> Expected:
    figures = load_figures("published")
    share = next(entry for entry in figures["network"] if _is_one_of(nics.network, entry["names"]))
    slowest, fastest = (nics.gbps, nics.gbps) if nics.gbps else figures["shares"]["usual_rates"]
    slot = figures["slots"].get(machine.gpu or "", 0) * ran.per_node if machine else 0

    def carried_rate(number: int, gbps: float) -> float:
        return min(gbps / 8 * number, slot or math.inf)

    carried, least = (carried_rate(number, slowest) for number in (nics.number, nics.least or nics.number))
    low = _share_of(ran, carried, share["low"] if nics.has_gdr is not False else figures["shares"]["without_gdr"])
    high = _share_of(ran, carried_rate(nics.number, fastest), share["high"], is_most=True)
    rate = f" of {nics.gbps:g} Gb/s" if nics.gbps else ", rate unknown"
    without = ", without GPUDirect RDMA" if nics.has_gdr is False else ""
    what = f"{ran.nodes} nodes x {count(nics.number, 'NIC')}{rate}{without}"
    floor = None if nics.gbps and nics.least in (0, nics.number) else _round(low * least / carried)
    return Expected(_round(low), _round(high), what, nics.source or share["source"], floor, "network", not nics.gbps)


def _share_of(ran: Setup, carried: float, share: float, is_most: bool = False) -> float:
    shares, for_each = load_figures("published")["shares"], carried / max(ran.per_node, 1)
    if ran.operation == "alltoall" or not (ran.is_sure or is_most):
        return for_each * ran.nodes / (ran.nodes - 1) * (1 if is_most else shares["alltoall"])
    if ran.operation == "sendrecv":
        return for_each * (1 if is_most else shares["pair"])
    if ran.operation == "all_reduce":
        return carried * share * (_TWO if is_most and ran.nodes == _TWO else 1)
    return carried * share * (1 if is_most else shares["others"])


def _round(value: float) -> float:
    return round(value) if value >= 20 else round(value, 1)


_RAMP = 4 << 20  # bytes for each rank: a message of that size reaches half of the plateau at the latest
_MOST_RAMP = 1 << 30
_LEAST = 64 << 20  # bytes below which latency counts on any hardware
_LARGE = 0.75  # the part of the plateau that a message must be able to reach to be judged
_DIP, _COUNTS = 0.4, 0.25
"""A dip is below that part of what smaller messages gave, if these gave at least that part of the peak."""
_SAME = 0.01
_OTHERS = ("perftest", "nvbandwidth", "p2pBandwidthLatencyTest")
"""Programs that measure something other than collectives."""


@once
def judge_benchmarks(facts: Facts) -> list[Measured]:
    """Return what the benchmarks in a log measured, with verdicts."""
    groups: dict[tuple[object, ...], list[tuple[Table, list[Row]]]] = {}
    for table in tables.tables(facts.job.benchmarks):
        why = _explain_mismatch(facts, table)
        for ranks, rows in _group_by_ranks(table):
            key = table.tool, table.operation, ranks, table.nodes, tuple(sorted(table.hosts)), why
            groups.setdefault(key, []).append((table, rows))
    entries = [_entry(facts, int(str(key[2])), group, str(key[-1])) for key, group in groups.items()]
    return [entry for entry in entries if entry.measured_gbps > 0 or entry.wrong]


def _group_by_ranks(table: Table) -> Iterable[tuple[int, list[Row]]]:
    """Return the rows by number of ranks: someone may have put the results of several runs into one table."""
    if table.operation != "all_reduce" or len({row.size for row in table.rows}) > 1:
        return [(table.ranks, table.rows)]
    by_ranks: dict[int, list[Row]] = {}
    for row in table.rows:
        ratio = row.busbw / row.algbw if row.algbw >= 1 else 0.0
        own = round(2 / (2 - ratio)) if 1 < ratio < 2 - _SAME else table.ranks
        is_same = abs(2 - 2 / max(table.ranks, 2) - ratio) < _SAME
        by_ranks.setdefault(table.ranks if is_same or not ratio else own, []).append(row)
    return by_ranks.items()


def _entry(facts: Facts, ranks: int, group: Sequence[tuple[Table, list[Row]]], why: str) -> Measured:
    table, rows = group[0][0], [row for _, some in group for row in some]
    best = max(rows, key=lambda row: (row.busbw, row.size))
    if not best.size:  # a matrix of pairs: the slowest one limits
        best = min(rows, key=lambda row: row.busbw)
    by_size = group_values((row.size, row) for row in rows if row.size and row.busbw > 0)
    ordered = {size: sorted(some, key=lambda row: -row.busbw) for size, some in sorted(by_size.items())}
    entry = Measured(
        operation=table.operation,
        type=best.type,
        ranks=ranks or None,
        size=best.size,
        measured_gbps=best.busbw,
        line=best.line,
        tool=table.tool,
        hosts=[escape_controls(host) for host in table.hosts],
        sizes=[Sized(size, some[0].busbw, some[-1].busbw, some[0].line) for size, some in ordered.items()],
        wrong_lines=list({line.position: line for one, _ in group for line in one.wrong_rows}.values()),
    )
    if facts.job.is_one_of_several and not all(one.pids for one, _ in group):
        entry.reason = "several jobs are in the log, and the rows do not say of which they are"
        return entry
    best_gbps = 0.0
    for size in entry.sizes:  # far behind smaller ones, in both placements
        if best_gbps >= _COUNTS * entry.measured_gbps and size.gbps < _DIP * best_gbps:
            entry.dips.append(size)
        best_gbps = max(best_gbps, size.gbps)
    entry.falls = bool(entry.dips) and entry.dips[-1] is entry.sizes[-1]
    entry.reason = "not a collective" if table.tool in _OTHERS else why
    if not entry.reason and any(one.warmup == 0 for one, _ in group):
        entry.reason = "no warm-up"
    if entry.reason:
        return entry
    nodes = 1 if ranks and ranks <= table.per_node and table.is_whole and len(table.hosts) == 1 else table.nodes
    per_node = min(table.per_node, ranks) if table.hosts else 0
    names = frozenset(platforms.drop_maker({gpu for one, _ in group for gpu in one.gpus}))
    ran = complete_setup(facts, Setup(table.operation, table.is_sure, ranks, nodes, per_node, names))
    entry.nodes = ran.nodes or None
    expected = find_expected(facts, ran)
    if isinstance(expected, str):
        entry.reason = expected
    else:
        _judge(entry, expected)
    if entry.falls:
        entry.verdict = "low"
    return entry


def _explain_mismatch(facts: Facts, table: Table) -> str:
    """Return why a table may not be about the processes and connections that the log shows; empty if it may."""
    if not table.fits:
        return f"the rows are not those of {table.operation}"
    ranked = [last.process.pid for last in facts.job.last_lines if last.ranks]
    if table.pids and not table.pids.issuperset(ranked):
        return "of other processes"
    rows = [row.line for row in table.rows]
    source = [line.order for line in facts.job.paths.first_lines() if line.source == rows[0].source]
    if source and (max(line.order for line in rows) < min(source) or (table.start and min(source) < table.start)):
        return "the connections in the log are of another run"
    return ""


def least_share(size: int, ranks: int) -> float:
    """Return the part of the plateau that a message reaches at least: the more ranks, the more latency counts."""
    return size / (size + min(_RAMP * max(ranks, 2), _MOST_RAMP))


def _judge(entry: Measured, expected: Expected) -> None:
    entry.expected_low, entry.expected_high = expected.low, expected.high
    entry.expected_source, entry.what, entry.part = expected.source, expected.what, expected.part
    entry.is_assumed = expected.is_assumed
    ranks = entry.ranks or 2
    large = [size for size in entry.sizes if size.size >= _LEAST and least_share(size.size, ranks) >= _LARGE]
    if not large:
        entry.reason = "messages too small"
        return
    plateau = max(size.gbps / least_share(size.size, ranks) for size in large)
    floor = expected.low if expected.floor is None else expected.floor
    entry.ratio = round(max(size.gbps for size in large) / expected.low, 3)
    if plateau < LOW * floor:
        entry.verdict, entry.is_below = "low", True
        if expected.part == "nvlink":  # the fewest links give that
            entry.expected_low, entry.ratio = floor, round(max(size.gbps for size in large) / floor, 3)
    elif expected.floor is None or (floor < expected.low and plateau >= LOW * expected.low):
        entry.verdict = "ok"
    else:
        what = "fewer or slower NICs" if expected.part == "network" else "fewer links"
        entry.reason = f"it fits {what}, too (--platform)"
