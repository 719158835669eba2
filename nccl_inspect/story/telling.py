"""The story of a job: its incidents, where they began, and the chain from there to the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import life
from nccl_inspect.judging.actors import Actor, Actors, actors_of, name_of, ranks_among
from nccl_inspect.judging.engine import list_rules, rules_by_name
from nccl_inspect.judging.exceptions import absent_ranks
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.progress import Lag, table_of
from nccl_inspect.judging.remedies import look_up
from nccl_inspect.judging.silence import silence_of, sources_in_blocks
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import Entry, Finding
from nccl_inspect.model.job import FirstFailure
from nccl_inspect.story.edges import COMPARED, TWO_SIDED, Edges, Incident, Order, are_together, before, blame, first_of
from nccl_inspect.story.incidents import HELPERS, Collector
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import cut
from nccl_inspect.util.wording import list_words

_CONFIDENCES = ("certain", "likely", "possible")
_OF_CALLS = (*COMPARED, "left-communicator")
_MOST_ENTRIES = 6
_WIDTH = 160
_PRINTER = compile_later(
    r"^(?:[WEIF]\d{4} [\d:.]+ \d+ \S+\] )?(?:\[[^\]]{1,200}\]:? ){0,4}(?:socketProgress(?:Opt)?: |Net : )?(?=\S)"
)
"""A prefix of a statement that names its printer."""
_BEFORE = {
    "lost-connection": "lost a connection: ",
    "call-failed": "a call of NCCL failed: ",
    "waited": "gave up waiting: ",
    "ended-from-outside": "was told to end: ",
}
"""What happened by kind, where the words are those of a line."""
_ONLY_NAME = compile_later(r"[\w.]+:")
"""An exception without its text says nothing."""
_WORDED = (Layer.END, Layer.PROGRAM)
"""Layers of which only what is said in the same words is one thing."""
_VAGUE = ("launcher-report", "call-failed")
"""Kinds that say least of what happened."""


class Story:
    """The story is what happened to a job: its incidents, and what explains each.

    Args:
        facts: about the job.
        actors: its processes.
        edges: its incidents, joined.
    """

    def __init__(self, facts: Facts, actors: Actors, edges: Edges) -> None:
        self._facts, self._actors = facts, actors
        self.incidents = edges.incidents
        for incident in self.incidents:
            for cause in incident.because:
                cause.effects += 1
        self.roots = sorted(edges.roots, key=_rank)
        """Where it began, first what leads; empty where nothing failed."""

    @property
    def lead(self) -> list[Incident]:
        """Return the incidents with which it began: the first root, and those of the same kind."""
        return self.alike(self.roots[0]) if self.roots else []

    @cached_property
    def deadly(self) -> list[Incident]:
        """Return the errors of single processes with which it began, and which others lost then: these died of them."""
        facts = self._facts
        if facts.job.excerpt or facts.is_over() or not facts.notices("nccl/socket-closed-by-peer"):
            return []
        own = [root for root in self.roots if root.actors and not root.is_foreign]
        warned = [root for root in own if root.notice is not None and root.notice.level == "WARN"]
        return [root for root in warned if any(one.kind == "lost-connection" for one in self.effects_of([root]))]

    def first_failure(self) -> FirstFailure | None:
        """Return who failed first: the only process, or the first ones by their times; None where that is open."""
        logs = {source.name for source in self._facts.job.sources}
        seen = [one for one in self.incidents if one.line and one.line.source in logs and self._who(one)]
        events = [one for one in seen if not (one.is_condition or one.lags or one.is_signal)]
        sure = [one for one in events if one.finding or (one.confidence == "certain" and not one.is_foreign)]
        if any(one.is_signal and not self._who(one) for one in self.lead):
            return None
        kinds = [one.kind for one in self.lead]
        if set(map(id, self.lead)).isdisjoint(
            id(one) for one in seen if not one.is_condition
        ):  # a setting, or a file beside the log
            by_kind = group_values((one.kind, one) for one in self.effects_of(self.lead))
            first_ones = filter(None, map(first_of, by_kind.values()))
            kinds = [one.kind for one in sorted(first_ones, key=Order)]
        own = next(filter(None, ([one for one in sure if one.kind == kind] for kind in dict.fromkeys(kinds))), [])
        is_alone = len({actor for one in own for actor in self._who(one)}) == 1
        times = [one.time for one in own if one.time is not None]
        if not own or not (is_alone or len(times) == len(own)):
            return None
        earliest = min(times, default=None)
        first = [one for one in own if is_alone or one.time == earliest]
        who = {actor for one in first for actor in self._who(one)}
        found = (self._actors.find_process(actor) for actor in sorted(who, key=str))
        processes = list(dict.fromkeys((process.host, process.pid) for process in found if process is not None))
        known = {rank for last in self._facts.job.last_lines if last.process in who for rank in last.ranks}
        line, notice = first[0].line, first[0].notice
        return FirstFailure(
            ranks=sorted({*ranks_among(who), *known}),
            processes=processes,
            device=notice.earliest.device if notice and len(processes) == 1 else None,
            time=notice.earliest.time if notice else None,
            basis="alone" if is_alone else "time",
            evidence=line or Evidence("", 0, ""),
        )

    @staticmethod
    def _who(incident: Incident) -> Collection[Actor]:
        return incident.actors or (incident.finding.ranks if incident.finding else ())

    def alike(self, root: Incident) -> list[Incident]:
        """Return a root with those in which the same happened to others."""
        same = [one for one in self.roots if one.kind == root.kind]
        if root.is_signal:  # one that went to several at once is one, even if some of these had lost others by then
            signals = [one for one in self.incidents if one.is_signal and one.actors and one not in same]
            same += signals if root.actors else []
            same = [one for one in same if one.is_launchers_signal == root.is_launchers_signal]
        if root.layer == Layer.LAUNCHER:
            same = [one for one in same if one is root or are_together(root, one)]
        if root.kind == "exception":
            same = [one for one in same if one.words.partition(":")[0] == root.words.partition(":")[0]]
        return same

    def actors_in(self, incidents: Iterable[Incident]) -> set[Actor]:
        """Return the processes to look at: those that lag or differ, else those it happened to, else those it names."""
        return {actor for one in incidents for actor in (one.peers if one.lags else one.actors or one.peers)}

    def ranks_in(self, incidents: Sequence[Incident]) -> list[int]:
        """Return their ranks of the job, as far as these are known."""
        ranks = ranks_among(self.actors_in(incidents))
        first = incidents[0] if incidents else None
        return ranks or (list(first.finding.ranks) if first and first.finding else [])

    def hosts_in(self, incidents: Iterable[Incident]) -> list[str]:
        """Return their hosts."""
        return self._actors.hosts_of(self.actors_in(incidents))

    def pids_in(self, incidents: Iterable[Incident]) -> list[int]:
        """Return their pids."""
        processes = (self._actors.find_process(actor) for actor in self.actors_in(incidents))
        return sorted({process.pid for process in processes if process is not None})

    def effects_of(self, roots: Iterable[Incident]) -> list[Incident]:
        """Return everything that follows from some incidents, in the order of the edges."""
        queue = list(roots)
        reached = set(map(id, queue))
        by_cause: dict[int, list[Incident]] = defaultdict(list)
        for incident in self.incidents:
            for cause in incident.because:
                by_cause[id(cause)].append(incident)
        effects: list[Incident] = []
        for cause in queue:
            for effect in by_cause[id(cause)]:
                if id(effect) not in reached:
                    reached.add(id(effect))
                    queue.append(effect)
                    effects.append(effect)
        return effects

    def entries(self, found: Collection[str] = ()) -> list[Entry]:
        """Return what happened, in order: where it began, then what follows from it, equal things as one.

        Args:
            found: the rules with findings: of several that tell the same kind, one of these is named.
        """
        if not self.roots:
            return []
        lead = self.lead
        shown = positions_in(one.line for one in lead if one.line)
        who = {actor for one in lead for actor in one.actors}
        said = set(map(_sentence, lead))
        groups: dict[tuple[str, str], list[Incident]] = defaultdict(list)
        for effect in self.effects_of(lead):
            is_shown = effect.line is not None and effect.line.position in shown
            is_shown &= effect.actors <= who or effect.layer != Layer.WAIT  # else it is the line by which others lag
            is_said = effect.layer == Layer.END if effect.actors else _sentence(effect) in said
            if not (is_shown or (is_said and effect.actors <= who) or _ONLY_NAME.fullmatch(effect.words)):
                groups[effect.kind, effect.words if effect.layer in _WORDED else effect.layer.name].append(effect)
        late = {actor for one in lead if one.kind == "never-called" for actor in one.peers}
        for key, some in groups.items():  # who came to a call when the others had given up did not wait in it
            if len({event.operation for one in some if (event := _wait_of(one))}) == 1:
                groups[key] = [one for one in some if not one.actors <= late] or some
        telling = sorted(groups.values(), key=_says_little)[: _MOST_ENTRIES - 1]
        ordered = [lead, *_sort_by_causes(sorted(telling, key=_when))]
        number = {id(one): place for place, some in enumerate(ordered) for one in some}
        return [self._entry(some, number, place, found) for place, some in enumerate(ordered)]

    def _entry(self, incidents: list[Incident], number: dict[int, int], place: int, found: Collection[str]) -> Entry:
        first = _find_telling(incidents)
        waits = [(one, event) for one in incidents if (event := _wait_of(one))]
        causes = (number.get(id(cause), place) for one in incidents for cause in one.because)
        who = {actor for one in incidents for actor in one.actors or one.peers}
        ranks = ranks_among(who) if place else self.ranks_in(incidents)
        what, order = cut(_sentence(first), _WIDTH), _first_of_all(first, incidents) if len(ranks) > 1 else ""
        what = f"{what.removesuffix('.')}{order}" if order else what
        calls = group_sets((event.operation, actor) for one, event in waits for actor in one.actors)
        if len(calls) > 1:
            each = list_words([f"{name_of(actors)} for {operation}" for operation, actors in calls.items()], limit=3)
            what = f"{_waiting_words(waits[0][1])} and timed out{order}: {each}"
        return Entry(
            what=what,
            ranks=ranks,
            hosts=self._actors.hosts_of(who),
            line=first.line or Evidence("", 0, ""),
            count=_count(incidents),
            because=next((cause for cause in causes if cause < place), 0) if place else None,
            rule=first.finding.rule if first.finding else first.teller or rule_of(first.kind, found),
            host_of={rank: host for rank in ranks for host in self._actors.hosts_of([rank])},
        )


def tell(facts: Facts, findings: Iterable[Finding]) -> Story:
    """Return what happened to a job, in order.

    Args:
        facts: about the job.
        findings: of all rules, without those that others supersede.
    """
    actors = actors_of(facts)
    joined = [finding for finding in findings if rules_by_name()[finding.rule].tells]
    collector = Collector(facts, actors, [finding for finding in findings if finding not in joined])
    incidents = collector.collect()
    blocks = sources_in_blocks(facts)
    for incident in incidents:
        process = actors.find_process(min(incident.actors, key=str)) if incident.actors else None
        if incident.line and incident.line.source in blocks:
            incident.block = process.host if process else f"line {incident.line.order}"
    incidents += map(blame, table_of(facts).find_lags())
    # Where nothing ended, waits or was lost, the job survived all that is not fatal.
    is_over = facts.job.failed or any(Layer.CALL <= one.layer < Layer.NONE or one.lags for one in incidents)
    fatal = (finding for finding in joined if finding.fatal and finding.confidence != _CONFIDENCES[-1])
    quoted = positions_in(line for finding in fatal for line in finding.evidence)
    incidents = [one for one in incidents if is_over or _is_failure(one) or (one.line and one.line.position in quoted)]
    edges = Edges(actors, incidents)
    other = _gone_silent(facts, edges, actors)
    if other is None and (found := _take_finding(edges, actors, joined)) and not collector.is_outlived(found):
        other = found
    if other is not None:
        for root in edges.roots:
            if root.is_foreign or root.lags:  # whoever is gone calls nothing more
                root.because.append(other)
        edges.incidents.append(other)
    return Story(facts, actors, edges)


def rule_of(kind: str, found: Collection[str] = ()) -> str | None:
    """Return the rule that words a kind of incident: of several one with a finding, then the most specific one."""
    telling = [entry.rule for entry in list_rules() if kind in entry.rule.tells]
    if not telling:
        return None
    found_telling = [rule for rule in reversed(telling) if rule.name in found]
    return min(found_telling or telling, key=lambda rule: len(rule.tells)).name


def _is_failure(incident: Incident) -> bool:
    if incident.finding is not None:
        return incident.finding.fatal
    return incident.layer != Layer.RESOURCE and incident.confidence == "certain"


def _gone_silent(facts: Facts, edges: Edges, actors: Actors) -> Incident | None:
    """Return who went without a word where connections were lost: named by others, or found by elimination."""
    late = [one for one in edges.roots if one.lags]
    foreign = (one for one in edges.incidents if one.is_foreign and all(cause in late for cause in one.because))
    losses = [one for one in foreign if one.kind not in TWO_SIDED]
    if not losses or any(one.finding and (one.finding.ranks or one.finding.hosts) for one in losses):
        return None  # of the progress table, or of the network: it names somebody
    if any(not (one.is_foreign or one.is_condition or one.lags) for one in edges.roots):
        return None
    if life.successes(facts) and all(one.is_leaving for one in losses):
        return None  # all leave below the success of the program, in whichever order
    first = min(losses, key=Order)
    said = [loss for loss in losses if loss.notice is None or loss.notice.production not in HELPERS]
    if first.layer == Layer.WAIT or not said:
        return None  # they waited before they lost anybody; connections of helper threads close at every end
    silence = silence_of(facts)
    gone = {actors.actor_by_process(last.process) for last in silence.gone}
    named = {actor for loss in said for actor in loss.peers}
    absent: set[Actor] = set(absent_ranks(facts))
    who = absent or gone or named or {rank for rank in silence.candidates if any(rank in one.peers for one in late)}
    if not who or len(who) * 2 > max(len(actors.everyone), len(facts.job.last_lines)):
        return None
    if any(not one.peers >= who or any(map(actors.find_process, one.peers - who)) for one in late):
        return None  # others lag as well, and their output is there
    how = "@ABORTED" if silence.has_aborted else "@LEFT" if silence.has_left else "@SILENT"
    how = "@ABSENT" if absent else how
    last = silence.gone[0].evidence if not absent and len(silence.gone) == len(who) == 1 else None
    return Incident(
        "fell-silent",
        Layer.END,
        frozenset(who),
        last or first.line,
        f"{name_of(who)} {look_up(how)}",
        is_report=True,
        confidence="likely",
    )


def _take_finding(edges: Edges, actors: Actors, findings: Iterable[Finding]) -> Incident | None:
    """Return what a rule that joins statements says about calls of some ranks, where the others at most wait."""
    roots = edges.roots
    if any(not root.is_foreign or root.kind in TWO_SIDED for root in roots):
        return None
    for finding in sorted(findings, key=lambda finding: _CONFIDENCES.index(finding.confidence)):
        kind = rules_by_name()[finding.rule].tells[0]
        is_about = not roots or (kind in _OF_CALLS and bool(finding.ranks))
        if is_about and finding.fatal and finding.confidence != _CONFIDENCES[-1]:
            who = finding.ranks if roots or actors.world is not None else ()  # else they may be ranks of a communicator
            line = next(iter(finding.evidence), None)
            return blame(Lag(kind, frozenset(who), finding.summary, line, finding.confidence, teller=finding.rule))
    return None


def _rank(incident: Incident) -> tuple[object, ...]:
    """Rank events before conditions, known owners before unknown ones, the sure before the possible; then by time."""
    is_possible = incident.confidence == _CONFIDENCES[-1]
    is_cause = (incident.layer <= Layer.RESOURCE or incident.layer == Layer.LOSS) and incident.finding is not None
    if is_cause or incident.layer <= Layer.PROGRAM or incident.is_kill or incident.is_signal:
        tier = 4 if incident.is_condition and not incident.effects else 0
    elif incident.gave_up:
        tier = 3
    elif incident.is_foreign:
        tier = 2 if incident.peers or incident.kind == "call-unfinished" else 3
    else:
        tier = 1 if incident.actors or incident.finding else 4
    doubt = {0: 2.5, 1: 1.5}.get(tier, 0.5) if is_possible else 0
    return tier + doubt, 0 if tier in (0, 2, 3) else incident.layer, incident.is_retold, Order(incident)


def _sentence(incident: Incident) -> str:
    """Return what happened in words, without who printed it."""
    if event := _wait_of(incident):
        return f"{_waiting_words(event)} for {event.operation} and timed out"
    words = _PRINTER.sub("", incident.words)
    return _BEFORE.get(incident.kind, "") + words if incident.notice and incident.notice.event else words


def _wait_of(incident: Incident) -> CollectiveTimeout | None:
    event = incident.notice.event if incident.notice else None
    return event if isinstance(event, CollectiveTimeout) else None


def _find_telling(incidents: list[Incident]) -> Incident:
    """Return the incident that says what happened: the first, of calls if there are some, rather not of a helper."""
    waits = [one for one in incidents if _wait_of(one)]
    worded = waits or [one for one in incidents if not (one.notice and one.notice.production in HELPERS)]
    return first_of(worded or incidents) or incidents[0]


def _waiting_words(event: CollectiveTimeout) -> str:
    return f"waited {(event.ran_ms or event.timeout_ms) / 1000:.0f} s"


def _count(incidents: Iterable[Incident]) -> int:
    """Return how often it happened to the one to whom it happened most often; of nobody known, how often at all."""
    often = Counter(actor for one in incidents for actor in one.actors or (None,))
    return max((times for actor, times in often.items() if actor is not None), default=often[None])


def _first_of_all(first: Incident, incidents: Iterable[Incident]) -> str:
    """Return which rank it happened to first, where several lines show it and their times give the order."""
    ranks = ranks_among(first.actors)
    others = [one for one in incidents if one is not first]
    is_known = len(ranks) == 1 and others and all(before(first, one) is True for one in others)
    return f", rank {ranks[0]} first" if is_known else ""


def _says_little(incidents: list[Incident]) -> tuple[object, ...]:
    """Sort first what names a process and says most."""
    is_of_nobody = not any(one.actors or one.peers for one in incidents)
    return is_of_nobody, incidents[0].kind in _VAGUE, *_when(incidents)


def _sort_by_causes(groups: list[list[Incident]]) -> Iterator[list[Incident]]:
    """Yield what happened in order: effects after their causes, else by time; what has no order stays as it is."""
    left = list(groups)
    while left:
        free = (some for some in left if not any(_comes_before(other, some) for other in left if other is not some))
        chosen = next(free, left[0])
        left.remove(chosen)
        yield chosen


def _comes_before(some: list[Incident], others: list[Incident]) -> bool:
    first, other = _find_telling(some), _find_telling(others)
    if any(cause in some for cause in other.because):
        return True
    if first.layer == Layer.END and other.is_signal and other.confidence != "certain":
        return True  # a launcher reports that a process ended after it has ended the others because of that
    return not other.is_report and first.actors != other.actors and before(first, other) is True


def _when(incidents: list[Incident]) -> tuple[object, ...]:
    first = _find_telling(incidents)
    return first.is_report and first.layer != Layer.PROGRAM, Order(first)
