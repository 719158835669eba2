"""Incidents, which of them explains which, and where it began.

Inside a process what came first, or lies lower before anything is said of others, explains the rest. Between
processes who ended, failed or lags of its own explains why others wait for it or lose it. Settings explain what
nothing else does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field
from functools import cmp_to_key
from itertools import chain

from nccl_inspect.grammar.layers import FOREIGN, Layer
from nccl_inspect.judging.actors import Actor, Actors
from nccl_inspect.judging.engine import rules_by_name
from nccl_inspect.judging.progress import Lag
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.records import Slotted
from nccl_inspect.util.times import line_seconds

_TOGETHER = 6.0
"""Seconds within which signals to several processes are one."""
_REACTION = 5.0
"""Seconds after which a process cannot be the one that another lost: it failed only then."""
COMPARED = ("calls-differ", "never-called", "no-partner", "groups-out-of-order")
"""What the program did, by the calls of all ranks: no setting leads to that."""
_OWN = (*(layer for layer in Layer if layer <= Layer.RESOURCE), Layer.END)
TWO_SIDED = ("call-unfinished", "no-answer")
"""What shows that ranks wait, and not which of them is at fault."""


# Incidents, and which of two came first

_SLACK = 1.5
"""Seconds within which the order of lines says more than times: many lines have whole seconds only."""


class Incident(Slotted):
    """An incident is one thing that happened to processes."""

    kind: str
    """Of what happened, or the rule that found it."""
    layer: Layer
    """How near to a cause it is."""
    actors: frozenset[Actor]
    """To whom it happened; empty where the line does not say."""
    line: Evidence | None
    words: str
    """Those of the line or the finding."""
    peers: frozenset[Actor] = frozenset()
    """Whom it names as gone, late or different."""
    is_report: bool = False
    """Whether another one said it afterwards: its place in the log is not when it happened."""
    is_kill: bool = False
    """Whether nothing in the process leads to such an end: a signal, or a hardware fault."""
    confidence: str = "certain"
    finding: Finding | None = None
    notice: Notice | None = None
    teller: str = ""
    """The rule that tells it, where another one tells the others of its kind."""
    because: list[Incident] = field(default_factory=list)
    effects: int = 0
    """How many incidents it explains."""
    block: str = ""
    """The host whose lines stand together in the source: then the order of lines of two hosts says nothing."""
    is_foreign: bool = field(init=False)
    """Whether a process says it of others."""
    gave_up: bool = field(init=False)
    """Whether a process aborted, as one does that gave up waiting, and its own words are missing."""
    time: float | None = field(init=False)
    """When its line was printed, in seconds of the year; None where the line has no time."""

    def __post_init__(self) -> None:
        self.is_foreign = self.layer in FOREIGN
        self.gave_up = self.layer == Layer.END and self.words.endswith("SIGABRT")
        self.time = line_seconds(self.line.text) if self.line else None

    @property
    def is_condition(self) -> bool:
        """Return whether it is how things are and no event: nothing in the log leads to it."""
        return self.is_report and self.finding is not None and self.layer == Layer.SETTING

    @property
    def is_launchers_signal(self) -> bool:
        """Return whether a launcher ended a process, as it does where another one failed or ended."""
        return self.notice is not None and "ends-worker" in self.notice.roles

    @property
    def is_signal(self) -> bool:
        """Return whether it is a signal to end processes, when that was sent."""
        return self.layer == Layer.LAUNCHER and not self.is_report

    @property
    def lags(self) -> bool:
        """Return whether others wait for its peers, by the progress of all."""
        return bool(self.peers) and self.layer == Layer.PROGRAM and self.is_report

    @property
    def is_leaving(self) -> bool:
        """Return whether it only shows that a process left: the others do not find it when they close what they had."""
        closes = self.notice is not None and value(self.notice, "operation") == "Close"
        return closes or self.kind in ("fell-silent", "no-answer")

    @property
    def is_retold(self) -> bool:
        """Return whether a program only passes on an error of CUDA that a rule judges where it occurred."""
        text = self.notice.message if self.notice else self.words
        return self.finding is None and ("CUDA error: " in text or "CUDA_ERROR_" in text)

    @property
    def position(self) -> tuple[float, str, int]:
        """Return what sorts incidents where nothing else does."""
        return (self.time or 0.0, self.line.source if self.line else "", self.line.order if self.line else 0)


def blame(lag: Lag) -> Incident:
    """Return the incident of actors for which others wait."""
    return Incident(
        lag.kind,
        lag.layer,
        actors=frozenset(),
        line=lag.line,
        words=lag.words,
        peers=lag.who,
        is_report=True,
        confidence=lag.confidence,
        teller=lag.teller,
    )


def before(one: Incident, other: Incident) -> bool | None:
    """Return whether one happened before another; None where the log does not show it."""
    times = one.time, other.time
    if times[0] is not None and times[1] is not None and abs(times[0] - times[1]) > _SLACK:
        return times[0] < times[1]
    if one.line and other.line and one.line.source == other.line.source and one.block == other.block:
        return one.line.order < other.line.order
    if times[0] is not None and times[1] is not None and times[0] != times[1]:
        is_fine = bool(times[0] % 1 and times[1] % 1)  # else one of them is known to the second
        return times[0] < times[1] if is_fine or int(times[0]) != int(times[1]) else None
    return None


def _compare(one: Incident, other: Incident) -> int:
    known = before(one, other)
    return -1 if (one.position[1:] < other.position[1:] if known is None else known) else 1


Order = cmp_to_key(_compare)
"""Sorts incidents by time where it is known, else by lines."""


def first_of(incidents: Iterable[Incident]) -> Incident | None:
    """Return the first of some incidents; None of none."""
    return min(incidents, key=Order, default=None)


# What explains which


class Edges:
    """Joins the incidents of a job: each gets those that explain it.

    Args:
        actors: the processes of the job.
        incidents: of all kinds.
    """

    def __init__(self, actors: Actors, incidents: list[Incident]) -> None:
        self._actors, self.incidents = actors, incidents
        self.heads: dict[Actor, Incident] = {}
        """Where the trouble of each process begins."""
        self._nameless: list[Incident] = []
        """What nobody is known to have said or done."""
        self._within_processes()
        self._between_processes()
        self._by_layers()
        self._by_settings()

    @property
    def roots(self) -> list[Incident]:
        """Return the incidents that nothing explains."""
        return [incident for incident in self.incidents if not incident.because]

    # In one process

    def _within_processes(self) -> None:
        of_actor: dict[Actor, list[Incident]] = defaultdict(list)
        for incident in self.incidents:
            if incident.is_condition:
                continue
            if not incident.actors:
                self._nameless.append(incident)
            for actor in incident.actors:
                of_actor[actor].append(incident)
        for actor, own in of_actor.items():
            head = self.heads[actor] = _head(own)
            for incident in own:
                if incident is not head and len(incident.actors) == 1:
                    incident.because.append(head)
        for incident in self.incidents:  # of several processes: explained only if something else leads in each of them
            several = () if incident.is_condition or len(incident.actors) < 2 else incident.actors
            if several and all(self.heads[actor] is not incident for actor in several):
                incident.because.append(self.heads[min(several, key=str)])

    # Between processes

    def _between_processes(self) -> None:
        heads = list({id(head): head for head in self.heads.values()}.values())
        loose = [incident for incident in self._nameless if not incident.lags]
        lagging = [incident for incident in self.incidents if incident.lags]
        everyone = [*heads, *loose]
        own = [head for head in heads if not (head.is_foreign or head.layer == Layer.LAUNCHER or head.gave_up)]
        told = [one for one in self.incidents if one.kind == "ended-from-outside" and one.is_report]
        for end in loose:  # a launcher ends because a worker of it was ended
            if end.layer == Layer.END and not end.is_kill and not end.gave_up:
                end.because += _first_incident(one for one in told if before(one, end) is True)
        own += [one for one in loose if one.layer in _OWN and not (one.gave_up or one.because)]
        reasons = sorted((one for one in own if not self._is_setting(one)), key=Order)
        outside = [incident for incident in everyone if incident.is_signal]
        first_out = first_of(outside)
        troubled = [head for head in heads if head.is_foreign]
        known = set(map(id, reasons))
        trouble = [*troubled, *outside]
        for late in lagging:  # they ended or failed of their own, or got the first signal alone
            own_heads = [head for actor in late.peers if (head := self.heads.get(actor)) is not None]
            late.because += [one for one in own_heads if id(one) in known or self._is_alone(one, first_out, trouble)]
        held = [incident for incident in lagging if not incident.because]
        if first_out is None or any(before(head, first_out) is True for head in troubled):
            held = self._why_they_do_not_answer(held)
        standing = _standing(reasons)
        for foreign in everyone:
            if foreign.is_foreign or foreign.gave_up:
                self._explain_foreign(foreign, standing, held, first_out)
        self._explain_losses([one for one in everyone if not one.because])
        waiting = [head for head in heads if head.is_foreign and not head.because]
        for signal in outside:
            self._explain_signal(signal, first_out, [*standing, *held], waiting)
        self._find_owner([one for one in loose if one in standing], held, heads)
        for weak in loose:
            if not (weak.because or weak.is_foreign or weak.is_signal) and weak.layer >= Layer.PROGRAM:
                others = (one for one in (*standing, *held, *outside, *loose) if one is not weak and not one.because)
                is_vague = weak.finding is None or weak.layer == Layer.CALL  # it may only follow from one of its layer
                weak.because += _first_incident(
                    one
                    for one in others
                    if one.layer < weak.layer or (is_vague and one.layer == weak.layer and _compare(one, weak) < 0)
                )
        causes = [*standing, *held, *outside]
        for gone in self._left("no-answer"):  # who answers no more is a cause only where nothing else is
            if gone not in held:
                gone.because += _first_incident(one for one in causes if not one.because and one is not gone)

    def _is_setting(self, incident: Incident) -> bool:
        """Return whether it may only be why others failed: it is weighed when nothing else explains these."""
        rule = rules_by_name().get(incident.kind)
        return incident.is_condition and rule is not None and bool(rule.may_cause)

    def _is_alone(self, head: Incident, first_out: Incident | None, trouble: list[Incident]) -> bool:
        """Return whether some processes got the first signal alone, and other trouble followed."""
        if head is not first_out or self._actors.everyone <= head.actors:
            return False
        follows = [before(head, one) for one in trouble if one is not head]  # unknown in the same second
        return True in follows and False not in follows

    @staticmethod
    def _find_owner(nameless: list[Incident], held: list[Incident], heads: Iterable[Incident]) -> None:
        """Give the exception of an unknown thread to the only rank that stopped.

        What else an unknown process failed of is that of the only one that is reported to have ended of its own.
        """
        raised = [one for one in nameless if one.layer == Layer.PROGRAM]
        if len(raised) == len(held) == 1 and len(held[0].peers) == 1:
            raised[0].actors = held[0].peers
            held[0].because.append(raised[0])
        ended = [head for head in heads if head.layer == Layer.END and head.is_report and not head.is_kill]
        ended = ended or [head for head in heads if any(_is_same_line(head, why) for why in head.because)]
        is_one = len(ended) == 1 and len(ended[0].actors) == len(ended[0].because) == 1
        for why in ended[0].because if is_one and not ended[0].gave_up else ():
            is_failure = why.layer in (Layer.SYSTEM, Layer.RESOURCE, Layer.PROGRAM)
            if is_failure and not (why.actors or why.peers or why.is_condition):
                why.actors = ended[0].actors

    def _why_they_do_not_answer(self, held: list[Incident]) -> list[Incident]:
        """Explain why ranks lag: they do not answer any more. Return what then holds the others up."""
        silent = [one for one in self._left("no-answer") if any(late.peers == one.peers for late in held)]
        for late in held:
            late.because += _first_incident(one for one in silent if one.peers == late.peers)
        return [*(late for late in held if not late.because), *silent]

    def _explain_foreign(
        self, foreign: Incident, standing: list[Incident], held: list[Incident], first_out: Incident | None
    ) -> None:
        """Explain a lost connection or a wait: by the rank that it names, else by the first that failed in time."""
        named = (one for one in standing if one.actors & foreign.peers) if foreign.peers else ()
        in_time = (one for one in standing if one is not foreign and not _is_too_late(one, foreign))
        foreign.because += _first_incident(named) or _first_incident(in_time) or ([] if foreign in held else held[:1])
        if foreign.because or first_out is None or first_out.actors == foreign.actors:
            return
        # The scheduler says that it lost a node only after other nodes lost it, too.
        event = first_out.notice.event if first_out.notice else None
        is_first = before(first_out, foreign)
        if is_first is None and foreign.layer == Layer.LOSS and foreign.time and not first_out.is_launchers_signal:
            # In the same second, and the loss names its host: nobody answers a loss so fast.
            hosts = map(re.escape, self._actors.hosts_of(first_out.actors))
            is_first = any(re.search(rf"(?<![\w.-]){host}(?![\w-])", foreign.words) for host in hosts)
        if is_first or job_failure.reason(event) == job_failure.NODE_FAILURE:
            foreign.because.append(first_out)

    @staticmethod
    def _explain_losses(unexplained: list[Incident]) -> None:
        """Explain lost connections by a failed transfer, or by a rank that gave up waiting before: others lose it."""
        losses = [one for one in unexplained if one.layer == Layer.LOSS]
        given_up = first_of(filter(_is_judged_loss, losses))
        timed_out = first_of(one for one in unexplained if one.layer == Layer.WAIT)
        for loss in losses:
            if _is_judged_loss(loss):
                continue
            if given_up and before(loss, given_up) is not True:
                loss.because.append(given_up)
            elif timed_out and loss.kind not in TWO_SIDED:
                is_later = before(timed_out, loss)
                loss.because += [timed_out] if is_later or (is_later is None and not loss.actors) else []

    def _explain_signal(
        self, signal: Incident, first_out: Incident | None, causes: list[Incident], waiting: list[Incident]
    ) -> None:
        """Explain a signal: by what failed before it, else by ranks that waited before it."""
        # A launcher ends the others before it reports why, and the time of that may be all that is known.
        is_launchers = signal.is_launchers_signal
        why = _first_incident(
            one
            for one in causes
            if one is not signal
            and (one.is_report or before(one, signal) is not False or (is_launchers and are_together(one, signal)))
        ) or _first_incident(head for head in waiting if before(head, signal) is True)
        if why:
            signal.because += why
        elif signal is not first_out and first_out is not None:
            is_reaction = is_launchers and not first_out.is_launchers_signal
            if is_reaction or not are_together(first_out, signal):
                signal.because.append(first_out)

    # What nothing of this explains

    def _by_layers(self) -> None:
        """Explain failed calls by what lies lower, in whatever process."""
        lower = [one for one in self.roots if one.finding is not None and one.layer <= Layer.RESOURCE]
        lower = [one for one in lower if one.kind in rules_by_name() and (not one.is_condition or _is_fatal(one))]
        lower.sort(key=lambda one: (one.layer, Order(one)))
        likely = [one for one in lower if one.confidence != "possible"]
        for symptom in self.roots:
            is_weak = symptom.layer in (Layer.CALL, Layer.FRAMEWORK, Layer.END, Layer.RESOURCE)
            is_weak |= symptom.layer == Layer.LAUNCHER and symptom.is_report
            if is_weak and not symptom.is_kill and not symptom.is_condition:
                is_sure = symptom.finding is not None and symptom.confidence != "possible"
                able = likely if is_sure or symptom.layer == Layer.RESOURCE else lower
                symptom.because += _first_incident(one for one in able if not one.because and one.layer < symptom.layer)
        reports = [one for one in self.roots if one.layer == Layer.LAUNCHER and one.is_report]
        told = set(map(id, reports))
        first = _first_incident(one for one in self.roots if id(one) not in told and not one.is_condition)
        for report in reports:
            report.because += first
        waiting = _first_incident(one for one in self.roots if one.is_foreign)
        for end in self.roots:
            if end.gave_up:
                end.because += waiting
        losses = sorted(
            (one for one in self.roots if one.is_foreign and one.finding is not None),
            key=lambda one: (one.confidence == "possible", Order(one)),
        )
        for later in losses[1:]:  # the first status says most
            later.because += losses[:1] if before(losses[0], later) is True else []
        two_sided = [one for kind in TWO_SIDED for one in self._left(kind)]
        for other in self.roots:
            if other.is_foreign and other not in two_sided:
                other.because += two_sided[:1]

    def _by_settings(self) -> None:
        """Explain by settings what nothing else explains."""
        settings = [one for one in self.incidents if self._is_setting(one) and _is_fatal(one)]
        for root in self.roots if settings else ():
            is_absent = bool(root.peers) and not any(map(self._actors.find_process, root.peers))  # no setting does that
            classes = {root.layer.name.lower(), "stage" if root.kind == "never-began" and not is_absent else ""}
            if root.notice is not None and "size-mismatch" in root.notice.roles:  # a transport found it, not the calls
                classes = {"sizes"}
            elif root.kind in COMPARED:
                continue
            if root in settings or (root.is_kill and root.words.endswith("SIGKILL")):
                continue
            why = [
                one
                for one in settings
                if not one.because and not classes.isdisjoint(rules_by_name()[one.kind].may_cause)
            ]
            root.because += sorted(why, key=lambda one: one.layer)[:1]

    def _left(self, kind: str) -> list[Incident]:
        return [incident for incident in self.roots if incident.kind == kind]


def _is_fatal(incident: Incident) -> bool:
    finding = incident.finding
    return finding is not None and (finding.fatal or finding.severity == "error")


def _head(own: list[Incident]) -> Incident:
    """Return the incident with which the trouble of one process begins."""
    if kills := [one for one in own if one.is_kill and one.layer <= Layer.SYSTEM]:
        return min(kills, key=lambda one: one.layer)
    said = sorted((one for one in own if not one.is_report), key=Order)
    if not said:
        return min(own, key=lambda one: (one.layer == Layer.LAUNCHER, one.layer, one.position))
    first = said[0]
    if first.layer == Layer.LOSS and first.finding is None:  # an exception repeats the transfer below it
        first = next((one for one in said if _is_judged_loss(one)), first)
    if first.is_foreign:
        crash = next((one for one in own if one.is_kill), None)
        return crash if crash is not None and crash.words.endswith("SIGKILL") else first
    if first.layer == Layer.LAUNCHER:
        return first
    until = next((n for n, one in enumerate(said) if one.is_foreign or one.layer == Layer.LAUNCHER), len(said))
    return min(said[:until], key=lambda one: (one.layer, one.is_retold))  # of equals the first


def _standing(reasons: list[Incident]) -> list[Incident]:
    """Return the reasons that follow from no other one: a resource or a call fails because of what came before."""
    firm = [one for one in reasons if one.layer <= Layer.PROGRAM or one.is_kill]
    rest = [one for one in reasons if not (one.layer <= Layer.PROGRAM or one.is_kill)]
    lowest = min((one.layer for one in rest), default=Layer.NONE)
    for weak in rest:
        lower = (one for one in rest if one.layer < weak.layer) if weak.layer > lowest else ()
        causes = (one for one in chain(firm, lower) if one.is_report or before(one, weak) is True)
        weak.because += _first_incident(causes)
    return [one for one in reasons if not one.because]


def _is_too_late(head: Incident, foreign: Incident) -> bool:
    """Return whether a process failed only after another had lost somebody, or the network: it cannot be that one."""
    if head.notice is not None and "told-late" in head.notice.roles:
        return False
    if foreign.notice is not None and "completion-error" in foreign.notice.roles and before(foreign, head) is True:
        return True  # it had retried for long
    if head.is_report:
        return False
    times = head.time, foreign.time
    return times[0] is not None and times[1] is not None and times[1] + _REACTION < times[0]


def _is_same_line(one: Incident, other: Incident) -> bool:
    return one.line is not None and other.line is not None and one.line.position == other.line.position


def _is_judged_loss(loss: Incident) -> bool:
    """Return whether a rule of its own judges a loss: it says more than that a connection closed."""
    return loss.layer == Layer.LOSS and loss.notice is not None and loss.finding is not None


def are_together(one: Incident, other: Incident) -> bool:
    """Return whether two signals were sent at once, as far as their lines have times."""
    if one.time is None or other.time is None:
        return one.time is other.time
    return abs(one.time - other.time) < _TOGETHER


def _first_incident(incidents: Iterable[Incident]) -> list[Incident]:
    return [found] if (found := next(iter(incidents), None)) is not None else []
