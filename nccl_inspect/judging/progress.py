"""The progress table: how far each rank came in each group and communicator, from every source alike.

Rows are the calls of ranks: from dumps of the flight recorder, and from the lines of PyTorch's watchdog. One comparison
finds who differs, who never called and who waits for whom (:mod:`nccl_inspect.artifacts.standstill`); counts of RAS and
the stages of communicators have no calls, and say who is behind. What a rank says after somebody ended the job is no
progress: it only came that far because others were taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING

from nccl_inspect.artifacts import CYCLE, DIFFERENT, MISSING, NO_PARTNER, PARTLY, UNFINISHED
from nccl_inspect.event.base import Process
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import at_end, watchdog
from nccl_inspect.judging.actors import Actor, actors_of, name_of, ranks_among
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.ends import first_signal
from nccl_inspect.judging.evidence import ras
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.pages import LACKING, fill_in
from nccl_inspect.judging.remedies import look_up
from nccl_inspect.judging.silence import sources_in_blocks
from nccl_inspect.judging.statements import value
from nccl_inspect.judging.watchdog import PAIRWISE, Status, Wait, latecomers, statuses, waits
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Begin
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.times import line_seconds
from nccl_inspect.util.wording import ranks_word

if TYPE_CHECKING:  # most logs have no calls
    from nccl_inspect.artifacts.flight_recorder import Call, Dump, Group
    from nccl_inspect.artifacts.standstill import Standstill

_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    **dict.fromkeys(("COALESCED", "UNKNOWN"), ""),  # of calls that may differ between ranks
}
"""The recorder's names of operations that the watchdog names otherwise than by small letters."""
_KINDS = {
    DIFFERENT: "calls-differ",
    CYCLE: "groups-out-of-order",
    NO_PARTNER: "no-partner",
    MISSING: "never-called",
    PARTLY: "call-unfinished",
    UNFINISHED: "call-unfinished",
}
_ALL_CAME = 1 << 62
"""The order of a call that all ranks of its group made, as far as the log has their output: behind all places.

One that lacks ranks comes before it.
"""
_REPORTING = 2.0
"""Seconds within which the watchdogs of all ranks report a time-out."""
_HEARING = 15.0
"""Seconds within which they hear from each other through PyTorch's store."""
_FEW = 4
"""Ranks of a group that are named where any of them may have begun it."""


class Lag(Frozen):
    """Actors for which others wait, by the progress of all."""

    kind: str
    who: frozenset[Actor]
    words: str
    line: Evidence | None
    confidence: str = "likely"
    layer: Layer = Layer.PROGRAM
    teller: str = ""
    """The rule that tells it, where another one tells the others of its kind."""


def _blame(
    kind: str,
    who: Iterable[Actor],
    sentence: str,
    line: Evidence | None,
    named: Mapping[str, object] = {},
    confidence: str = "likely",
    layer: Layer = Layer.PROGRAM,
) -> Lag:
    """Return those for which others wait, in a sentence of ``steps.txt`` with these values."""
    ranks = {rank for rank in who if isinstance(rank, int)}
    known = {"who": ranks, "one": len(ranks) == 1, "disorder": look_up("@DISORDER"), **named}
    text = fill_in(look_up(f"@{sentence}"), Hit(named=known)).replace(LACKING, "")
    return Lag(kind, frozenset(who), text, line, confidence, layer)


@once
def table_of(facts: Facts) -> Table:
    """Return the progress table of a job."""
    return Table(facts)


class Table:
    """The table compares how far each rank came."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.actors = facts, actors_of(facts)
        self._end = first_signal(facts)
        self._blocks = sources_in_blocks(facts)
        in_time = [wait for wait in waits(facts) if self._is_in_time(wait.notice.evidence[0])]
        self._late = latecomers(in_time)
        self._waits = [wait for wait in in_time if wait not in self._late]
        self._dumps = {dump.rank: dump for dump in watchdog.dumps_of(facts) if dump.rank is not None}

    def find_lags(self) -> Iterator[Lag]:
        """Yield who holds the others up: by calls, by counts of RAS, and by stages."""
        by_calls = list(self._judge_calls())
        yield from by_calls
        yield from self._judge_counts(is_told=bool(by_calls))
        if not by_calls:
            yield from self._judge_stages()

    def _is_in_time(self, line: Evidence) -> bool:
        """Return whether a line was printed before somebody ended the job."""
        ended = line_seconds(self._end.text) if self._end else None
        if ended is not None and (when := line_seconds(line.text)) is not None:
            return when < ended + 1
        return self._precedes_end(line.source, line.order)

    def _precedes_end(self, source: str, order: int) -> bool:
        """Return whether a place comes before the line that ends the job; lines of hosts in blocks have no order."""
        end = self._end
        return end is None or source != end.source or source in self._blocks or order < end.order

    # Rows: the calls of each rank, in its dump, else as the watchdog's lines show them

    @cached_property
    def _rows(self) -> dict[int, Dump]:
        return self._dumps | self._read_lines()

    def _read_lines(self) -> dict[int, Dump]:
        """Return rows made of the watchdog's lines, for ranks without a dump."""
        if not self._waits:
            return {}
        from nccl_inspect.artifacts.flight_recorder import Dump

        by_group = self._collectives
        reports: dict[tuple[str, int], Status] = {}  # the first of each rank
        came_late = {(wait.group, wait.rank) for wait in self._late}
        for one in statuses(self.facts):
            if one.group is None or one.rank is None or one.enqueued is None or (one.group, one.rank) in came_late:
                continue
            if self._is_in_time(one.notice.evidence[0]) and not self._follows_wait(one):
                reports.setdefault((one.group, one.rank), one)
        rows: dict[int, Dump] = {}
        shown = group_sets([*reports, *((name, wait.rank) for name, some in by_group.items() for wait in some)])
        for name, group in self._groups(shown):
            members = set(group.ranks) or {rank for rank in shown[name] if rank is not None}
            waiting = by_group.get(name, [])
            if not group.ranks and len({(wait.seq, wait.operation, wait.numel) for wait in waiting}) < 2:
                continue  # nobody knows for whom they wait
            numbers: dict[int | None, list[tuple[int, Wait | None]]] = {}
            for wait in waiting:
                numbers.setdefault(wait.rank, []).append((wait.seq, wait))
            latest = max((wait.seq for wait in waiting), default=-1)
            said = {rank: reports[name, rank] for rank in members if (name, rank) in reports}
            for rank, one in said.items():  # it is in a call; where others wait in a later one it came further
                if rank not in numbers and (one.enqueued or 0) > one.completed >= max(0, latest - 1):
                    numbers[rank] = [(one.completed + 1, None)]
            came = group_sets((seq, rank) for rank, some in numbers.items() for seq, _ in some)
            orders = {wait.seq: self._order_of(wait) for wait in reversed(waiting)}
            seen = self.actors.printing.intersection(members)
            orders |= {seq: _ALL_CAME for seq, ranks in came.items() if ranks.issuperset(seen)}
            for rank in sorted(seen - self._dumps.keys()):
                row = rows.setdefault(rank, Dump(rank=rank))
                own, status = numbers.get(rank, []), said.get(rank)
                over = min([seq for seq, _ in own] or [status.completed + 1 if status else -1])
                calls = [_call(group.name, seq, orders.get(seq, 0), wait) for seq, wait in own]
                if came and min(came) < over:  # the first one in which somebody waits is the one that is compared
                    calls.append(_call(group.name, min(came), state="completed"))
                row.groups[group.name] = group
                row.calls[group.name] = calls
                enqueued = -1 if status is None or status.enqueued is None else status.enqueued
                row.enqueued[group.name] = max([enqueued, *(seq for seq, wait in own if wait)])
        return rows

    def _order_of(self, wait: Wait) -> int:
        """Return the place of a time-out among all, by its time if all have one: lines of files have no order."""
        when = line_seconds(wait.notice.evidence[0].text)
        return wait.notice.place if when is None or not self._are_timed else int(when * 1e6)

    @cached_property
    def _are_timed(self) -> bool:
        return all(line_seconds(wait.notice.evidence[0].text) is not None for wait in self._waits)

    def _follows_wait(self, status: Status) -> bool:
        """Return whether a rank reports a call long after it timed out in another: it failed as others were ended."""
        when = line_seconds(status.notice.evidence[0].text)
        first = self._first_waits.get(status.rank) if status.rank is not None and status.is_in_call else None
        return when is not None and first is not None and when > first + _HEARING

    @cached_property
    def _first_waits(self) -> dict[int, float]:
        """Return when each rank timed out first, in seconds."""
        times = ((wait.rank, line_seconds(wait.notice.evidence[0].text)) for wait in self._waits)
        known = sorted((when, rank) for rank, when in times if rank is not None and when is not None)
        return {rank: when for when, rank in reversed(known)}

    @cached_property
    def _collectives(self) -> dict[str, list[Wait]]:
        """Return the collectives in which ranks wait, by process group; if none has a name and all are one, by none."""
        own = [wait for wait in self._waits if wait.rank is not None and wait.operation not in PAIRWISE]
        numbers = {wait.seq if wait.group is None else -1 for wait in own}
        if len(numbers) == 1 and min(numbers) >= 0:
            return {"": own}
        return group_values((wait.group, wait) for wait in own if wait.group is not None)

    def _groups(self, names: Iterable[str]) -> Iterator[tuple[str, Group]]:
        """Yield the process groups of these names, with their ranks where the log shows these."""
        from nccl_inspect.artifacts.flight_recorder import Group

        left = {name: self._collectives.get(name, []) for name in names if name}
        if len(left) < len(self._collectives.keys() | set(names)):
            yield "", Group("", "", ())
        taken: set[tuple[int | None, ...]] = set()
        while left:  # those first of which the waits leave one communicator: it is no other group's
            fits = {name: watchdog.communicator_of(self.facts, name, some, taken) for name, some in left.items()}
            for name, comm in ({name: comm for name, comm in fits.items() if comm} or fits).items():
                del left[name]
                taken.add(tuple(comm.ranks) if comm else ())
                guid, _, desc = name.partition("(")
                known = comm.ranks if comm and None not in comm.ranks else ()
                ranks = tuple(rank for rank in known if rank is not None)
                if not ranks and (guid == "0" or "default" in desc):
                    ranks = tuple(range(self.facts.job.world_size or max(self.actors.prefix_ranks, default=0) + 1))
                yield name, Group(guid, desc.rstrip(")"), ranks)

    @cached_property
    def _stills(self) -> list[Standstill]:
        """Return what the job stands still in, by all rows; nothing where the dumps alone show it."""
        is_settled = any(still.culprits for still in watchdog.all_standstills(self.facts)) or watchdog.is_running(
            self.facts
        )
        if is_settled or not (self._dumps or self._waits) or len(self._rows) < 2:
            return []
        from nccl_inspect.artifacts import standstill  # most jobs do not stand still

        return standstill.find_standstills(self._rows.values(), self._busy)

    @cached_property
    def _busy(self) -> set[int]:
        """Return the ranks that wait for others outside of all calls in rows."""
        busy = {*watchdog.being_made(self.facts), *at_end.connecting(self.facts)}
        return busy | (self._standing - self._dumps.keys()) if self._dumps else busy

    @property
    def different(self) -> list[Standstill]:
        """Return the calls that ranks made in different ways, by the watchdog's lines alone."""
        stills = [still for still in self._stills if still.kind == DIFFERENT]
        return [] if self._dumps else [still for still in stills if still.group.name or still.waiting]

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

    # Who holds the others up, by the comparison of all rows

    def _judge_calls(self) -> Iterator[Lag]:
        if self._dumps:  # the lines tell of ranks without a dump only that they came, or did not
            recorded = watchdog.all_standstills(self.facts)
            unknown = {rank for still in recorded for rank in still.unknown}
            absent = [still for still in self._stills if still.kind == MISSING and still.culprits]
            absent = [still for still in absent if watchdog.ranks_of(still.culprits) <= unknown]
            yield from map(self._judge_dumps, absent or recorded)
        elif self._waits and not watchdog.begins_late(self.facts):
            for lag in self._judge_lines(self._stills) or self._compare_members():
                yield lag if lag.kind == "calls-differ" else lag.with_fields(teller="watchdog-timeout")

    def _judge_dumps(self, still: Standstill) -> Lag:
        culprits = watchdog.ranks_of(still.culprits) or set(still.unknown)
        if still.kind in (UNFINISHED, PARTLY):
            return self._tell(still, culprits, layer=Layer.WAIT)
        confidence = "certain" if still.culprits or still.odd else "likely"
        return self._tell(still, set(still.odd) or culprits, confidence=confidence)

    def _judge_lines(self, stills: Sequence[Standstill]) -> list[Lag]:
        """Return who holds the others up by the watchdog's lines, the surest that is known."""
        one_sided = [still for still in stills if still.kind not in (UNFINISHED, PARTLY, CYCLE)]
        if found := [lag for still in one_sided if (lag := self._find_culprits(still, self._unseen))]:
            return found
        if lag := self._find_cut_off() or self._find_stated() or self._judge_two_sided(stills):
            return [lag]
        # Ranks whose output is missing are where to look only if nobody else is.
        unseen = self._unseen - watchdog.without_output(self.facts)
        return [lag for still in one_sided if (lag := self._find_culprits(still, unseen))]

    def _compare_members(self) -> list[Lag]:
        """Return calls that differ where the lines name members of a group only, and no rank of the job."""
        from nccl_inspect.artifacts import standstill
        from nccl_inspect.artifacts.flight_recorder import Dump, Group

        unnamed = [one for one in self._waits if one.rank is None and one.operation not in PAIRWISE]
        rows: dict[tuple[str, int], Dump] = {}
        for wait in unnamed:
            if wait.group is not None and wait.member is not None:
                guid, _, desc = wait.group.partition("(")
                row = rows.setdefault((wait.group, wait.member), Dump(rank=wait.member))
                row.groups[guid] = Group(guid, desc.rstrip(")"), ())
                row.calls.setdefault(guid, []).append(_call(guid, wait.seq, wait=wait))
        by_group = group_values((group, row) for (group, _), row in rows.items())
        stills = (still for own in by_group.values() for still in standstill.find_standstills(own))
        return [self._tell(still, (), "DIFFER_IN_GROUP") for still in stills if still.kind == DIFFERENT][:1]

    def _find_culprits(self, still: Standstill, unseen: set[int]) -> Lag | None:
        """Return who did not come to a call, or made another one; the lines of all but these ranks are there."""
        known, unknown, most = watchdog.ranks_of(still.culprits), set(still.unknown), len(still.waiting)
        if still.kind != DIFFERENT:  # nobody holds up others who waits for some
            came = watchdog.ranks_of(still.waiting)
            # Who waits in a call has made its connections: a rank that still connects to it is in another call.
            elsewhere = {rank for rank, peer in at_end.connecting(self.facts).items() if peer in came and len(came) > 1}
            waiting = self._standing | (self._busy - elsewhere) | self._find_late_reporters(still)
            known, unknown, most = known - waiting, unknown - waiting, max(most, len(waiting))
        culprits = known or unknown
        if unseen or not 0 < len(culprits) <= max(1, most):
            return None  # of whom the log has no output it does not show what they called
        return self._tell(still, culprits)

    def _judge_two_sided(self, stills: Iterable[Standstill]) -> Lag | None:
        """Return a call that some finished, or for which ranks wait that wait elsewhere, or for each other."""
        if not any(self._collectives):
            return self._judge_pair()
        for still in stills:
            named, came = watchdog.ranks_of(still.culprits), watchdog.ranks_of(still.waiting)
            if still.kind == CYCLE:
                return self._tell_start(still, named, "IN_RING", {"links": watchdog.links_of(still)})
            if still.over and (lag := self._judge_partly(still)):
                return lag
            if not (named and still.group.ranks) or self._unseen or self._find_late_reporters(still):
                continue
            # They say how far they came, and report no wait of their own.
            idle = {one.rank for one in statuses(self.facts) if one.enqueued is not None} - self._standing
            idle -= {wait.rank for wait in waits(self.facts)}
            if still.kind == MISSING and named <= idle and came and len(named) >= 2 * len(came):
                return self._tell_start(still, (), "FEW_CALLED", {"came": came, "never": named})
            if len(named) > max(1, len(came)):
                continue
            elsewhere = sorted({wait.group for wait in self._waits if wait.rank in named and wait.group})
            if still.kind == MISSING and elsewhere:
                return self._tell_start(
                    still, (), "WAIT_ELSEWHERE", {"late": named, "one": len(named) == 1, "groups": elsewhere}
                )
            named |= set(still.group.ranks if len(still.group.ranks) <= _FEW else ())
            if len(named) > 1:
                return self._tell_start(still, named, "WAIT_FOR_EACH_OTHER")
        return None

    def _judge_partly(self, still: Standstill) -> Lag | None:
        """Return who finished a call in which others still wait: it came late, or made another one.

        Who did neither, and did not time out, may hold up all of these.
        """
        stuck, done = set(still.pending), set(still.over)
        if not done & self._standing and 2 * len(done) <= len(stuck):
            return self._tell(still, done, "CAME_AFTERWARDS", kind="never-called")
        ahead = {rank: call.seq for rank, call in still.over.items() if call and rank in self._standing}
        if not ahead:
            return None
        if still.is_symmetric and min(ahead.values()) > still.seq + 1 and len(done) < len(stuck):
            # Nobody is two calls ahead of others that have yet to give their part.
            return self._tell(still, done, "AHEAD", {"stuck": stuck}, kind="calls-differ")
        if absent := self.actors.printing.intersection(still.group.ranks) - stuck - done - self._standing:
            if not self._are_hosts(absent) or len(absent) > len(stuck | done):
                return None  # some may only report later
            return self._tell(still, absent, "NO_TIME_OUT", kind="never-called")
        group = still.group.name + (f"({still.group.desc})" if still.group.desc else "")
        named = {"done": done, "stuck": stuck, "number": str(still.seq), "process_group": group}
        # Who alone finished a sum gave it less than the others; of many on both sides nobody stands out.
        is_sum = {call.operation for call in still.pending.values()} == {"all_reduce"}
        is_whole = len(stuck | done) == len(still.group.ranks)
        who = done if is_sum and is_whole and len(done) == 1 and len(stuck) > 2 else stuck | done
        is_of_all = len(who) == len(still.group.ranks or who) > 2
        return self._tell_start(still, () if is_of_all else who, "FINISHED_BY_SOME", named)

    def _judge_pair(self) -> Lag | None:
        """Return who holds up those that wait to send or receive.

        It is the only partner of theirs that does not wait, else the members that did not time out, of the pair or the
        only communicator in which others wait.
        """
        line = self._waits[0].notice.evidence[0]
        waiting = {wait.rank for wait in self._waits if wait.rank is not None}
        pairs = [begins for comm in self.facts.job.communicators if comm.nranks == len(begins := comm.begins) == 2]
        by_pair = [{self.actors.actor_by_process(begin.process) for begin in begins} for begins in pairs]
        partners = {actor for pair in by_pair if pair & waiting for actor in pair if isinstance(actor, int)} - waiting
        first = {one.rank: one for one in reversed(statuses(self.facts))}  # later ones tell of what came after the wait
        partners -= {rank for rank, one in first.items() if (one.enqueued or 0) > one.completed}
        if len(partners) == 1 and len(waiting) > 1:
            return _blame("never-called", partners, "PARTNER", line)
        comm = watchdog.communicator_of_wait(self.facts, self._waits) if waiting else None
        absent = comm.known_ranks - waiting - watchdog.waiting_ranks(self.facts) if comm else set[int]()
        group = self._waits[0].group
        absent -= {one.rank for one in statuses(self.facts) if one.group == group and one.enqueued is not None}
        if not absent or len(absent) > len(waiting):
            return None
        return _blame("never-called", absent, "NO_TIME_OUT", line)

    def _find_stated(self) -> Lag | None:
        """Return the ranks that lag by PyTorch's own report of how far all came."""
        reports = self.facts.notices("torch/desync-lagging", "torch/desync-not-joined")
        parts = (part.strip() for report in reports for part in str(value(report, "members")).split(","))
        lagging = {int(part) for part in parts if part.isdigit()}
        line = self._waits[0].notice.evidence[0]
        return _blame("never-called", lagging, "DESYNC", line) if lagging else None

    def _find_cut_off(self) -> Lag | None:
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
        line = next(iter(silent.values()))
        return _blame("cut-off", named, "CUT_OFF", line, {"hosts": hosts, "store": is_store_alone}, layer=Layer.SYSTEM)

    @cached_property
    def _last_time(self) -> float:
        """Return when the last statement was printed, in seconds."""
        shown = (line_seconds(notice.evidence[-1].text) for notice in self.facts.job.notices if notice.evidence)
        return max((when for when in shown if when is not None), default=0.0)

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
        """Return the ranks of a group that may only not have reported yet.

        A rank that alone is missing, or all ranks of a host that are, are the suspects.
        """
        ranks = self._late_reporters.intersection(still.group.ranks)
        others = set(still.group.ranks) - self._standing - ranks
        is_one = len(ranks) == 1 or (len(set(self.actors.hosts_of(ranks))) == 1 and self._are_hosts(ranks))
        return set() if is_one and not others else ranks

    def _are_hosts(self, ranks: AbstractSet[int]) -> bool:
        """Return whether these are all ranks of their hosts."""
        hosts = set(self.actors.hosts_of(ranks))
        return ranks == {rank for host in self.facts.job.hosts if host.name in hosts for rank in host.ranks}

    def lines_of(self, still: Standstill) -> list[Evidence]:
        """Return the lines of dumps, else of the log, that show a standstill, one for each call."""
        parts = [part for part in (*still.culprits, *still.waiting) if part.dump]
        waiting = [wait for wait in waits(self.facts) if wait.seq == still.seq]
        own = [wait for wait in waiting if (wait.group or "").partition("(")[0] == still.group.name] or waiting
        first = group_values(((wait.operation, wait.numel), wait.notice.evidence[0]) for wait in own)
        return list(watchdog.lines(parts, 1)) or [lines[0] for lines in first.values()]

    def _tell(
        self,
        still: Standstill,
        who: Iterable[int],
        sentence: str = "",
        named: Mapping[str, object] = {},
        kind: str = "",
        confidence: str = "likely",
        layer: Layer = Layer.PROGRAM,
    ) -> Lag:
        """Return a standstill with those that hold the others up, in a sentence, or in that for its kind."""
        kind, ranks = kind or _KINDS[still.kind], {*who}
        is_late = kind == "never-called" and ranks <= {wait.rank for wait in latecomers(waits(self.facts))}
        is_unheard = kind == "never-called" and not ranks.isdisjoint(self._late_reporters)
        usual = "CAME_LATE" if is_late else "NO_TIME_OUT" if is_unheard else kind.upper().replace("-", "_")
        sentence = sentence or usual
        calls = [part.call for part in still.waiting if part.call and part.call.operation]
        known = {
            "call": watchdog.work(next(iter(calls), None), still.group, still.seq),
            "place": watchdog.work(None, still.group, still.seq),
            "made": watchdog.by_call([*still.culprits, *still.waiting]),
            "operation": still.operation if still.kind == NO_PARTNER else "",
            "group": still.group.label,
            "likely": not still.culprits,
            "output": ranks <= self._unseen,
            **named,
        }
        line = next(iter(self.lines_of(still)), None)
        return _blame(kind, ranks, sentence, line, known, confidence, layer)

    def _tell_start(
        self, still: Standstill, who: Iterable[int], sentence: str, named: Mapping[str, object] = {}
    ) -> Lag:
        """Return that it began in a call, where nothing shows which of its ranks is at fault."""
        return self._tell(still, who, sentence, named, kind="call-unfinished", layer=Layer.WAIT)

    # Counts of RAS

    def _judge_counts(self, *, is_told: bool) -> Iterator[Lag]:
        found = [*ras.find_lost(self.facts).values()]
        if lost := ras.ranks_among(self.facts, (entry for _, entry in found)):
            line = Evidence(found[0][0], found[0][1].line, "no answer")
            yield _blame("no-answer", lost, "NO_ANSWER", line, layer=Layer.LOSS)
        for answer in ras.answers(self.facts)[-1:]:
            late = ras.ranks_among(self.facts, answer.last_to_come())
            if late and not is_told:
                first = answer.mismatches[0]
                line = Evidence(answer.name, answer.lines.get(first.comm_id, 1), f"{first.operation} counts differ")
                yield _blame("out-of-step", late, "OUT_OF_STEP", line)

    # Stages of communicators

    def _judge_stages(self) -> Iterator[Lag]:
        job = self.facts.job
        if at_end.node_failed(self.facts):
            return
        found = list(self._find_late_begins())
        yield from found
        wait = None if found else at_end.waiting_ranks(self.facts)
        if wait is None or not (at_end.is_stuck(self.facts) or self._end or job.ended_by):
            return  # it may only have been cut there
        late = set(wait.missing or wait.silent)
        comm = next(comm for comm in job.communicators if comm.id == wait.communicator)
        is_numbered = None not in comm.ranks or job.rank_space != "global"
        if len(late) > len(wait.waiting) or not is_numbered:
            return  # they may rather wait elsewhere for those
        is_unseen = bool(late and wait.missing) and late.isdisjoint(self.actors.known_ranks)
        named = {"waiting": {*wait.waiting}, "stage": wait.stage, "unseen": is_unseen, "missing": wait.missing}
        yield _blame("never-began", late, "NEVER_BEGAN", wait.since, named)

    def _find_late_begins(self) -> Iterator[Lag]:
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
        if gave_up:  # a launcher ended the others of its node for that
            told = self.facts.with_role("ends-worker")
            idle -= {self.actors.actor_by_pid(value(notice, "pid")) for notice in told} - gave_up
        if first and idle == gave_up and is_of_world and len(most) + len(idle) == self.actors.world:
            is_in_time = len(idle) < len(most)  # rank 0 came in time for most
            named: dict[str, object] = {"first": name_of(first), "others": name_of(idle), "both": name_of(idle | first)}
            named |= {"number": len(most), "most": is_in_time, "them": "it" if len(idle) == 1 else "them"}
            yield _blame("never-began", idle | first if is_in_time else first, "MISSED_ID", line, named)
        elif idle := idle - gave_up:  # else they wait for the id of another group
            yield _blame("never-began", idle, "BEGAN_NONE", line, {"names": name_of(idle), "number": len(most)})

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


def _call(group: str, seq: int, order: int = 0, wait: Wait | None = None, state: str = "started") -> Call:
    """Return the row of a rank in a call, as its watchdog reports it; without that the call has no operation."""
    from nccl_inspect.artifacts.flight_recorder import Call

    operation = _OPERATIONS.get(wait.operation, wait.operation.lower()) if wait else ""
    sizes = (wait.numel,) if wait and wait.numel is not None else ()
    return Call(group, order, seq, operation, state, False, sizes, (), (), 0, "")
