"""The progress table: how far each rank came in each group and communicator, from every source alike.

Flight recorder dumps, the watchdog's lines and the log's own stages are put into the same rows; one comparison finds
who lags, who differs, who never called and who never began. What a rank says after somebody ended the job is no
progress: it only came that far because others were taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.event.base import Process
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import at_end
from nccl_inspect.judging import watchdog as words
from nccl_inspect.judging.actors import Actor, Actors, name_of, ranks_among
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import look_up
from nccl_inspect.judging.silence import sources_in_blocks
from nccl_inspect.judging.statements import value
from nccl_inspect.judging.watchdog import (
    PAIRWISE,
    Wait,
    begins_late,
    communicator_of,
    communicator_of_wait,
    latecomers,
    statuses,
    waiting_ranks,
    waits,
    without_output,
)
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Begin, contents_of
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.story.edges import Incident, blame
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.times import line_seconds
from nccl_inspect.util.wording import conjugate, count, is_or_are, list_words, ranks_word

if TYPE_CHECKING:  # most logs have no calls
    from nccl_inspect.artifacts.flight_recorder import Call, Dump, Group
    from nccl_inspect.artifacts.standstill import Standstill

_OPERATIONS = {"ALLREDUCE": "all_reduce", "BROADCAST": "broadcast", "_ALLGATHER_BASE": "_all_gather_base"}
"""The recorder's names of operations that the watchdog names otherwise than by small letters."""

_ROOTED = ("BROADCAST", "_BROADCAST_OOP", "REDUCE", "_REDUCE_OOP", "GATHER", "SCATTER")
"""Calls that one rank may finish before the others."""
_MOST_IN_RING = 16
_REPORTING = 2.0
"""Seconds within which the watchdogs of all ranks report a time-out."""
_HEARING = 15.0
"""Seconds within which they hear from each other through PyTorch's store."""
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
        in_time = [wait for wait in waits(facts) if self._is_in_time(wait.notice.evidence[0])]
        self._late = latecomers(in_time)
        self._waits = [wait for wait in in_time if wait not in self._late]

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
        if not (dumps or self._waits):
            return
        names = {dump.name for dump in dumps.values()}
        recorded = words.all_standstills(self.facts)
        is_settled = any(still.culprits for still in recorded) or words.is_running(self.facts)
        busy = {*words.being_made(self.facts), *at_end.connecting(self.facts)}
        if dumps:
            busy |= self._standing - set(dumps)
        rows = {} if is_settled else dumps | self._rows_from_watchdog(set(dumps))
        stills: list[Standstill] = []
        if len(rows) > 1:
            from nccl_inspect.artifacts import standstill  # most jobs do not stand still

            stills = standstill.find_standstills(rows.values(), busy)
        if dumps:  # the lines tell of ranks without a dump only that they came, or did not
            unknown = {rank for still in recorded for rank in still.unknown}
            absent = [still for still in stills if still.kind == artifacts.MISSING and still.culprits]
            stills = [still for still in absent if words.ranks_of(still.culprits) <= unknown] or recorded
            yield from filter(None, (self._judge_dumps(still, self._line(still, names)) for still in stills))
        if dumps or begins_late(self.facts):
            return
        lines = [(still, self._line(still, names)) for still in stills]
        found = [one for still, line in lines if (one := self._judge_lines(still, busy, line))]
        found = found or list(filter(None, [self._find_cut_off() or self._judge_waits(stills)]))
        if not found:  # ranks whose output is missing are where to look only if nobody else is
            found = [one for still, line in lines if (one := self._judge_lines(still, busy, line, of_unseen=True))]
        for incident in found:
            if incident.kind != "calls-differ":
                incident.teller = "watchdog-timeout"
            yield incident

    def _line(self, still: Standstill, names: set[str]) -> Evidence | None:
        """Return the line of a dump, else of the log, that shows a standstill."""
        parts = [part for part in (*still.culprits, *still.waiting) if part.dump in names]
        own = next(iter(words.lines(parts, 1)), None)
        return own or next((w.notice.evidence[0] for w in waits(self.facts) if w.seq == still.seq), None)

    def _judge_dumps(self, still: Standstill, line: Evidence | None) -> Incident | None:
        culprits = words.ranks_of(still.culprits) or set(still.unknown)
        if still.kind in (artifacts.UNFINISHED, artifacts.PARTLY):
            return blame("call-unfinished", culprits, self._sentence(still, culprits), line, layer=Layer.WAIT)
        is_sure = bool(still.culprits or still.odd)
        named = set(still.odd) or culprits
        kind = _KINDS[still.kind]
        return blame(kind, named, self._sentence(still, named), line, "certain" if is_sure else "likely")

    def _judge_lines(
        self, still: Standstill, busy: set[int], line: Evidence | None, *, of_unseen: bool = False
    ) -> Incident | None:
        """Return who did not come to a call, or made another one, by the watchdog's lines."""
        known, unknown, most = words.ranks_of(still.culprits), set(still.unknown), len(still.waiting)
        if still.kind != artifacts.DIFFERENT:  # nobody holds up others who waits for some
            came = words.ranks_of(still.waiting)
            # Who waits in a call has made its connections: a rank that still connects to it is in another call.
            elsewhere = {rank for rank, peer in at_end.connecting(self.facts).items() if peer in came and len(came) > 1}
            waiting = self._standing | (busy - elsewhere)
            waiting |= self._find_late_reporters(still)
            known, unknown, most = known - waiting, unknown - waiting, max(most, len(waiting))
        culprits = known or unknown
        is_two_sided = still.kind in (artifacts.UNFINISHED, artifacts.PARTLY, artifacts.CYCLE)
        unseen = self._unseen - without_output(self.facts) if of_unseen else self._unseen
        if is_two_sided or unseen or not 0 < len(culprits) <= max(1, most):
            return None  # of whom the log has no output it does not show what they called
        return blame(_KINDS[still.kind], culprits, self._sentence(still, culprits), line)

    def _find_cut_off(self) -> Incident | None:
        """Return the ranks of hosts that did not confirm a time-out through PyTorch's store, as other hosts did.

        Who times out tells the others through the store, and all confirm it within seconds (2.4 and later). Where only
        the host of rank 0 did, on which the store is, all others lost that one.
        """
        signals = [one for one in statuses(self.facts) if not one.is_in_call]
        ranks = [rank for one in signals for rank in (one.rank, value(one.notice, "origin_rank"))]
        confirming = {rank for rank in ranks if isinstance(rank, int)}
        lines = {one.rank: one.notice.evidence[0] for one in signals if one.rank is not None}
        lines |= {wait.rank: wait.notice.evidence[0] for wait in waits(self.facts) if wait.rank is not None}
        silent = {rank: line for rank, line in lines.items() if rank not in confirming}
        is_split = len(self.facts.job.sources) > 1
        # Without INFO lines no rank has a host: its file stands for that, else the rank.
        place_of = {
            rank: next(iter(self.actors.hosts_of([rank])), line.source if is_split else ranks_word([rank]))
            for rank, line in lines.items()
        }
        here, there = ({place_of[rank] for rank in some if rank in place_of} for some in (confirming, silent))
        since = [when for line in silent.values() if (when := line_seconds(line.text)) is not None]
        if not here or not there or not since or here & there or (len(here) == len(there) and len(here) > 1):
            return None
        if self._last_time - max(since) < _HEARING:
            return None  # the log may end before they do
        is_store_alone = 0 in confirming and len(here) == 1 < min(len(there), len(confirming))
        named = confirming if is_store_alone else set(silent)
        hosts = self.actors.hosts_of(named)
        if not hosts and not is_store_alone and len(silent) >= len(confirming):
            return None
        who = f"{ranks_word(named)} ({list_words(hosts)})" if hosts else ranks_word(named)
        text = f"{who} did not confirm the time-out through PyTorch's store, as others did: cut off, or the output ends"
        if is_store_alone:
            text = (
                f"{who} alone confirmed the time-out through PyTorch's store, which rank 0 has: cut off from the others"
            )
        return blame("cut-off", named, text, next(iter(silent.values())), layer=Layer.SYSTEM)

    @cached_property
    def _last_time(self) -> float:
        """Return when the last statement was printed, in seconds."""
        shown = (line_seconds(notice.evidence[-1].text) for notice in self.facts.job.notices if notice.evidence)
        return max((when for when in shown if when is not None), default=0.0)

    def _judge_waits(self, stills: Sequence[Standstill]) -> Incident | None:
        """Return where it began by the waits in all groups together, which do not say in what order calls were made."""
        line = self._waits[0].notice.evidence[0]
        reports = self.facts.notices("torch/desync-lagging", "torch/desync-not-joined")
        parts = (part for report in reports for part in str(value(report, "members")).split(","))
        if lagging := {int(part) for part in parts if part.strip().isdigit()}:
            text = f"PyTorch's desync report names {ranks_word(lagging)} as lagging"
            return blame("never-called", lagging, text, line)
        by_group = _collectives_by_group(self._waits)
        if not by_group:
            return self._judge_pair(line)
        for group, some in by_group.items():
            by_number = sorted(group_sets((wait.seq, wait.rank) for wait in some if wait.rank is not None).items())
            if len(by_number) == 1:
                ((number, waiting),) = by_number
                past = (one for one in statuses(self.facts) if one.group == group and one.completed >= number)
                late = {one.rank for one in past if one.rank is not None} - self._standing
                if 0 < 2 * len(late) <= len(waiting):
                    they = f"{ranks_word(late)} came to work {number} of group {group}"
                    text = f"{they} only after the others had timed out in it, or made another call under that number"
                    return blame("never-called", late, text, line)
            if len(by_number) < 2:
                continue
            (number, first), (_, then), *_ = by_number
            if only := first - then:
                they = f"{ranks_word(only)} still {conjugate(len(only), 'wait')}"
                is_shared = all(wait.operation not in _ROOTED for wait in some if wait.seq == number)
                if is_shared and by_number[1][0] > number + 1 and len(then) < len(only):
                    # Nobody is two calls ahead of others that have yet to give their part.
                    text = f"{ranks_word(then)} made other calls than the others: {they} in work {number} of {group}"
                    return blame("calls-differ", then, text, line)
                text = (
                    f"it likely began in process group {group}: {ranks_word(then)} finished work {number}, in which "
                    f"{they}: they made different calls under that number, or the part of {ranks_word(only)} is stuck"
                )
                named = {rank for _, ranks in by_number for rank in ranks}
                return blame("call-unfinished", named, text, line, layer=Layer.WAIT)
        return self._judge_rings(by_group, line) or self._judge_two_sided(stills)

    def _judge_pair(self, line: Evidence) -> Incident | None:
        """Return who holds up those that wait to send or receive.

        It is the only partner of theirs that does not wait, else the members that did not time out, of the pair or the
        only communicator in which others wait.
        """
        waiting = {wait.rank for wait in self._waits if wait.rank is not None}
        pairs = [begins for comm in self.facts.job.communicators if comm.nranks == len(begins := comm.begins) == 2]
        by_pair = [{self.actors.actor_by_process(begin.process) for begin in begins} for begins in pairs]
        partners = {actor for pair in by_pair if pair & waiting for actor in pair if isinstance(actor, int)} - waiting
        first = {one.rank: one for one in reversed(statuses(self.facts))}  # later ones tell of what came after the wait
        partners -= {rank for rank, one in first.items() if (one.enqueued or 0) > one.completed}
        if len(partners) == 1 and len(waiting) > 1:
            text = f"all that wait to send or receive wait for {ranks_word(partners)}, or for ranks that do"
            return blame("never-called", partners, text, line)
        comm = communicator_of_wait(self.facts, self._waits) if waiting else None
        absent = comm.known_ranks - waiting - waiting_ranks(self.facts) if comm else set[int]()
        group = self._waits[0].group
        absent -= {one.rank for one in statuses(self.facts) if one.group == group and one.enqueued is not None}
        if not absent or len(absent) > len(waiting):
            return None
        text = f"{ranks_word(absent)} did not time out: it did not arrive, died, or its output is missing"
        return blame("never-called", absent, text, line)

    def _judge_rings(self, by_group: dict[str, list[Wait]], line: Evidence) -> Incident | None:
        """Return ranks that wait for each other: those that are in every ring."""
        calls = []
        for name, group in self._groups(by_group):
            some = by_group[name]
            here = frozenset(wait.rank for wait in some if wait.rank is not None)
            calls.append(_Call(some[0], here, frozenset(group.ranks) - here, bool(group.ranks)))
        elsewhere = {rank for call in calls if call.absent for rank in call.waiting}
        calls = [  # one in which all ranks are waits for those that wait elsewhere as well
            call.with_fields(waiting=call.waiting - elsewhere, absent=call.waiting & elsewhere)
            if call.is_known and not call.absent
            else call
            for call in calls
        ]
        ring = _ring(calls, None)
        core = {rank for rank in ring if not _ring(calls, rank)} if len(ring) <= _MOST_IN_RING else set[int]()
        if not core:
            return None  # there are several rings, and nothing says which was the first
        held = [call for call in calls if call.waiting & set(ring) and call.absent & set(ring)]
        links = list_words([call.description for call in held], limit=3)
        if len(core) == 1:
            text = f"all others wait for {ranks_word(core)}, or for ranks that do: {links}"
            return blame("never-called", core, text, line)
        text = f"it likely began with {ranks_word(core)}, which wait for each other: {links}. {look_up('@DISORDER')}"
        return blame("call-unfinished", core, text, line, layer=Layer.WAIT)

    def _judge_two_sided(self, stills: Iterable[Standstill]) -> Incident | None:
        """Return a call for which ranks wait that wait elsewhere, or for each other."""
        for still in stills:
            named, came = words.ranks_of(still.culprits), words.ranks_of(still.waiting)
            if not named or self._unseen or self._find_late_reporters(still):
                continue
            line = self._line(still, set())
            # They say how far they came, and report no wait of their own.
            idle = {one.rank for one in statuses(self.facts) if one.enqueued is not None} - self._standing
            idle -= {wait.rank for wait in waits(self.facts)}
            if still.kind == artifacts.MISSING and named <= idle and came and len(named) >= 2 * len(came):
                call = words.work(still.waiting[0].call, still.group, still.seq)
                text = (
                    f"only {ranks_word(came)} called {call}, and {ranks_word(named)} never did: the few left out what "
                    f"the others call first, or call more, or all the others are held up"
                )
                return blame("call-unfinished", set(), text, line, layer=Layer.WAIT)
            if len(named) > max(1, len(came)):
                continue
            elsewhere = sorted({wait.group for wait in self._waits if wait.rank in named and wait.group})
            if still.kind == artifacts.MISSING and elsewhere:
                call = words.work(still.waiting[0].call, still.group, still.seq)
                text = (
                    f"it likely began in process group {', '.join(elsewhere)}, in which {words.who_waits(named)}, "
                    f"as the others do for {'it' if len(named) == 1 else 'them'} in {call}. {look_up('@DISORDER')}"
                )
                return blame("call-unfinished", set(), text, line, layer=Layer.WAIT)
            named |= set(still.group.ranks if len(still.group.ranks) <= _FEW else ())
            if len(named) > 1:
                text = f"{ranks_word(named)} wait for each other; it likely began in work {still.seq} of group "
                return blame("call-unfinished", named, text + still.group.label, line, layer=Layer.WAIT)
        return None

    def _sentence(self, still: Standstill, ranks: set[int]) -> str:
        call = words.work(next((part.call for part in still.waiting if part.call), None), still.group, still.seq)
        if still.kind == artifacts.DIFFERENT:
            made = words.by_call([*still.culprits, *still.waiting])
            return f"ranks made different calls (size, type or operation mismatch) as {call}: {made}"
        if still.kind == artifacts.CYCLE:
            return f"{ranks_word(ranks)} called the groups in another order: they wait for each other"
        if still.kind == artifacts.NO_PARTNER:
            other = f"{still.operation} (send or recv) of group {still.group.label}"
            return f"{ranks_word(ranks)} did not call the other end of {other}"
        if ranks <= {wait.rank for wait in latecomers(waits(self.facts))}:
            return f"{ranks_word(ranks)} arrived late, and began to wait for {call} after the others had timed out"
        if still.kind == artifacts.MISSING:
            missing = "the log has no output" if ranks <= self._unseen else "no dump"
            what = (
                "never called"
                if still.culprits
                else f"{is_or_are(len(ranks))} silent ({missing}) and likely never called"
            )
            return f"{ranks_word(ranks)} {what} {call}"
        return f"{ranks_word(ranks)} {conjugate(len(ranks), 'stand')} in {call}, which all called"

    @cached_property
    def _unseen(self) -> set[int]:
        """Return the ranks of which the log has no line."""
        return {actor for actor in self.actors.everyone if isinstance(actor, int)} - self.actors.printing

    @cached_property
    def _standing(self) -> set[int]:
        """Return the ranks that report their own wait in a call, before somebody ended the job."""
        came_late = {wait.rank for wait in self._late}
        standing = {wait.rank for wait in self._waits if wait.rank is not None}
        said = (one for one in statuses(self.facts) if one.is_in_call and self._is_in_time(one.notice.evidence[0]))
        return standing | {one.stated for one in said if one.stated is not None and one.stated not in came_late}

    @cached_property
    def _late_reporters(self) -> set[int]:
        """Return the ranks whose watchdog may only not have reported yet: the log ends while those of others do.

        Where nothing tells the time, these are the ranks of hosts with others that reported: when the first aborts, its
        launcher ends them.
        """
        began = min(filter(None, (line_seconds(wait.notice.evidence[0].text) for wait in self._waits)), default=None)
        if self._end or self.facts.job.excerpt or (began is not None and self._last_time - began > _REPORTING):
            return set()
        reported = {one.rank for one in statuses(self.facts)} | {wait.rank for wait in self._waits}
        quiet = {rank for rank in self.actors.printing if rank not in reported}
        if began is not None:
            return quiet
        hosts = self.actors.hosts_of(rank for rank in reported if rank is not None)
        return {rank for rank in quiet if not set(self.actors.hosts_of([rank])).isdisjoint(hosts)}

    def _find_late_reporters(self, still: Standstill) -> set[int]:
        """Return the ranks of a group that may only not have reported yet; one that alone is missing is the suspect."""
        ranks = self._late_reporters.intersection(still.group.ranks)
        others = set(still.group.ranks) - self._standing - ranks
        return ranks if len(ranks) > 1 or others else set()

    def _rows_from_watchdog(self, known: set[int]) -> dict[int, Dump]:
        """Return rows made from the watchdog's lines, for ranks without a dump."""
        if not self._waits:
            return {}
        from nccl_inspect.artifacts.flight_recorder import Dump

        came_late = {(wait.group, wait.rank) for wait in self._late}
        by_group = _collectives_by_group(self._waits)
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
            members_of = {members.name: members for members in own.values()}
            row = Dump(name=f"watchdog of rank {rank}", rank=rank, groups=members_of)
            for name, members in own.items():
                mine = by_rank.get((name, rank), [])
                enqueued, completed = last.get((name, rank), (-1, -1))
                calls = row.calls.setdefault(members.name, [])
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

        left = dict(by_group)
        taken: set[tuple[int | None, ...]] = set()
        while left:  # those first of which the waits leave one communicator: it is no other group's
            fits = {name: communicator_of(self.facts, name, some, taken) for name, some in left.items()}
            for name, comm in ({name: comm for name, comm in fits.items() if comm} or fits).items():
                del left[name]
                taken.add(tuple(comm.ranks) if comm else ())
                guid, _, desc = name.partition("(")
                known = comm.ranks if comm and None not in comm.ranks else ()
                ranks = tuple(rank for rank in known if rank is not None)
                if not ranks and (guid == "0" or "default" in desc):
                    ranks = tuple(range(self.facts.job.world_size or max(self.actors.prefix_ranks, default=0) + 1))
                yield name, Group(guid, desc.rstrip(")"), ranks)

    # Counts of RAS

    def _compare_counts(self, *, is_told: bool) -> Iterator[Incident]:
        ranks = self.actors.ranks_by_pid
        for answer in contents_of(self.facts.job.artifacts, "ras")[-1:]:
            lost = {rank for entry in answer.lost if (rank := ranks.get(entry.pid or -1)) is not None}
            if lost and not self.facts.is_over():
                line = Evidence(answer.name, next(entry.line for entry in answer.lost), "no answer")
                text = f"RAS has no answer from {ranks_word(lost)}: stopped, dead or left"
                yield blame("no-answer", lost, text, line, layer=Layer.LOSS)
            if is_told or not answer.mismatches:
                continue
            late = {rank for member in answer.last_to_come() if (rank := ranks.get(member.pid or -1)) is not None}
            if late:
                first = answer.mismatches[0]
                line = Evidence(answer.name, answer.lines.get(first.comm_id, 1), f"{first.operation} counts differ")
                text = f"{ranks_word(late)} launched fewer operations than the others: never called, late or elsewhere"
                yield blame("out-of-step", late, text, line)

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
        if len(late) > len(wait.waiting) or not is_numbered:
            return  # they may rather wait elsewhere for those
        who = words.who_waits(wait.waiting)
        if (
            late and wait.missing and late.isdisjoint(self.actors.known_ranks)
        ):  # not launched, or its output is not here
            them = "it" if len(late) == 1 else "them"
            text = f"{who} for {ranks_word(late)} in the {wait.stage}: the log has no NCCL line of {them}"
        elif late:
            what = "never began" if wait.missing else "fell silent in"
            text = f"{ranks_word(late)} {what} the {wait.stage} in which {who}"
        else:
            text = f"ranks wait for each other in the {wait.stage}"
        yield blame("never-began", late, text, wait.since)

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
            idle |= self._absent(comm)
            most = max(most, in_time, key=len)
        idle = {actor for actor in idle - stands if isinstance(actor, Process) or actor in self.actors.known_ranks}
        if not idle:
            return  # of ranks without a line the output may be missing
        line = Evidence(most[0].source, most[0].line, "Init START", most[0].order)
        asked = self.facts.notices("torch/unique-id-failed")  # of rank 0 of a group, which did not come in time
        waits_for_id = [notice for notice in asked if "timeout" in str(value(notice, "error")).lower()]
        gave_up = {self.actors.rank_in_line(notice.message) for notice in waits_for_id}
        first = {self.actors.actor_by_process(begin.process) for begin in most if begin.member == 0}
        is_of_world = all("/default_pg/" in notice.message for notice in waits_for_id)
        if None in gave_up:
            return  # nobody knows whose words these are: it may be the idle ones that waited
        if first and idle == gave_up and is_of_world and len(most) + len(idle) == self.actors.world:
            others, them = name_of(idle), "it" if len(idle) == 1 else "them"
            if len(idle) < len(most):  # rank 0 came in time for most
                text = (
                    f"{name_of(idle | first)} missed each other: {others} gave up waiting for {name_of(first)} to "
                    f"build a communicator, while "
                    f"{count(len(most), 'rank')} built one without {them}: {others} left out a call that the others "
                    f"make first, or {name_of(first)} came late"
                )
                yield blame("never-began", idle | first, text, line)
                return
            text = f"{name_of(first)} began to build a communicator after {others} had given up waiting for it"
            yield blame("never-began", first, text, line)
            return
        idle -= gave_up
        if not idle:
            return  # they wait for the id of another group
        waiting = f"{count(len(most), 'other')} {conjugate(len(most), 'wait')}"
        text = f"{name_of(idle)} never began to build a communicator in which {waiting}"
        yield blame("never-began", idle, text, line)

    def _absent(self, comm: CommunicatorInfo) -> set[Actor]:
        """Return the members that did not begin in time, as far as their ranks are known."""
        late = (begin for begin in comm.begins if not self._precedes_end(begin.source, begin.order))
        found: set[Actor] = {self.actors.actor_by_process(begin.process) for begin in late}
        missing = set(range(comm.nranks)) - {begin.member for begin in comm.begins}
        if comm.nranks == self.actors.world:
            return found | missing
        # Members of a part of the world are nearly always in the order of its ranks: a gap of one rank names it.
        here = {self.actors.actor_by_process(begin.process): begin.member for begin in comm.begins}
        free = [actor for actor in self.actors.everyone if isinstance(actor, int) and actor not in here]
        for member in missing if ranks_among(here) else ():
            low = max((rank for rank, at in here.items() if isinstance(rank, int) and at < member), default=-1)
            high = min((rank for rank, at in here.items() if isinstance(rank, int) and at > member), default=1 << 30)
            fits = [rank for rank in free if low < rank < high]
            found.update(fits if len(fits) == 1 else ())
        return found


class _Call(Frozen):
    """A call in which ranks wait."""

    wait: Wait
    waiting: frozenset[int]
    absent: frozenset[int]
    """Ranks of the group that do not wait in it; empty where the group is not known."""
    is_known: bool
    """Whether its group is."""

    @property
    def description(self) -> str:
        what = f"{self.wait.operation} (work {self.wait.seq} of {self.wait.group})"
        return f"{words.who_waits(self.waiting)} for {ranks_word(self.absent)} in {what}"


def _ring(calls: Sequence[_Call], without: int | None) -> list[int]:
    """Return ranks that wait for each other in a ring, leaving one rank out of account."""
    graph: dict[object, set[object]] = {}
    for number, call in enumerate(calls):
        graph[f"call {number}"] = set(call.absent - {without})
        for rank in call.waiting - {without}:
            graph.setdefault(rank, set()).add(f"call {number}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return sorted({entry for entry in error.args[1] if isinstance(entry, int)})
    return []


def _collectives_by_group(waiting: Iterable[Wait]) -> dict[str, list[Wait]]:
    """Return the collectives in which ranks wait, by process group."""
    own = (wait for wait in waiting if wait.rank is not None and wait.operation not in PAIRWISE)
    return group_values((wait.group, wait) for wait in own if wait.group is not None)


_KINDS = {
    artifacts.DIFFERENT: "calls-differ",
    artifacts.CYCLE: "groups-out-of-order",
    artifacts.NO_PARTNER: "no-partner",
    artifacts.MISSING: "never-called",
    artifacts.PARTLY: "call-unfinished",
    artifacts.UNFINISHED: "call-unfinished",
}


def _call(group: str, wait: Wait | None, seq: int) -> Call:
    """Return the row of a rank in a call, as its watchdog reports it."""
    from nccl_inspect.artifacts.flight_recorder import Call

    operation = _OPERATIONS.get(wait.operation, wait.operation.lower()) if wait else ""
    sizes = (wait.numel,) if wait and wait.numel is not None else ()
    return Call(group, wait.notice.place if wait else 0, seq, operation, "started", False, sizes, (), (), 0, "")
