"""What changed between two runs, and which change likely explains which: :func:`compare` is the entry point.

Hosts and process ids differ from run to run, so jobs are compared by rank, as far as ranks mean the same in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import field
from functools import cache
from itertools import islice

from nccl_inspect import bandwidth
from nccl_inspect.event import types as events
from nccl_inspect.judging.culprits import subject
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import CommunicatorInfo, Job, PathKind, Selection, Setting
from nccl_inspect.model.statements.environment import is_echoed
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, Record, pick_fields
from nccl_inspect.util.wording import count, list_words, ranges, ranks_word

AREAS = ("verdict", "versions", "network", "world", "environment", "communicators", "paths", "bandwidth", "findings")
"""What is compared, causes before effects."""


class Change(Record):
    """One difference between the runs."""

    area: str
    what: str  # a variable, a communicator, a rule, …; for paths the scope
    before: str | None
    after: str | None  # None where this run does not have it
    pairs: list[tuple[int, int]] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)  # rules whose findings are about it, in the run that has them
    evidence: list[Evidence] = field(default_factory=list)  # lines that show it, those of B first
    severity: str = ""  # of a finding, in the run that has it
    is_slower: bool = False  # of a bandwidth or a training, in B
    fix: list[str] = field(default_factory=list)  # of a finding that only B has

    @property
    def kind(self) -> str:
        """Return ``new`` (only in B), ``gone`` (only in A) or ``changed``."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"


class CausalChain(Frozen):
    """A chain from a cause to its effects, as findings and their evidence show it."""

    causes: list[Change]  # changes shown by the evidence of the first finding; may be empty
    findings: list[Change]  # new or gone findings, the cause before what it explains
    effects: list[Change]  # changes of the network and of paths that these findings are about
    fix: list[str]  # how to make B like A: the first step for the first finding, and how to revert the causes


class Difference(Record):
    """Two runs compared."""

    a: Job
    b: Job
    changes: list[Change]
    explanations: list[CausalChain]
    renamed: dict[str, str]  # hosts of A and the hosts of B that have the same ranks and another name
    open: list[str]  # what could not be compared, and why


_SOUND = ("complete", "connected", "destroyed")  # states of a communicator that differ only by where the log ends
_MAX_EVIDENCE = 3
_NOISE = 0.05  # runs on the same machines differ by that much


def compare(a: Job, b: Job) -> Difference:
    """Compare run B with run A; both are judged by the same rules."""
    # A rank means the same in both where their worlds have one size, and the same ranks are together on a host.
    ours, theirs = ({rank for host in job.hosts for rank in host.ranks} for job in (a, b))
    together, also_together = (
        {group for host in job.hosts if (group := frozenset((ours & theirs).intersection(host.ranks)))}
        for job in (a, b)
    )
    is_same_world = (a.world_size, a.rank_space) == (b.world_size, b.rank_space)
    pairwise = is_same_world and together == also_together
    unclear = []
    for name, job, other in (("A", a, b), ("B", b, a)):
        if len(other.paths) and not len(job.paths):
            unclear.append(f"{name} has no connection line: paths and findings about them are not compared")
        elif job.verdict == "failed" != other.verdict:
            unclear.append(f"{name} failed: it may have ended before it reached what it lacks")
    silent = set(a.ranks_seen) ^ set(b.ranks_seen) if pairwise and a.world_size is not None else set()
    if silent:
        whose = "its" if len(silent) == 1 else "their"
        unclear.append(f"{ranks_word(silent)}: not in both logs, so {whose} paths are not compared")
    if not pairwise:
        unclear.append(
            "ranks are not comparable between the runs (different world, or ranks grouped differently on hosts): "
            "paths are compared by kind, and communicators by size"
        )
    names = {host.name for host in b.hosts}
    by_ranks = {tuple(host.ranks): host.name for host in b.hosts if host.ranks}
    gone = [host for host in a.hosts if host.name not in names and tuple(host.ranks) in by_ranks]
    renamed = {host.name: by_ranks[tuple(host.ranks)] for host in gone} if pairwise else {}
    changes = [Change("verdict", "verdict", a.verdict, b.verdict)] if a.verdict != b.verdict else []
    changes += [
        *_changes_of_setup(a, b, unclear),
        *_environment_changes(a, b, renamed, unclear),
        *_communicator_changes(a, b, pairwise),
        *_path_changes(a, b, pairwise, silent),
        *_bandwidth_changes(a, b, unclear),
        *_finding_changes(a, b, pairwise, unclear),
    ]
    changes.sort(key=lambda change: AREAS.index(change.area))
    return Difference(a, b, changes, _explain(changes, pairwise), renamed, unclear)


# Versions, network, world, environment

_MAY_BE_MISSING = ("plugin", "provider")  # in a run; of all else, what is missing is only not in the log
_OPTIONAL = ("devices", "platform")  # which many logs do not name


def _changes_of_setup(a: Job, b: Job, unclear: list[str]) -> Iterator[Change]:
    def find_lines(
        event: type[events.Event], *jobs: Job, most: int | None = _MAX_EVIDENCE, **values: object
    ) -> Iterator[Evidence]:
        for job in jobs:
            notices = (notice for notice in job.notices if isinstance(notice.event, event))
            fitting = (one for one in notices if all(getattr(one.event, key) == values[key] for key in values))
            yield from (notice.evidence[0] for notice in islice(fitting, most))

    networks = (a.network, b.network)
    devices = list(find_lines(events.NetDevices, b, net=b.network.name, most=None))
    exact = (", ".join(text for text in job.nccl_versions if "inferred" not in text) for job in (a, b))
    drivers, plugins = (
        (", ".join(job.cuda_versions) for job in (a, b)),
        (f"{n.plugin or ''} {n.plugin_version or ''}" for n in networks),
    )
    for area, what, values, lines in (
        ("versions", "NCCL", exact, find_lines(events.NcclVersion, b, a)),
        ("versions", "CUDA driver", drivers, find_lines(events.CudaDriver, b, a)),
        ("network", "network", (net.name for net in networks), devices),
        ("network", "plugin", plugins, find_lines(events.PluginStatus, b, kind="NET")),
        ("network", "provider", (net.provider for net in networks), find_lines(events.OfiProvider, b)),
        ("network", "devices", (list_words(net.devices, 8) for net in networks), devices[:1]),
        ("world", "world size", (str(job.world_size or "") for job in (a, b)), ()),
        ("world", "hosts", map(_hosts_words, (a, b)), ()),
        ("world", "platform", (job.platform for job in (a, b)), ()),
    ):
        before, after = ((value or "").strip() for value in values)
        if before != after and ((before and after) or what in _MAY_BE_MISSING):
            yield Change(area, what, before or None, after or None, evidence=list(lines) if after else [])
        elif before != after and what not in _OPTIONAL:
            unclear.append(f"{what}: not in the log of {'B' if before else 'A'} ({before or after} in the other)")


def _hosts_words(job: Job) -> str:
    sizes = sorted(len(host.ranks) for host in job.hosts)
    if job.world_size is None or sum(sizes) != job.world_size:
        return ""
    span = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"{count(len(sizes), 'host')}, {span} {'rank' if span == '1' else 'ranks'} each"


def _environment_changes(a: Job, b: Job, renamed: dict[str, str], unclear: list[str]) -> Iterator[Change]:
    ours, theirs = (group_values((setting.name, setting) for setting in job.environment) for job in (a, b))
    for name in sorted({*ours, *theirs}):
        before = _values_words(ours.get(name, []), renamed)
        after = _values_words(theirs.get(name, []), {})
        runs = (("A", before, a), ("B", after, b))
        silent = next((run for run, own, job in runs if not own and not is_echoed(name, job.nccl_versions)), "")
        if silent:
            unclear.append(f"{name}={before or after}: NCCL of run {silent} does not echo it")
        elif before != after:
            shown = [*theirs.get(name, []), *ours.get(name, [])]
            lines = [line for setting in shown for line in setting.evidence[:_MAX_EVIDENCE]]
            ranks = sorted({rank for setting in theirs.get(name, []) for rank in setting.ranks or ()})
            yield Change("environment", name, before or None, after or None, ranks=ranks, evidence=lines)


def _values_words(settings: Iterable[Setting], renamed: dict[str, str]) -> str:
    words = []
    for setting in settings:
        value = setting.value
        for name, other in renamed.items():
            value = value.replace(name, other)
        if setting.ranks is not None:
            value += f" on ranks {ranges(setting.ranks)}" if setting.ranks else " on some ranks"
        words.append(value + ("" if setting.source == "environment" else f" ({setting.source})"))
    return "; ".join(sorted(words))


# Communicators and bandwidth


def _communicator_changes(a: Job, b: Job, pairwise: bool) -> Iterator[Change]:
    """Yield changes of communicators: those of the same ranks are the same, whatever their names."""
    if not pairwise:
        counts = [Counter(comm.nranks for comm in job.communicators) for job in (a, b)]
        before, after = (", ".join(f"{n} of {count(s, 'rank')}" for s, n in sorted(each.items())) for each in counts)
        if before != after:
            yield Change("communicators", "sizes", before or None, after or None)
        return
    ours, theirs = (
        group_values(((comm.nranks, *([comm.id] if None in comm.ranks else comm.ranks)), comm) for comm in comms)
        for comms in (a.communicators, b.communicators)
    )
    for key in ours:
        for old, new in zip(ours[key], theirs.get(key, ()), strict=False):
            name = new.id if new.id == "world" else f"{count(new.nranks, 'rank')} {_member_ranks(new)}"
            if old.channels and new.channels and old.channels != new.channels:
                before, after = count(old.channels, "channel"), count(new.channels, "channel")
                yield Change("communicators", name, before, after, evidence=new.evidence[:1])
            before, after = ("complete" if comm.state in _SOUND else comm.state for comm in (old, new))
            if before != after:
                yield Change("communicators", name, before, after, evidence=new.evidence[:1])
    for one, other, is_new in ((ours, theirs, False), (theirs, ours, True)):
        lonely = [comm for key, comms in one.items() for comm in comms[len(other.get(key, ())) :]]
        for size in sorted({comm.nranks for comm in lonely}):
            members = [comm for comm in lonely if comm.nranks == size]
            name = f"of {count(size, 'rank')}"
            text = f"{count(len(members), 'communicator')} {name}: {list_words(map(_member_ranks, members))}"
            lines = [line for comm in members for line in comm.evidence[:1]][:_MAX_EVIDENCE]
            yield Change("communicators", name, None if is_new else text, text if is_new else None, evidence=lines)


def _member_ranks(comm: CommunicatorInfo) -> str:
    return f"[{ranges(rank for rank in comm.ranks if rank is not None) or '?'}]"


def _bandwidth_changes(a: Job, b: Job, unclear: list[str]) -> Iterator[Change]:
    def differ(before: float, after: float) -> bool:
        return abs(after - before) > _NOISE * max(before, after)

    peaks = {bandwidth.measurement_name(entry): entry for entry in a.bandwidth}
    for entry in b.bandwidth:
        peak = peaks.get(what := bandwidth.measurement_name(entry))
        if peak and differ(peak.measured_gbps, entry.measured_gbps):
            lines = [line for line in (entry.line, peak.line) if line]
            is_slower = entry.measured_gbps < peak.measured_gbps
            words = bandwidth.describe_peak(peak), bandwidth.describe_peak(entry)
            yield Change("bandwidth", what, *words, is_slower=is_slower, evidence=lines)
    speeds = {speed.what: speed for speed in a.training}
    for speed in b.training:
        earlier = speeds.get(speed.what)
        if earlier and differ(earlier.median, speed.median):
            is_slower = (speed.median > earlier.median) == speed.what.startswith("seconds")
            times = max(speed.median, earlier.median) / min(speed.median, earlier.median)
            after = f"{bandwidth.describe_speed(speed)}, {times:.2g} times {'slower' if is_slower else 'faster'}"
            words, lines = (bandwidth.describe_speed(earlier), after), [speed.line, earlier.line]
            yield Change("bandwidth", "training", *words, is_slower=is_slower, evidence=lines)
    if bool(a.training) != bool(b.training):
        stated = ", ".join(map(bandwidth.describe_speed, a.training or b.training))
        unclear.append(f"training: not in the log of {'B' if a.training else 'A'} ({stated} in the other)")


# Paths

_SAME = {"direct shared memory": "SHM/direct/direct", "SHM/direct": "SHM/direct/direct"}
"""One mechanism in the words of several releases (until 2.12; from 2.30)."""


def _path_changes(a: Job, b: Job, pairwise: bool, silent: Set[int]) -> Iterator[Change]:
    """Yield what changed in transports, GPUDirect, NICs and channels; nothing where a run has no paths.

    Pairs are compared one by one where ranks mean the same, else kinds of paths. Ranks of which one log is missing are
    left out. Pairs that changed alike are one change.
    """
    if not len(a.paths) or not len(b.paths):
        return
    if not pairwise:
        ours, theirs = _paths_by_way(a.paths), _paths_by_way(b.paths)
        for (scope, way), members in sorted({**ours, **theirs}.items()):
            if (scope, way) not in theirs:
                yield _path_change(scope, way, None, members)
            elif (scope, way) not in ours:
                yield _path_change(scope, None, way, members)
        return
    before, after = (job.paths.filter_values(("src", "dst"), lambda *ends: silent.isdisjoint(ends)) for job in (a, b))
    old, now = (
        {(src, dst): kind for src, dst, kind in each.distinct("src", "dst", "kind")} for each in (before, after)
    )
    both = [(ends, old[ends], kind) for ends, kind in now.items() if ends in old]
    for word in (cache(_way_words), lambda kind: count(len(kind.channels), "channel")):
        differing = (pair for pair in both if word(pair[1]) != word(pair[2]))
        groups = group_values(((pair[2].scope, word(pair[1]), word(pair[2])), pair) for pair in differing)
        for (scope, old_word, new_word), pairs in sorted(groups.items()):
            kinds = {kind for pair in pairs for kind in pair[1:]}
            yield _path_change(scope, old_word, new_word, _select_pairs(pairs, b), kinds)
    # All pairs of a scope whose sender uses another NIC are one change: each has names of its own.
    moved = (pair for pair in both if pair[1].nic and pair[2].nic and pair[1].nic != pair[2].nic)
    for scope, moves in sorted(group_values((pair[2].scope, pair) for pair in moved).items()):
        old_nics = list_words((str(kind.nic) for _, kind, _ in moves), 3)
        new_nics = list_words((str(kind.nic) for _, _, kind in moves), 3)
        yield _path_change(scope, f"NIC {old_nics}", f"NIC {new_nics}", _select_pairs(moves, b))
    for paths, others, is_new in ((before, now, False), (after, old, True)):
        alone = paths.filter_values(("src", "dst"), lambda *ends, others=others: ends not in others)
        for (scope, way), members in sorted(_paths_by_way(alone).items()):
            yield _path_change(scope, None if is_new else way, way if is_new else None, members)


def _select_pairs(pairs: Iterable[tuple[tuple[int, int], PathKind, PathKind]], job: Job) -> Selection:
    wanted = {pair[0] for pair in pairs}
    return job.paths.filter_values(("src", "dst"), lambda *ends: ends in wanted)


def _way_words(path: PathKind) -> str:
    detail = path.detail.replace("NET/AWS Libfabric", "NET/Libfabric")
    gdr = {True: " with GPUDirect", "partial": " with GPUDirect on some channels"}.get(path.gdr or False, "")
    return _SAME.get(detail, detail) + gdr


def _paths_by_way(paths: Selection) -> dict[tuple[str, str], Selection]:
    kinds = group_values(((kind.scope, _way_words(kind)), kind) for kind in paths.kinds)
    return {way: paths.where(alike.__contains__) for way, alike in kinds.items()}


def _path_change(
    scope: str, before: str | None, after: str | None, paths: Selection, judged: Iterable[PathKind] | None = None
) -> Change:
    rules = {rule for kind in (paths.kinds if judged is None else judged) for rule in kind.rules}
    pairs, lines = [(src, dst) for src, dst in paths.values("src", "dst")], paths.first_lines()[:_MAX_EVIDENCE]
    return Change("paths", scope, before, after, pairs, sorted(paths.ends()), sorted(rules), lines)


# Findings


def _finding_changes(a: Job, b: Job, pairwise: bool, unclear: list[str]) -> Iterator[Change]:
    unjudged = {question.rule for question in b.not_judged}
    if not len(b.paths):
        unjudged.update(rule for kind in a.paths.kinds for rule in kind.rules)
    for old, new in sorted(pair_findings(a.findings, b.findings), key=lambda pair: pair[0] is None):
        if old is None:
            assert new is not None
            yield _finding_change(new, None, _finding_words(new))
        elif new:
            before, after = (f"{finding.severity}, {finding.confidence}" for finding in (old, new))
            if before != after:
                yield _finding_change(new, before, after)
            if pairwise and old.ranks != new.ranks:  # with what they have in common
                before, after = (
                    f"ranks {ranges(f.ranks) or 'unknown'}" + (f" ({subject(f.culprits)})" if f.culprits else "")
                    for f in (old, new)
                )
                yield _finding_change(new, before, after)
        elif old.rule in unjudged:
            unclear.append(f"{old.rule}: found in A; the log of B does not show it")
        else:
            yield _finding_change(old, _finding_words(old), None)


def pair_findings(
    before: Sequence[Finding], after: Sequence[Finding]
) -> Iterator[tuple[Finding | None, Finding | None]]:
    """Yield each later finding with the same one before; then those that are no more.

    A rule may find several things: those that read the same are the same, and of others the first is the first.
    """
    left = list(before)

    def take(rule: str, summary: str | None = None) -> Finding | None:
        at = (at for at, one in enumerate(left) if one.rule == rule and summary in (None, one.summary))
        return None if (first := next(at, None)) is None else left.pop(first)

    same = [take(new.rule, new.summary) for new in after]
    yield from [(old or take(new.rule), new) for old, new in zip(same, after, strict=True)]
    yield from ((old, None) for old in left)


def _finding_words(finding: Finding) -> str:
    return f"{finding.severity}: {finding.summary}" + (f"; {finding.where}" if finding.where else "")


def _finding_change(finding: Finding, before: str | None, after: str | None) -> Change:
    fix = finding.fix if before is None and finding.severity != "info" else []
    same = pick_fields(finding, "ranks", "evidence", "severity")
    return Change("findings", finding.rule, before, after, **same, rules=finding.because, fix=fix)


# What explains what

_PLAIN = re.compile(r"[^\s;]+")  # a value for all ranks, from the environment


def _explain(changes: list[Change], pairwise: bool) -> list[CausalChain]:
    """Return chains of changes, first those of new findings in B, then those of gone ones.

    A finding explains another that names it as its cause, and the paths that it is about. A changed setting or version
    explains a finding if one of its lines is evidence of that finding. What a failed run lacks explains nothing.
    """
    chains: list[CausalChain] = []
    failed = any(change.area == "verdict" and change.after == "failed" for change in changes)
    for kind in ("new",) if failed else ("new", "gone"):
        findings = [change for change in changes if change.area == "findings" and change.kind == kind]
        names = {finding.what for finding in findings}
        leads = (first for first in findings if not names.intersection(first.rules) - {first.what})
        chains += [chain for first in leads if (chain := _make_chain(first, findings, changes, pairwise))]
        explained = {id(effect) for chain in chains for effect in chain.effects if effect.area == "paths"}
        changes = [change for change in changes if id(change) not in explained]  # what is new there says why
    return chains


def _make_chain(first: Change, findings: list[Change], changes: list[Change], pairwise: bool) -> CausalChain | None:
    members, names = [first], {first.what}
    while fresh := [f for f in findings if f.what not in names and names.intersection(f.rules)]:
        members += fresh  # findings that name the first one as their cause, and those that name them
        names |= {finding.what for finding in fresh}
    causes = [change for change in changes if change.area in ("versions", "environment")]
    causes = [change for change in causes if _share_a_line(change, first)]
    paths = (change for change in changes if change.area == "paths")
    effects = []
    for path in paths:  # a finding without cost makes no path appear or disappear
        about = [f for f in members if f.what in path.rules and (f.severity != "info" or path.kind == "changed")]
        # A pair that B does not connect at all lost its finding with its lines, not by a fix.
        if any(not (pairwise and path.kind == finding.kind == "gone") for finding in about):
            effects.append(path)
    if effects and first.severity != "info":  # what worse paths cost, or better ones gain
        is_slower = first.kind == "new"
        effects += [change for change in changes if change.area == "bandwidth" and change.is_slower == is_slower]
    networks = [change for change in changes if change.area == "network"]
    effects = [n for n in networks if any(_share_a_line(n, member) for member in members)] + effects
    if not causes and not effects and len(members) == 1:
        return None
    fix = next((finding.fix[:1] for finding in members if finding.fix), [])
    if first.kind == "new" and (fix or first.severity != "info"):
        reverted = [c for c in causes if c.kind != "new" or not any(c.what in step for step in fix)]
        for cause in reverted:  # by a command, for a setting with one value
            if cause.area == "versions":
                step = f"Use {cause.what} {cause.before} again, as A does."
            elif cause.before is None:
                step = f"unset {cause.what}{COMMENT}as in A"
            elif _PLAIN.fullmatch(cause.before):
                step = f"{cause.what}={cause.before}{COMMENT}as in A"
            else:
                step = f"Set {cause.what} back to what A has: {cause.before}."
            fix = [*fix, step]
    return CausalChain(causes, members, effects, fix)


def _share_a_line(change: Change, finding: Change) -> bool:
    return not positions_in(finding.evidence).isdisjoint(positions_in(change.evidence))
