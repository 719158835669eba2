"""The progress table: how far each rank came in each group and communicator, from every source alike.

Flight recorder dumps, the watchdog's lines and the log's own stages are put into the same rows; one comparison finds
who lags, who differs, who never called and who never began. What a rank says after somebody ended the job is no
progress: it only came that far because others were taken away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from nccl_inspect.artifacts import causes
from nccl_inspect.event.base import Process
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import at_end
from nccl_inspect.judging.evidence import flight_recorder as words
from nccl_inspect.judging.evidence.ras import ranks_by_pid
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.watchdog import Wait, latecomers, statuses, waits
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Begin, contents_of
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.story.actors import Actor, Actors, name_of, ranks_among
from nccl_inspect.story.incident import Incident
from nccl_inspect.story.origin import collectives_by_group, origin, with_communicators
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.times import line_seconds
from nccl_inspect.util.wording import conjugate, count, is_or_are, ranks_word

if TYPE_CHECKING:  # most logs have no calls
    from nccl_inspect.artifacts.calls import Call
    from nccl_inspect.artifacts.flight_recorder import Dump, Group
    from nccl_inspect.artifacts.standstill import Standstill

_OPERATIONS = {"ALLREDUCE": "all_reduce", "BROADCAST": "broadcast", "_ALLGATHER_BASE": "_all_gather_base"}
"""The recorder's names of operations that the watchdog names otherwise than by small letters."""

_FEW = 4
"""Ranks of a group that are named where any of them may have begun it."""


class Table:
    """The table compares how far each rank came.

    Args:
        facts: about the job.
        actors: its processes.
        end: the first line by which somebody ended the job; None where there is none.
    """

    def __init__(self, facts: Facts, actors: Actors, end: Incident | None) -> None:
        self.facts, self.actors = facts, actors
        self._end = end
        self._blocks = sources_in_blocks(facts)
        self._waits = [wait for wait in waits(facts) if self._is_in_time(wait.notice.evidence[0])]
        self._late = latecomers(self._waits)

    def incidents(self) -> Iterator[Incident]:
        """Yield who holds the others up: by calls, by counts of RAS, and by stages."""
        by_calls = list(self._compare_calls())
        yield from by_calls
        yield from self._compare_counts(is_told=bool(by_calls))
        if not by_calls:
            yield from self._compare_stages()

    def _is_in_time(self, line: Evidence) -> bool:
        """Return whether a line was printed before somebody ended the job."""
        if self._end is None or self._end.line is None:
            return True
        if self._end.time is not None and (when := line_seconds(line.text)) is not None:
            return when < self._end.time + 1
        return self._precedes_end(line.source, line.order)

    def _precedes_end(self, source: str, order: int) -> bool:
        """Return whether a place comes before the line that ends the job; lines of hosts in blocks have no order."""
        end = self._end.line if self._end else None
        return end is None or source != end.source or source in self._blocks or order < end.order

    # Calls: flight recorder dumps, and rows of the same kind made of the watchdog's lines

    def _compare_calls(self) -> Iterator[Incident]:
        dumps = {dump.rank: dump for dump in words.dumps_of(self.facts) if dump.rank is not None}
        names = {dump.name for dump in dumps.values()}
        recorded = words.all_standstills(self.facts)
        if any(still.culprits for still in recorded) or words.is_running(self.facts):
            yield from filter(None, (self._judge_dumps(still, self._line(still, names)) for still in recorded))
            return
        if not (dumps or self._waits):
            return
        said = self._rows_from_watchdog(set(dumps))
        busy = {*words.being_made(self.facts), *at_end.connecting(self.facts)}
        if dumps:
            busy |= self._standing() - set(dumps)
        stills: list[Standstill] = []
        if len(said) + len(dumps) > 1:
            from nccl_inspect.artifacts import standstill  # most jobs do not stand still

            stills = standstill.find_standstills([*dumps.values(), *said.values()], busy)
        if dumps:  # the lines tell of ranks without a dump only that they came, or did not
            unknown = {rank for still in recorded for rank in still.unknown}
            stills = [still for still in stills if _is_told_by_lines(still, unknown)] or recorded
            yield from filter(None, (self._judge_dumps(still, self._line(still, names)) for still in stills))
            return
        found = list(filter(None, (self._judge_lines(still, busy, self._line(still, names)) for still in stills)))
        for incident in found or filter(None, [self._judge_waits(stills, busy)]):
            incident.teller = "watchdog-timeout"
            yield incident

    def _line(self, still: Standstill, names: set[str]) -> Evidence | None:
        """Return the line of a dump, else of the log, that shows a standstill."""
        parts = [part for part in (*still.culprits, *still.waiting) if part.dump in names]
        own = next(iter(words.lines(self.facts, parts, 1)), None)
        return own or next((w.notice.evidence[0] for w in waits(self.facts) if w.seq == still.seq), None)

    def _judge_dumps(self, still: Standstill, line: Evidence | None) -> Incident | None:
        culprits = words.ranks_of(still.culprits) or set(still.unknown)
        if still.kind in (causes.UNFINISHED, causes.PARTLY):
            if not still.culprits:
                return None
            return self._lagging("call-unfinished", culprits, self._sentence(still, culprits), line, layer=Layer.WAIT)
        is_sure = bool(still.culprits or still.odd)
        named = set(still.odd) or culprits
        kind = _KINDS[still.kind]
        return self._lagging(kind, named, self._sentence(still, named), line, "certain" if is_sure else "likely")

    def _judge_lines(self, still: Standstill, busy: set[int], line: Evidence | None) -> Incident | None:
        """Return who did not come to a call, or made another one, by the watchdog's lines."""
        culprits = words.ranks_of(still.culprits) or set(still.unknown)
        if still.kind != causes.DIFFERENT:
            came = words.ranks_of(still.waiting)
            # Who waits in a call has made its connections: a rank that still connects to it is in another call.
            elsewhere = {rank for rank, peer in at_end.connecting(self.facts).items() if peer in came and len(came) > 1}
            culprits -= self._standing() | (busy - elsewhere)
        is_two_sided = still.kind in (causes.UNFINISHED, causes.PARTLY, causes.CYCLE)
        if is_two_sided or self._unseen() or not 0 < len(culprits) <= max(1, len(still.waiting)):
            return None  # of whom the log has no output it does not show what they called
        named = set(still.odd) or culprits
        return self._lagging(_KINDS[still.kind], named, self._sentence(still, named), line)

    def _judge_waits(self, stills: Iterable[Standstill], busy: set[int]) -> Incident | None:
        """Return where it began by the waits in all groups together, which do not say in what order calls were made."""
        own = self._waits
        began = origin(self.facts, own, busy) if own else None
        line: Evidence | None = own[0].notice.evidence[0] if own else None
        if began is not None and began.suspects:
            return self._lagging("never-called", began.suspects, began.words, line)
        if began is not None:
            return self._lagging("call-unfinished", began.among, began.words, line, layer=Layer.WAIT)
        for still in stills:
            culprits = words.ranks_of(still.culprits)
            named = culprits | set(still.group.ranks if len(still.group.ranks) <= _FEW else ())
            if not 0 < len(culprits) <= max(1, len(still.waiting)) or self._unseen():
                continue
            elsewhere = {wait.group for wait in own if wait.rank in named and wait.group}
            if len(named) == 1 and elsewhere:  # it waits as the others do
                text = f"it likely began in group {', '.join(sorted(elsewhere))}, in which {ranks_word(named)} waits"
                return self._lagging("call-unfinished", set(), text, self._line(still, set()), layer=Layer.WAIT)
            if len(named) > 1:
                text = f"{ranks_word(named)} wait for each other; it likely began in work {still.seq} of group "
                line = self._line(still, set())
                return self._lagging("call-unfinished", named, text + still.group.label, line, layer=Layer.WAIT)
        return None

    @staticmethod
    def _lagging(
        kind: str,
        who: Iterable[Actor],
        text: str,
        line: Evidence | None,
        confidence: str = "likely",
        layer: Layer = Layer.PROGRAM,
    ) -> Incident:
        """Return the incident of actors for which others wait."""
        return Incident(
            kind, layer, frozenset(), line, text, peers=frozenset(who), is_report=True, confidence=confidence
        )

    def _sentence(self, still: Standstill, ranks: set[int]) -> str:
        call = words.work(next((part.call for part in still.waiting if part.call), None), still.group, still.seq)
        if still.kind == causes.DIFFERENT:
            made = words.by_call([*still.culprits, *still.waiting])
            return f"ranks made different calls (size, type or operation mismatch) as {call}: {made}"
        if still.kind == causes.CYCLE:
            return f"{ranks_word(ranks)} called the groups in another order: they wait for each other"
        if still.kind == causes.NO_PARTNER:
            other = f"{still.operation} (send or recv) of group {still.group.label}"
            return f"{ranks_word(ranks)} did not call the other end of {other}"
        if ranks <= {wait.rank for wait in latecomers(waits(self.facts))}:
            return f"{ranks_word(ranks)} arrived late, and began to wait for {call} after the others had timed out"
        if still.kind == causes.MISSING:
            what = (
                "never called"
                if still.culprits
                else f"{is_or_are(len(ranks))} silent (no dump) and likely never called"
            )
            return f"{ranks_word(ranks)} {what} {call}"
        return f"{ranks_word(ranks)} {conjugate(len(ranks), 'stand')} in {call}, which all called"

    def _unseen(self) -> set[int]:
        """Return the ranks of which the log has no line."""
        return {actor for actor in self.actors.everyone if isinstance(actor, int)} - self.actors.printing

    def _standing(self) -> set[int]:
        """Return the ranks that report their own wait in a call, before somebody ended the job."""
        came_late = {wait.rank for wait in self._late}
        standing = {wait.rank for wait in self._waits if wait.rank is not None and wait not in self._late}
        said = (one for one in statuses(self.facts) if one.is_in_call and self._is_in_time(one.notice.evidence[0]))
        return standing | {one.stated for one in said if one.stated is not None and one.stated not in came_late}

    def _rows_from_watchdog(self, known: set[int]) -> dict[int, Dump]:
        """Return rows made from the watchdog's lines, for ranks without a dump."""
        waiting = [wait for wait in self._waits if wait not in self._late]
        if not waiting:
            return {}
        from nccl_inspect.artifacts.calls import Recorded
        from nccl_inspect.artifacts.flight_recorder import Dump

        came_late = {(wait.group, wait.rank) for wait in self._late}
        by_group = collectives_by_group(waiting)
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for status in statuses(self.facts):
            group, rank, number = status.group, status.rank, status.enqueued
            if group is None or rank is None or number is None or (group, rank) in came_late:
                continue
            if self._is_in_time(status.notice.evidence[0]):
                last.setdefault((group, rank), (number, status.completed))
                by_group.setdefault(group, [])
        groups = {name: group for name, group in self._groups(by_group) if group.ranks}
        by_rank = group_values(((name, wait.rank), wait) for name, some in by_group.items() for wait in some)
        latest = {name: max((wait.seq for wait in some), default=-1) for name, some in by_group.items()}
        rows: dict[int, Dump] = {}
        groups_of = group_values((rank, name) for name, group in groups.items() for rank in group.ranks)
        for rank in groups_of.keys() & self.actors.printing - known:
            own = {name: groups[name] for name in groups_of[rank]}
            row = Dump(
                f"watchdog of rank {rank}",
                "",
                rank,
                None,
                {members.name: members for members in own.values()},
                Recorded(),
            )
            for name, members in own.items():
                mine = by_rank.get((name, rank), [])
                enqueued, completed = last.get((name, rank), (-1, -1))
                calls = row.recorded.calls.setdefault(members.name, [])
                calls += [_call(members.name, wait, wait.seq) for wait in mine]
                is_past = latest[name] > completed + 1  # others completed that call
                if not mine and not is_past and enqueued > completed >= 0:
                    others = (wait for wait in by_group[name] if wait.seq == completed + 1)
                    calls.append(_call(members.name, next(others, None), completed + 1))
                row.enqueued[members.name] = max([enqueued, *(wait.seq for wait in mine)])
            rows[rank] = row
        return rows

    def _groups(self, by_group: dict[str, list[Wait]]) -> Iterator[tuple[str, Group]]:
        """Yield the groups with their ranks, where the log shows these."""
        from nccl_inspect.artifacts.flight_recorder import Group

        for name, _, comm in with_communicators(self.facts, by_group):
            guid, _, desc = name.partition("(")
            ranks = tuple(rank for rank in comm.ranks if rank is not None) if comm and None not in comm.ranks else ()
            if not ranks and (guid == "0" or "default" in desc):
                ranks = tuple(range(self.facts.job.world_size or max(self.actors.prefix_ranks, default=0) + 1))
            yield name, Group(guid, desc.rstrip(")"), ranks)

    # Counts of RAS

    def _compare_counts(self, *, is_told: bool) -> Iterator[Incident]:
        ranks = ranks_by_pid(self.facts)
        for answer in contents_of(self.facts.job.artifacts, "ras")[-1:]:
            lost = {rank for entry in answer.lost if (rank := ranks.get(entry.pid or -1)) is not None}
            if lost and not self.facts.is_over():
                line = Evidence(answer.name, next(entry.line for entry in answer.lost), "no answer")
                text = f"RAS has no answer from {ranks_word(lost)}: stopped, dead or left"
                yield self._lagging("no-answer", lost, text, line, layer=Layer.LOSS)
            if is_told or not answer.mismatches:
                continue
            late = {rank for member in answer.last_to_come() if (rank := ranks.get(member.pid or -1)) is not None}
            if late:
                first = answer.mismatches[0]
                line = Evidence(answer.name, answer.lines.get(first.comm_id, 1), f"{first.operation} counts differ")
                text = f"{ranks_word(late)} launched fewer operations than the others: never called, late or elsewhere"
                yield self._lagging("out-of-step", late, text, line)

    # Stages of communicators

    def _compare_stages(self) -> Iterator[Incident]:
        if at_end.node_failed(self.facts):
            return
        found = list(self._find_late_begins())
        yield from found
        wait = None if found else at_end.waiting_ranks(self.facts)
        if wait is None or not (at_end.is_stuck(self.facts) or self._end or self.facts.job.ended_by):
            return  # it may only have been cut there
        late = set(wait.missing or wait.silent)
        comm = next(comm for comm in self.facts.job.communicators if comm.id == wait.communicator)
        is_numbered = None not in comm.ranks or self.facts.job.rank_space != "global"
        if len(late) > len(wait.waiting):
            return  # they may rather wait elsewhere for those
        who = f"{ranks_word(wait.waiting)} {conjugate(len(wait.waiting), 'wait')}"
        if not is_numbered:
            number, late = len(late), set()
            text = f"the {wait.stage} of communicator {comm.id} waits for {count(number, 'rank')} that the log lacks"
        elif (
            late and wait.missing and late.isdisjoint(self.actors.known_ranks)
        ):  # not launched, or its output is not here
            them = "it" if len(late) == 1 else "them"
            text = f"{who} for {ranks_word(late)} in the {wait.stage}: the log has no line of {them}"
        elif late:
            what = "never began" if wait.missing else "fell silent in"
            text = f"{ranks_word(late)} {what} the {wait.stage} in which {who}"
        else:
            text = f"ranks wait for each other in the {wait.stage}"
        yield self._lagging("never-began", late, text, wait.since)

    def _find_late_begins(self) -> Iterator[Incident]:
        """Yield the ranks that did not begin a communicator in which others wait."""
        job = self.facts.job
        if job.excerpt or not (job.failed or job.ended_by or self._end or at_end.is_stuck(self.facts)):
            return
        stands: set[Actor] = set()
        idle: set[Actor] = set()
        most: list[Begin] = []
        for comm in job.communicators:
            in_time = [begin for begin in comm.begins if self._precedes_end(begin.source, begin.order)]
            if not in_time or len(in_time) == comm.nranks or any(begin.is_complete for begin in in_time):
                continue
            stands |= {self.actors.actor_by_process(begin.process) for begin in in_time}
            idle |= self._absent(comm, in_time)
            most = max(most, in_time, key=len)
        idle = {actor for actor in idle - stands if isinstance(actor, Process) or actor in self.actors.known_ranks}
        if not idle:
            return  # of ranks without a line the output may be missing
        line = Evidence(most[0].source, most[0].line, "Init START", most[0].order)
        waiting = f"{count(len(most), 'other')} {conjugate(len(most), 'wait')}"
        text = f"{name_of(idle)} never began to build a communicator in which {waiting}"
        yield self._lagging("never-began", idle, text, line)

    def _absent(self, comm: CommunicatorInfo, in_time: list[Begin]) -> set[Actor]:
        """Return the members that did not begin in time, as far as their ranks are known."""
        found: set[Actor] = {
            self.actors.actor_by_process(begin.process) for begin in comm.begins if begin not in in_time
        }
        members = {begin.member for begin in comm.begins}
        missing = [member for member in range(comm.nranks) if member not in members]
        if comm.nranks == self.actors.world:
            return found | set(missing)
        here = {self.actors.actor_by_process(begin.process): begin.member for begin in comm.begins}
        free = [actor for actor in self.actors.everyone if isinstance(actor, int) and actor not in here]
        for member in missing if ranks_among(here) else ():
            low = max((rank for rank, at in here.items() if isinstance(rank, int) and at < member), default=-1)
            high = min((rank for rank, at in here.items() if isinstance(rank, int) and at > member), default=1 << 30)
            fits = [rank for rank in free if low < rank < high]
            found.update(fits if len(fits) == 1 else ())
        return found


_KINDS = {
    causes.DIFFERENT: "calls-differ",
    causes.CYCLE: "groups-out-of-order",
    causes.NO_PARTNER: "no-partner",
    causes.MISSING: "never-called",
    causes.PARTLY: "call-unfinished",
    causes.UNFINISHED: "call-unfinished",
}


def _is_told_by_lines(still: Standstill, unknown: set[int]) -> bool:
    """Return whether lines add to dumps that a rank without one did not come to a call."""
    return still.kind == causes.MISSING and bool(still.culprits) and words.ranks_of(still.culprits) <= unknown


def _call(group: str, wait: Wait | None, seq: int) -> Call:
    """Return the row of a rank in a call, as its watchdog reports it."""
    from nccl_inspect.artifacts.calls import Call

    operation = _OPERATIONS.get(wait.operation, wait.operation.lower()) if wait else ""
    sizes = (wait.numel,) if wait and wait.numel is not None else ()
    return Call(group, wait.notice.place if wait else 0, seq, operation, "started", False, sizes, (), (), 0, "")


@once
def sources_in_blocks(facts: Facts) -> set[str]:
    """Return the sources in which each host has its lines together: between hosts their order says nothing."""
    spans: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for last in facts.job.last_lines:
        host = last.process.host
        first, end = spans[last.source].get(host, (last.first or last.order, 0))
        spans[last.source][host] = min(first, last.first or last.order), max(end, last.order)
    return {source for source, by_host in spans.items() if len(by_host) > 1 and _are_apart(sorted(by_host.values()))}


def _are_apart(spans: list[tuple[int, int]]) -> bool:
    return all(one[1] < other[0] for one, other in pairwise(spans))
