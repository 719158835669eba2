"""Collects incidents from every source alike: statements, exceptions, ends of processes, signals, findings."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import CollectiveTimeout, CudaFailure, ErrorCascade, ProcessEnded
from nccl_inspect.grammar.layers import FOREIGN, Layer
from nccl_inspect.judging import exceptions, life
from nccl_inspect.judging.actors import Actor, Actors
from nccl_inspect.judging.ends import (
    LOST,
    find_kills_of_all,
    is_of_helper,
    process_ends,
    since_start,
    terminations,
)
from nccl_inspect.judging.engine import rules_by_name
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.exceptions import RaisedException, Trace
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.silence import closed_by_others, local_ranks
from nccl_inspect.judging.statements import is_error, is_survived, layer_of, report_of, states_layer, value
from nccl_inspect.judging.watchdog import waiting_ranks, waits
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.story.edges import Incident
from nccl_inspect.util import signals
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import cut
from nccl_inspect.util.times import line_seconds

_KILLS = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)
_WIDTH = 160
_KINDS = {
    Layer.LOSS: "lost-connection",
    Layer.WAIT: "waited",
    Layer.PROGRAM: "exception",
    Layer.FRAMEWORK: "call-failed",
    Layer.CALL: "call-failed",
    Layer.LAUNCHER: "launcher-report",
}
"""What happened, by layers, where no rule says more."""
HELPERS = ("nccl/proxy-connection-closed", "nccl/proxy-type-not-received")
"""Statements of helper threads, which are printed at every end as well."""
_GIVES_UP = "torch/process-terminating"
_AGENT = compile_later(r"[WE]\d{4} [\d:.]+ (\d+) torch/")
_REMOTE = compile_later(
    r"remote process exited or there was a network error|ncclRemoteError|Connection closed by remote peer"
    r"|communicator was aborted"
)
_TIMED_OUT = compile_later(r"(?i)\] timed out|Socket Timeout$|wait timeout after")
_STICKY = compile_later(
    r"illegal memory access|illegal address|device-side assert|unspecified launch failure|misaligned|ECC"
    r"|launch timed out"
)
_OWN_NAME = compile_later(r"^\[rank\d+\]:(?:\[\S+ [\d:.]+ [^\]]+\])?\s*")
_PID = compile_later(r":(\d+):\d+ \[")


class Collector:
    """Collects the incidents of a job.

    Args:
        facts: about the job.
        actors: its processes.
        findings: of rules about one fact, without those that others supersede.
    """

    def __init__(self, facts: Facts, actors: Actors, findings: Iterable[Finding]) -> None:
        self.facts, self.actors = facts, actors
        self.findings = [finding for finding in findings if finding.category != "log quality"]
        echoes = ((end.echo.notice, end) for end in process_ends(facts) if end.echo and end.echo.notice)
        unlabelled = ((notice, end) for notice, end in echoes if actors.rank_in_line(notice.message) is None)
        by_line = group_values((id(notice), rank) for notice, end in unlabelled for rank in end.ranks)
        self._gave_up = {notice: frozenset[Actor](ranks) for notice, ranks in by_line.items()}
        """The ranks whose processes ended with an exception that no label gives a rank, by the identity of its line."""
        self._waits = {id(wait.notice) for wait in waits(facts)}
        self._waiting = {wait.rank for wait in waits(facts)}
        self._giving_up = self._waiting | waiting_ranks(facts)
        self._by_rule = {finding.rule: finding for finding in reversed(self.findings)}
        self._of_line: dict[tuple[str, int], Finding] = {}
        for finding in sorted(self.findings, key=self._layer_of, reverse=True):
            for line in () if self._is_condition(finding) or _is_slow(finding) else finding.evidence:
                self._of_line[line.position] = finding

    @cached_property
    def _ended_at(self) -> dict[Actor, float]:
        """Return when launchers reported the end of ranks or ended them, where the order of lines says nothing."""
        if len(self.facts.job.sources) < 2:
            return {}
        told = self.facts.with_role("ends-worker")
        ends = [(self.actors.actor_by_pid(value(notice, "pid")), notice) for notice in told]
        ends += [(rank, end.notice) for end in process_ends(self.facts) for rank in end.ranks]
        times = ((actor, line_seconds(notice.evidence[0].text)) for actor, notice in ends if actor is not None)
        return {actor: time for actor, time in times if time is not None}

    @cached_property
    def _errors(self) -> set[tuple[str, int]]:
        return positions_in(line for notice in self.facts.errors() for line in notice.evidence)

    def collect(self) -> list[Incident]:
        """Return all incidents but those of the progress table."""
        found = [*self._collect_statements(), *self._collect_exceptions()]
        for raised in found:  # the lines of several sources have no order, reports of ends have times
            is_exception = raised.notice is None or "store-failed" in raised.notice.roles
            if raised.time is None and is_exception:
                times = [self._ended_at[actor] for actor in raised.actors if actor in self._ended_at]
                raised.time = min(times, default=raised.time)
        found += self._collect_ends({id(incident.notice) for incident in found})
        lost = {actor for incident in found if incident.layer == Layer.LOSS for actor in incident.actors}
        found += self._collect_signals(lost)
        waited = {actor for incident in found if incident.layer == Layer.WAIT for actor in incident.actors}
        for end in found:
            if end.gave_up and waited and end.actors and waited.isdisjoint(end.actors):
                # The others said that they gave up. It has lines as they have, and none of that: it waited for nobody.
                end.gave_up = any(self.actors.find_process(actor) is None for actor in end.actors)
        kinds = {incident.finding.rule for incident in found if incident.finding}
        found += self._collect_findings(kinds)
        return [incident for incident in found if not self.is_outlived(incident)]

    def is_outlived(self, incident: Incident) -> bool:
        """Return whether the program reported success below an incident, and what it says is not repeated there."""
        line, ends = incident.line, life.successes(self.facts)
        is_above = line is not None and line.order < ends.get(line.source, 0)
        return is_above and (incident.notice is None or life.succeeded_below(self.facts, [incident.notice]))

    def _layer_of(self, finding: Finding) -> Layer:
        return rules_by_name()[finding.rule].reach

    def _is_condition(self, finding: Finding) -> bool:
        """Return whether it is about how processes are set up, which is more than an error says."""
        rule = rules_by_name()[finding.rule]
        is_setting = rule.reach == Layer.SETTING and bool(rule.may_cause)
        return is_setting and not positions_in(finding.evidence) <= self._errors

    # Statements

    def _collect_statements(self) -> Iterator[Incident]:
        for notice in self.facts.job.notices:
            if isinstance(notice.event, (ProcessEnded, ErrorCascade)) or self._repeats_wait(notice):
                continue
            if not self._counts(notice):
                continue
            finding = self._finding(notice)
            layer = Layer.PROGRAM if _compares_calls(notice) else self._layer(notice, finding)
            if layer == Layer.NONE or notice.production == "torch/rank-traceback":  # of :meth:`_collect_exceptions`
                continue
            if layer == Layer.LOSS and all(exceptions.is_over_below(self.facts, line) for line in notice.evidence):
                continue  # all left in order afterwards
            kind = _KINDS.get(layer, finding.rule if finding else notice.production or "unknown-warning")
            if finding and self._layer_of(finding) != Layer.CALL:
                kind = finding.rule
            tells = rules_by_name()[notice.rule].tells if notice.rule in rules_by_name() else ()
            kind = tells[0] if len(tells) == 1 else kind  # its production names a rule that words one kind
            kind = "process-killed" if "memory-kill" in notice.roles else kind
            kind = "calls-differ" if _compares_calls(notice) else kind
            words, peers = _short(notice), self._peers(notice)
            by_actor: dict[frozenset[Actor], Evidence] = {}
            for process, line in zip(notice.processes, notice.lines, strict=False):
                by_actor.setdefault(self._gave_up.get(id(notice)) or self._actor(notice, process, line), line)
            for actors, line in by_actor.items():
                is_report, sure = layer == Layer.LAUNCHER, finding.confidence if finding else "certain"
                yield Incident(kind, layer, actors, line, words, peers, is_report, False, sure, finding, notice)

    def _repeats_wait(self, notice: Notice) -> bool:
        """Return whether PyTorch only reports a wait again: a rank waits once in a call."""
        if isinstance(notice.event, CollectiveTimeout):
            return id(notice) not in self._waits and self.actors.rank_in_line(notice.message) is not None
        if notice.production == _GIVES_UP:
            return self.actors.rank_in_line(notice.message) in self._giving_up
        return "watchdog-status" in notice.roles and value(notice, "global_rank") in self._waiting

    def _counts(self, notice: Notice) -> bool:
        """Return whether a statement is about a failure that was not survived."""
        tone = getattr(notice.event, "tone", None)
        if notice.production in HELPERS:
            is_aborted = any(comm.state == "aborted" for comm in self.facts.job.communicators)
            return (
                is_aborted and not self.facts.is_over() and any(notice is one for one in closed_by_others(self.facts))
            )
        if not notice.roles.isdisjoint(("forced-end", "catchable", "program-exception")) or tone == "loose":
            return False  # of :meth:`_collect_signals` and :meth:`_collect_exceptions`
        if notice.production.startswith("kernel/") and kernel_log.confidence(self.facts, notice) == "possible":
            return False  # it may be about another run or program
        is_wait = isinstance(notice.event, CollectiveTimeout) or "watchdog-status" in notice.roles
        if not (is_wait or is_error(notice) or (tone == "echo" and notice.level != "INFO")):
            return False
        return not (is_survived(notice, self.facts.job) or exceptions.connected_below(self.facts, notice))

    def _layer(self, notice: Notice, finding: Finding | None) -> Layer:
        text = notice.message
        if _REMOTE.search(text) and not isinstance(notice.event, CollectiveTimeout):
            return Layer.LOSS
        if "CUDA error: " in text and _STICKY.search(text):
            return Layer.PROGRAM
        if isinstance(notice.event, CudaFailure) or "program-cuda-error" in notice.roles:
            return Layer.PROGRAM if _STICKY.search(text) else Layer.RESOURCE
        layer = layer_of(notice)
        if layer in (Layer.WAIT, Layer.NONE) or states_layer(notice) or finding is None:
            return layer
        return min(layer, self._layer_of(finding))

    def _finding(self, notice: Notice) -> Finding | None:
        lines = (line.position for line in notice.evidence)
        own = next((self._of_line[line] for line in lines if line in self._of_line), None)
        own = own or self._by_rule.get(notice.rule)
        is_effect = own is not None and self._layer_of(own) == Layer.CALL
        return None if is_effect and layer_of(notice) in FOREIGN else own  # it follows from the loss

    def _actor(self, notice: Notice, process: Process, line: Evidence) -> frozenset[Actor]:
        named: Actor | None = self.actors.rank_in_line(line.text)
        named = process.teller if named is None else named
        if named is None and process.host and is_named(process.host):
            named = self.actors.actor_by_process(process)
        return frozenset() if named is None else frozenset((named,))

    def _peers(self, notice: Notice) -> frozenset[Actor]:
        """Return the ranks that a statement names as gone."""
        named = dict(getattr(notice.event, "values", ()))
        ranks = [named.get("peer_rank"), named.get("peerRank")]
        if notice.production in HELPERS and self.actors.world is not None:
            ranks += local_ranks(self.facts, notice)
        return frozenset(rank for rank in ranks if isinstance(rank, int))

    # Exceptions

    def _collect_exceptions(self) -> Iterator[Incident]:
        raised = exceptions.exceptions_of(self.facts)
        for trace in (*raised.traces, *raised.echoes):
            if (incident := self._read_trace(trace)) is not None:
                yield incident
        if raised.traces or raised.echoes or process_ends(self.facts):
            return
        for loose in [entry for entry in raised.loose if entry.is_error or entry.notice][-1:]:
            if not loose.is_loss_of_peer:
                yield self._tell(loose, () if loose.rank is None else (loose.rank,), confidence="likely")
        for loose in raised.of_threads[-1:]:
            words = f"a thread raised {loose.text}"
            yield Incident("exception", Layer.PROGRAM, frozenset(), loose.line, words, confidence="likely")

    def _read_trace(self, trace: Trace) -> Incident | None:
        last = trace.last
        if last is None or last.is_termination:
            return None  # its text was lost, or a signal ended it
        is_foreign = last.is_loss_of_peer or bool(_REMOTE.search(last.whole))
        first = trace.first if trace.first and not is_foreign else last
        if last.notice and states_layer(last.notice):
            layer = layer_of(last.notice)
        else:
            layer = Layer.LOSS if is_foreign else Layer.PROGRAM
            layer = Layer.WAIT if _TIMED_OUT.search(last.whole) else layer
        incident = self._tell(last, (trace.rank,), layer, "likely" if trace.is_cut_off else "certain", first.line)
        incident.peers = frozenset(exceptions.find_absent(last.whole))
        return incident

    def _tell(
        self,
        raised: RaisedException,
        ranks: Iterable[Actor],
        layer: Layer = Layer.PROGRAM,
        confidence: str = "certain",
        line: Evidence | None = None,
    ) -> Incident:
        """Return an exception, at the line where the trouble of its rank began; a finding about that may say more."""
        is_end = line is None and layer != Layer.PROGRAM
        line = line or raised.line
        finding = None if is_end else self._of_line.get(line.position)
        kind, words = finding.rule if finding else _KINDS[layer], f"raised {raised.text}"
        layer = min(layer, self._layer_of(finding)) if finding and layer == Layer.PROGRAM else layer
        return Incident(kind, layer, frozenset(ranks), line, words, confidence=confidence, finding=finding)

    # Ends of processes

    def _collect_ends(self, collected: Collection[int]) -> Iterator[Incident]:
        """Yield the reports of ends, and the exceptions that led to them.

        Args:
            collected: the statements that are incidents already, by their identity.
        """
        forced = {value(notice, "pid") for notice in self.facts.notices("torch/worker-forced")}
        for end in process_ends(self.facts):
            if end.code == -signal.SIGKILL and end.pid in forced:
                continue  # it did not end when its launcher asked it to
            process = self.actors.process_by_pid(end.pid)
            actors: set[Actor] = {*end.ranks} or ({process.process} if process else set())
            if end.report.exception and not (actors or end.raised or end.echo):
                continue  # nobody's, and its text is not here: it may be the loss of another one
            # A launcher that spawned a process tells its exception after it ended the others.
            raised = None if end.report.process == "spawned" else end.raised
            if actors and raised and not (raised.is_loss_of_peer or exceptions.is_of_nccl(raised)):
                yield self._tell(raised, actors)
            elif end.echo is not None and actors and id(end.echo.notice) not in self._gave_up.keys() & collected:
                layer = Layer.WAIT if _TIMED_OUT.search(end.echo.whole) else Layer.LOSS
                yield self._tell(end.echo, actors, layer)
            is_killed = end.code in _KILLS
            yield Incident(
                "process-killed" if is_killed else "process-ended",
                Layer.END,
                frozenset(actors),
                end.notice.evidence[0],
                end.how,
                is_report=True,
                is_kill=is_killed or end.manner == LOST,
                confidence="likely" if end.report.kills_with else "certain",  # it names some that it killed itself
            )

    def _collect_signals(self, lost: Collection[Actor]) -> Iterator[Incident]:
        """Yield the signals of launchers, schedulers and users, and to whom they went.

        Args:
            lost: who lost a connection to another process.
        """
        agents: dict[int, tuple[Notice, set[Actor]]] = {}
        signalled: set[int] = set()
        ends = [*self.facts.with_role("forced-end"), *self.facts.with_event(ProcessEnded, lambda e: e.is_external)]
        ends += [*terminations(self.facts), *find_kills_of_all(self.facts)]
        firsts = {report.ended_pid for report in map(report_of, ends) if report.order == "first"}
        is_one = len(firsts) == 1 and bool(lost) and all(isinstance(notice.event, ProcessEnded) for notice in ends)
        own = self.facts.with_event(ProcessEnded, lambda event: event.order == "first" and not event.is_external)
        failed_on = {report_of(notice).node for notice in own}  # a launcher ends the others of its node for that
        for notice in sorted(since_start(self.facts, ends), key=lambda notice: notice.place):
            line = notice.evidence[0]
            if is_of_helper(self.facts, notice):
                continue
            if report_of(notice).ended_pid in signalled:
                continue  # its launcher said before that it ended it
            agent = _AGENT.search(line.text)
            pid = value(notice, "pid") if "ends-worker" in notice.roles else None  # else that of the launcher
            if pid is not None:
                signalled.add(pid)
            if report_of(notice).order == "first" and (signalled or is_one) and not agents:
                ended = report_of(notice).ended_pid
                actor = self.actors.actor_by_pid(ended)
                is_spared = report_of(notice).node is None or report_of(notice).node not in failed_on
                if ended not in signalled and actor is not None and actor not in lost and is_spared:
                    words = f"was ended by {report_of(notice).signal}, which its launcher did not send"
                    who = frozenset((actor,))
                    yield Incident("process-killed", Layer.END, who, line, words, is_report=True, is_kill=True)
                    continue
            if agent and pid and (entry := agents.get(int(agent[1]))):
                if (actor := self.actors.actor_by_pid(pid)) is not None:
                    entry[1].add(actor)
                continue
            if agent and notice.production == "torch/agent-signalled":
                agents[int(agent[1])] = (notice, set())
                continue
            if notice.production == "torch/agent-signal-exception" and agents:
                continue
            rank, sent_to = self.actors.rank_in_line(line.text), self.actors.actor_by_pid(pid)
            named: Collection[Actor] = report_of(notice).ranks if rank is None else (rank,)
            yield Incident(
                "ended-from-outside",
                Layer.LAUNCHER,
                frozenset(named if sent_to is None else (sent_to,)),
                line,
                _short(notice),
                is_report=isinstance(notice.event, ProcessEnded),
                confidence="certain" if notice.roles.isdisjoint(("ends-worker", "ends-one")) else "likely",
                notice=notice,
            )
        for notice, actors in agents.values():
            sent = str(value(notice, "signal"))
            words = f"the launcher got {signals.name(int(sent)) if sent.isdigit() else sent} from outside"
            yield Incident("ended-from-outside", Layer.LAUNCHER, frozenset(actors), notice.evidence[0], words)

    # Findings

    def _collect_findings(self, kinds: set[str]) -> Iterator[Incident]:
        """Yield what rules find without an error: settings, machines, files beside the log."""
        for finding in self.findings:
            is_condition = self._is_condition(finding)
            if finding.rule in kinds or not (finding.fatal or finding.severity == "error" or is_condition):
                continue
            if _is_slow(finding) and not is_condition:
                continue
            layer = self._layer_of(finding)
            actors: set[Actor] = set(finding.ranks) if self.actors.world is not None else set()
            if not actors:  # the rank of a process may be known by a launcher's report only
                pids = (_PID.search(line.text) for line in finding.evidence)
                actors = {actor for pid in pids if pid and (actor := self.actors.actor_by_pid(int(pid[1]))) is not None}
            who, late = ((), actors) if layer == Layer.PROGRAM else (actors, ())
            yield Incident(
                finding.rule,
                layer,
                frozenset(who),
                finding.evidence[0] if finding.evidence else None,
                finding.summary,
                peers=frozenset(late),
                is_report=True,
                is_kill=layer <= Layer.SYSTEM,
                confidence=finding.confidence,
                finding=finding,
            )


def _is_slow(finding: Finding) -> bool:
    """Return whether it is about the speed of paths."""
    return finding.paths is not None and not finding.fatal


def _compares_calls(notice: Notice) -> bool:
    """Return whether it says that two ranks made different calls."""
    return not notice.roles.isdisjoint(("size-mismatch", "calls-compared"))


def _short(notice: Notice) -> str:
    text = " ".join((notice.event.message if notice.event else notice.message).split())
    return cut(_OWN_NAME.sub("", text), _WIDTH)
