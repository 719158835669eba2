"""Compares two judged jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nccl_inspect import bandwidth
from nccl_inspect.event import types as events
from nccl_inspect.extras.gate.differences import AREAS, Change, Difference, explanations, findings, structure, ways
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import CommunicatorInfo, Job, Setting
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import count, listed, ranges, ranks_word

_SOUND = ("complete", "connected", "destroyed")
"""States of a communicator that differ only by where the log ends."""
_MAX_EVIDENCE = 3
_NOISE = 0.05
"""Runs on the same machines differ by that much."""


def compare(a: Job, b: Job) -> Difference:
    """Compare run B with run A; both are judged by the same rules."""
    open_questions: list[str] = []
    pairwise = structure.are_comparable(a, b)
    open_questions += structure.unreached(a, b)
    silent = structure.silent(a, b) if pairwise else set()
    if silent:
        whose = "its" if len(silent) == 1 else "their"
        open_questions.append(f"{ranks_word(silent)}: not in both logs, so {whose} paths are not compared")
    if not pairwise:
        open_questions.append(
            "ranks are not comparable between the runs (different world, or ranks grouped differently on hosts): "
            "paths are compared by kind, and communicators by size"
        )
    renamed = structure.renamed(a, b)
    changes = [
        *_verdict(a, b),
        *_versions(a, b, open_questions),
        *_network(a, b, open_questions),
        *_world(a, b, open_questions),
        *_environment(a, b, renamed, open_questions),
        *(_communicators(a, b) if pairwise else _sizes(a, b)),
        *ways.changes(a, b, pairwise, silent),
        *_bandwidth(a, b, open_questions),
        *findings.changes(a, b, pairwise, open_questions),
    ]
    changes.sort(key=lambda change: AREAS.index(change.area))
    return Difference(a, b, changes, explanations.explain(changes, pairwise), renamed, open_questions)


def _verdict(a: Job, b: Job) -> Iterator[Change]:
    if a.verdict != b.verdict:
        yield Change("verdict", "verdict", a.verdict, b.verdict)


def _stated_change(
    area: str, what: str, before: str, after: str, open_questions: list[str], evidence: Iterable[Evidence] = ()
) -> Iterator[Change]:
    """A change of something every run has; a value missing from one log is not a change."""
    if before and after and before != after:
        yield Change(area, what, before, after, evidence=list(evidence))
    elif bool(before) != bool(after):
        open_questions.append(f"{what}: not in the log of {'B' if before else 'A'} ({before or after} in the other)")


def _versions(a: Job, b: Job, open_questions: list[str]) -> Iterator[Change]:
    lines = _lines(a, b, events.NcclVersion)
    yield from _stated_change("versions", "NCCL", _stated(a), _stated(b), open_questions, lines)
    lines = _lines(a, b, events.CudaDriver)
    yield from _stated_change(
        "versions", "CUDA driver", ", ".join(a.cuda_versions), ", ".join(b.cuda_versions), open_questions, lines
    )


def _stated(job: Job) -> str:
    return ", ".join(version for version in job.nccl_versions if "inferred" not in version)


def _lines(a: Job, b: Job, kind: type[events.Event]) -> list[Evidence]:
    """The first lines of both runs that make an event of this class."""
    quotes = [[n.evidence[0] for n in job.notices if isinstance(n.event, kind)] for job in (b, a)]
    return [line for lines in quotes for line in lines[:_MAX_EVIDENCE]]


def _network(a: Job, b: Job, open_questions: list[str]) -> Iterator[Change]:
    net, other_net = a.network, b.network
    lines = [
        n.evidence[0] for n in b.notices if isinstance(n.event, events.NetDevices) and n.event.net == other_net.name
    ]
    yield from _stated_change("network", "network", net.name or "", other_net.name or "", open_questions, lines)
    plugins = [n.evidence[0] for n in b.notices if isinstance(n.event, events.PluginStatus) and n.event.kind == "NET"]
    ours, theirs = (f"{n.plugin or ''} {n.plugin_version or ''}".strip() for n in (net, other_net))
    yield from _optional_change("network", "plugin", ours, theirs, plugins)
    providers = [n.evidence[0] for n in b.notices if isinstance(n.event, events.OfiProvider)]
    yield from _optional_change("network", "provider", net.provider or "", other_net.provider or "", providers)
    if net.devices and other_net.devices and net.devices != other_net.devices:
        yield Change("network", "devices", listed(net.devices, 8), listed(other_net.devices, 8), evidence=lines[:1])


def _optional_change(area: str, what: str, before: str, after: str, evidence: list[Evidence]) -> Iterator[Change]:
    """A change of something a run may lack."""
    if before != after:
        lines = evidence[:_MAX_EVIDENCE] if after else []
        yield Change(area, what, before or None, after or None, evidence=lines)


def _world(a: Job, b: Job, open_questions: list[str]) -> Iterator[Change]:
    yield from _stated_change("world", "world size", str(a.world_size or ""), str(b.world_size or ""), open_questions)
    yield from _stated_change("world", "hosts", structure.shape(a) or "", structure.shape(b) or "", open_questions)
    if a.platform and b.platform:
        yield from _stated_change("world", "platform", a.platform, b.platform, open_questions)


# --- environment ------------------------------------------------------------------------------------------------


def _environment(a: Job, b: Job, renamed: dict[str, str], open_questions: list[str]) -> Iterator[Change]:
    """Variables with other values or on other ranks; names of hosts in values are those of B."""
    ours, theirs = _by_name(a), _by_name(b)
    for name in sorted({*ours, *theirs}):
        before = _values(ours.get(name, []), renamed)
        after = _values(theirs.get(name, []), {})
        runs = (("A", before, a), ("B", after, b))
        silent = next((run for run, own, job in runs if not own and not is_echoed(name, job.nccl_versions)), "")
        if silent:
            open_questions.append(f"{name}={before or after}: NCCL of run {silent} does not echo it")
        elif before != after:
            shown = [*theirs.get(name, []), *ours.get(name, [])]
            lines = [line for setting in shown for line in setting.evidence[:_MAX_EVIDENCE]]
            ranks = sorted({rank for setting in theirs.get(name, []) for rank in setting.ranks or ()})
            yield Change("environment", name, before or None, after or None, ranks=ranks, evidence=lines)


def _by_name(job: Job) -> dict[str, list[Setting]]:
    return grouped((setting.name, setting) for setting in job.environment)


def _values(settings: Iterable[Setting], renamed: dict[str, str]) -> str:
    return "; ".join(sorted(_value(setting, renamed) for setting in settings))


def _value(setting: Setting, renamed: dict[str, str]) -> str:
    value = setting.value
    for name, other in renamed.items():
        value = value.replace(name, other)
    where = "" if setting.ranks is None else f" on ranks {ranges(setting.ranks)}" if setting.ranks else " on some ranks"
    return f"{value}{where}" + ("" if setting.source == "environment" else f" ({setting.source})")


# --- communicators ----------------------------------------------------------------------------------------------


def _communicators(a: Job, b: Job) -> Iterator[Change]:
    """Communicators of the same ranks are the same, whatever their names."""
    ours, theirs = _by_ranks(a), _by_ranks(b)
    for key in ours:
        if key in theirs:
            yield from _same(ours[key], theirs[key])
    yield from _lonely([c for key, comms in ours.items() for c in comms[len(theirs.get(key, ())) :]], is_new=False)
    yield from _lonely([c for key, comms in theirs.items() for c in comms[len(ours.get(key, ())) :]], is_new=True)


def _bandwidth(a: Job, b: Job, open_questions: list[str]) -> Iterator[Change]:
    """Measured bandwidths of the same operation and number of ranks, and speeds of a training, that both runs have."""
    ours = {bandwidth.measurement_name(entry): entry for entry in a.bandwidth}
    for entry in b.bandwidth:
        what = bandwidth.measurement_name(entry)
        if (before := ours.get(what)) and _differ(before.measured_gbps, entry.measured_gbps):
            lines = [line for line in (entry.line, before.line) if line]
            is_slower = entry.measured_gbps < before.measured_gbps
            yield Change(
                "bandwidth",
                what,
                bandwidth.describe_peak(before),
                bandwidth.describe_peak(entry),
                is_slower=is_slower,
                evidence=lines,
            )
    speeds = {speed.what: speed for speed in a.training}
    for speed in b.training:
        if (earlier := speeds.get(speed.what)) and _differ(earlier.median, speed.median):
            is_slower = (speed.median > earlier.median) == speed.what.startswith("seconds")
            lines = [speed.line, earlier.line]
            times = max(speed.median, earlier.median) / min(speed.median, earlier.median)
            after = f"{bandwidth.describe_speed(speed)}, {times:.2g} times {'slower' if is_slower else 'faster'}"
            yield Change(
                "bandwidth", "training", bandwidth.describe_speed(earlier), after, is_slower=is_slower, evidence=lines
            )
    if bool(a.training) != bool(b.training):
        stated = ", ".join(map(bandwidth.describe_speed, a.training or b.training))
        open_questions.append(f"training: not in the log of {'B' if a.training else 'A'} ({stated} in the other)")


def _differ(before: float, after: float) -> bool:
    return abs(after - before) > _NOISE * max(before, after)


def _by_ranks(job: Job) -> dict[tuple[object, ...], list[CommunicatorInfo]]:
    groups: dict[tuple[object, ...], list[CommunicatorInfo]] = {}
    for comm in job.communicators:
        key = (comm.nranks, comm.id) if None in comm.ranks else (comm.nranks, *comm.ranks)
        groups.setdefault(key, []).append(comm)
    return groups


def _same(ours: list[CommunicatorInfo], theirs: list[CommunicatorInfo]) -> Iterator[Change]:
    """Channels and states of communicators of the same ranks."""
    for old, new in zip(ours, theirs, strict=False):
        name = new.id if new.id == "world" else f"{count(new.nranks, 'rank')} {_members(new)}"
        lines = new.evidence[:1]
        if old.channels and new.channels and old.channels != new.channels:
            before, after = count(old.channels, "channel"), count(new.channels, "channel")
            yield Change("communicators", name, before, after, evidence=lines)
        states = ["complete" if comm.state in _SOUND else comm.state for comm in (old, new)]
        if states[0] != states[1]:
            yield Change("communicators", name, states[0], states[1], evidence=lines)


def _lonely(comms: list[CommunicatorInfo], is_new: bool) -> Iterator[Change]:
    """Communicators that only one run has, by their size."""
    for size in sorted({comm.nranks for comm in comms}):
        members = [comm for comm in comms if comm.nranks == size]
        words = f"{count(len(members), 'communicator')} of {count(size, 'rank')}: {listed(map(_members, members))}"
        lines = [line for comm in members for line in comm.evidence[:1]][:_MAX_EVIDENCE]
        before, after = (None, words) if is_new else (words, None)
        yield Change("communicators", f"of {count(size, 'rank')}", before, after, evidence=lines)


def _members(comm: CommunicatorInfo) -> str:
    return f"[{ranges(rank for rank in comm.ranks if rank is not None) or '?'}]"


def _sizes(a: Job, b: Job) -> Iterator[Change]:
    """Yield how many communicators there are of each size."""
    ours, theirs = (Counter(comm.nranks for comm in job.communicators) for job in (a, b))
    before, after = (
        ", ".join(f"{n} of {count(s, 'rank')}" for s, n in sorted(each.items())) for each in (ours, theirs)
    )
    if before != after:
        yield Change("communicators", "sizes", before or None, after or None)
