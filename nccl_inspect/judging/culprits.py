"""The culprits of findings: what the bad paths, connection ends or ranks have in common and the good ones lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from nccl_inspect import culprits
from nccl_inspect.culprits import Traits
from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.grammar.layers import FOREIGN
from nccl_inspect.judging import culprit_words as words
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.networks import transfers
from nccl_inspect.judging.results import Results
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Culprit, Finding
from nccl_inspect.model.job import Notice, PathKind, Selection, Setting
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen, frozen

_OF_PATHS = ("host", "nic", "gpu", "rank", "rail", "communicator", "setting", "version")
_OF_RANKS = ("nic", "host", "rank", "gpu", "rail", "communicator", "setting", "version")
"""The preference among traits that explain the same. A rank reports its own fault, and names its NIC."""
_OF_MESSAGES = frozenset(("nic", "rail"))
"""Kinds that only the complaining ranks name."""
_STEERS = compile_later(
    r"NCCL_(?:\w+_(?:DISABLE|ENABLE|LEVEL)|(?:NET|TUNER)(?:_PLUGIN)?|ALGO|PROTO|CROSS_NIC|IB_HCA|SOCKET_IFNAME|TOPO_FILE)"
)
"""Variables that select connections; others that only some ranks print may be effects of their connections."""
_MOST_VALUES = 3
"""Values of a variable; one with more differs by design, such as one that names each host's interface."""
_TCP = ("Socket", "FastSocket")
_DEVICES = ("device", "hca", "name")
"""Fields of messages that name a NIC."""


def locate(facts: Facts, results: Results, findings: Iterable[Finding], names_fault: Callable[[Finding], bool]) -> None:
    """Add the culprits to findings, with a sentence and a first step.

    Args:
        facts: about the job.
        results: of all rules: which paths are bad.
        findings: to report.
        names_fault: says whether the fault is in the ranks and hosts that a finding names.
    """
    findings = list(filter(_is_doubtful, findings))
    against = {finding.rule: finding.category for finding in findings}
    for finding in findings:
        if finding.paths:
            compared = _Compared(facts, results, finding, finding.paths, against)
            _add_culprits(facts, finding, compared.ends() if compared.is_one_sided() else compared.paths())
        elif broken := transfers.failed_transfers(facts, _notices(facts, finding)):
            _add_culprits(facts, finding, _pairs(facts, broken))
        elif names_fault(finding) and not _is_of_others(facts, finding):
            _add_culprits(facts, finding, _ranks(facts, finding))


def _is_doubtful(finding: Finding) -> bool:
    """Return whether something may be wrong: a certain info needs no inspection."""
    return finding.severity != "info" or finding.confidence == "possible"


def _is_of_others(facts: Facts, finding: Finding) -> bool:
    """Return whether its lines are those of ranks that waited for others or lost them, and name no NIC of their own."""
    if _nics(facts, finding):
        return False
    names = (notice.production.partition("/") for notice in _notices(facts, finding))
    return any(grammar.find_layer(dialect, name) in FOREIGN for dialect, _, name in names)


@frozen
class _Case(Frozen):
    """The comparison for a finding."""

    group: culprits.Population
    traits: Traits
    order: Sequence[str]
    scene: words.Scene


def _add_culprits(facts: Facts, finding: Finding, case: _Case) -> None:
    """Add the culprits to the finding, if there are any."""
    explanation = culprits.explain(case.group, case.traits.known, case.order)
    good = case.group.goods
    ranks_of = {host.name: host.ranks for host in facts.job.hosts}

    def culprit(count: culprits.Count) -> Culprit:
        kind, name, side = case.traits.known[count.trait]
        ranks = ranks_of[name] if kind == "host" and name in ranks_of else sorted(case.traits.ranks[count.trait])
        return Culprit(kind, name, count.bad, count.bad + count.good, good - count.good, side, ranks)

    named, beside = ([culprit(count) for count in counts] for counts in (explanation.culprits, explanation.beside))
    # A setting that the finding is about explains its paths, but neither says more, nor is it lacking elsewhere.
    lines = "\n".join(line.text for line in finding.evidence)
    is_stated = any(one.kind == "setting" and one.name.partition("=")[0] in lines for one in named)
    if not named or (is_stated and not facts.job.paths):
        return
    finding.culprits = [*named, *beside]
    scene = case.scene.with_fields(bad=len(case.group.bad), good=good, explained=explanation.explained)
    finding.where = words.line(named, beside, scene, facts.job)
    step = words.step(named, beside, scene, facts.job)
    if step and finding.severity != "info" and not is_stated:
        finding.fix = [step, *finding.fix]


class _Compared:
    """The paths of a finding and the good ones that it could have been about."""

    def __init__(
        self, facts: Facts, results: Results, finding: Finding, bad: Selection, against: dict[str, str]
    ) -> None:
        self._facts, self._finding, self._bad = facts, finding, bad
        scopes = {kind.scope for kind in bad.kinds}
        self._scope = "intra" if scopes == {"intra"} else "inter" if scopes == {"inter"} else "any"
        # Multi-node NVLink does not count as a working network, but findings about local paths compare with it.
        on_network = all(kind.transport == "NET" for kind in bad.kinds) and finding.category != "intra-node path"
        faults = {rule for rule, category in against.items() if category == finding.category}
        fastest, slowest = min(map(_slowness, bad.kinds)), max(map(_slowness, bad.kinds))
        others = facts.job.paths.where(
            lambda kind: (
                kind.scope in scopes and _slowness(kind) <= slowest and (kind.transport == "NET" or not on_network)
            )
        )
        others = results.where(others.exclude(bad), lambda mark: not mark.is_open)
        # A path with another fault of the kind proves nothing, unless it is faster all the same.
        sound = results.where(others, lambda mark: faults.isdisjoint(mark.rules))
        self._good = others.where(lambda kind: _slowness(kind) < fastest) | sound

    def is_one_sided(self) -> bool:
        """Return whether paths show which of their ends lacks GPUDirect RDMA."""
        if self._finding.category != "gpudirect":
            return False
        return any(len({end.gdr for side in SIDES for end in kind.ends(side)}) > 1 for kind in self._bad.kinds)

    def paths(self) -> _Case:
        """Bad paths against good ones."""
        networks = {kind.net for kind in self._bad.kinds} & {kind.net for kind in self._good.kinds}
        traits = Traits(self._facts.job, _find_differences(self._facts), with_nics=bool(networks - {None}))
        good = partial(traits.select_paths, self._good)
        bad = traits.list_each(self._bad) if self._good else []
        group = culprits.Population(bad, good, len(self._good))
        return _Case(group, traits, _OF_PATHS, words.Scene("path", self._scope, self._hosts()))

    def ends(self) -> _Case:
        """Ends that lack GPUDirect RDMA against those that have it, including those on the same paths."""
        traits = Traits(self._facts.job, _find_differences(self._facts))
        paths = self._facts.inter_host_rdma_paths()
        bad = traits.list_ends(self._bad & paths, lambda end: not end.gdr)
        good = traits.list_ends(paths, lambda end: end.gdr)
        group = culprits.Population(bad, lambda wanted: (traits_of_end & wanted for traits_of_end in good), len(good))
        return _Case(group, traits, _OF_PATHS, words.Scene("end", self._scope, self._hosts()))

    def _hosts(self) -> int:
        """Return the number of compared hosts."""
        return len((self._bad.hosts() | self._good.hosts()) - {None})


def _slowness(kind: PathKind) -> int:
    """Return the order of connections by speed, as far as it is the same on all machines."""
    if kind.transport != "NET":
        return {"P2P": 0, "SHM": 1}.get(kind.transport, 2)
    return 4 if kind.net in _TCP else 2 if kind.gdr is True else 3


def _ranks(facts: Facts, finding: Finding) -> _Case:
    """Return the ranks of a finding against the others; its hosts if it has no ranks."""
    hosts = {host.name for host in facts.job.hosts}
    traits = Traits(facts.job, _find_differences(facts))
    if finding.ranks:
        nics = _nics(facts, finding)
        bad = [traits.list_rank(rank, nics.get(rank, ())) for rank in finding.ranks]
        good = [traits.list_rank(rank) for rank in sorted(set(facts.job.ranks_seen).difference(finding.ranks))]
    else:
        bad = [traits.list_hosts([host]) for host in finding.hosts]
        others = sorted(hosts.difference(finding.hosts))
        good = [traits.list_hosts([host]) for host in others] if len(others) > 1 else []  # one may be an excerpt's end
    group = culprits.Population(
        bad, lambda wanted: (traits_of_good & wanted for traits_of_good in good), len(good), 1, _OF_MESSAGES
    )
    scene = words.Scene("rank" if finding.ranks else "host", "any", len(hosts))
    return _Case(group, traits, _OF_RANKS, scene)


def _pairs(facts: Facts, broken: list[transfers.Transfer]) -> _Case:
    """Pairs of hosts with failed transfers against those without."""
    traits = Traits(facts.job, {})
    bad = [traits.list_hosts(transfer.pair, transfer.host, transfer.nic) for transfer in broken]
    good = [traits.list_hosts(pair) for pair in transfers.healthy_pairs(facts, broken)]
    group = culprits.Population(
        bad, lambda wanted: (traits_of_good & wanted for traits_of_good in good), len(good), hidden=_OF_MESSAGES
    )
    return _Case(group, traits, _OF_RANKS, words.Scene("pair", "any", 0))


def _notices(facts: Facts, finding: Finding) -> list[Notice]:
    """Return the statements with the wording of a finding's evidence, which has only the first of their lines."""
    lines = {(line.source, line.order) for line in finding.evidence}
    shown = [notice for notice in facts.job.notices if any((e.source, e.order) in lines for e in notice.evidence)]
    kinds = {(notice.production, value(notice, "status")) for notice in shown if notice.event}
    notices = facts.notices(*(production for production, _ in kinds))
    return [notice for notice in notices if (notice.production, value(notice, "status")) in kinds]


def _nics(facts: Facts, finding: Finding) -> dict[int, set[tuple[str, str]]]:
    """Return the NICs that the ranks of a finding name in its messages."""
    by_rank: dict[int, set[tuple[str, str]]] = {}
    for notice in _notices(facts, finding):
        nic = next((str(name) for field in _DEVICES if (name := value(notice, field))), None)
        if nic and len(notice.hosts) == 1:
            for rank in notice.ranks:
                by_rank.setdefault(rank, set()).add((notice.hosts[0], nic))
    return by_rank


@once
def _find_differences(facts: Facts) -> dict[int, list[tuple[str, str]]]:
    """Settings and versions that differ between ranks."""
    by_rank: dict[int, list[tuple[str, str]]] = {}
    for setting in _settings(facts):
        for rank in setting.ranks or ():
            by_rank.setdefault(rank, []).append(("setting", f"{setting.name}={setting.value}"))
    for kind, name in ((events.NcclVersion, _nccl), (events.CudaDriver, _cuda)):
        versions = [(name(notice.event), notice.ranks) for notice in facts.with_event(kind)]
        for version, ranks in versions if len({version for version, _ in versions}) > 1 else ():
            for rank in ranks:
                by_rank.setdefault(rank, []).append(("version", version))
    return {rank: list(dict.fromkeys(things)) for rank, things in by_rank.items()}


def _settings(facts: Facts) -> list[Setting]:
    """Settings that only some ranks have and that may select their connections."""
    values: dict[str, int] = {}
    for setting in facts.job.environment:
        values[setting.name] = values.get(setting.name, 0) + 1
    return [
        setting
        for setting in facts.job.environment
        if setting.ranks
        and (values[setting.name] > 1 or _STEERS.fullmatch(setting.name))
        and values[setting.name] <= _MOST_VALUES
        and not (setting.name.endswith("_DISABLE") and setting.value == "0")
    ]


def _nccl(event: object) -> str:
    return f"NCCL {getattr(event, 'version', '')}"


def _cuda(event: object) -> str:
    number = int(getattr(event, "cuda_version", 0))
    return f"CUDA driver {number // 1000}.{number % 1000 // 10}"
