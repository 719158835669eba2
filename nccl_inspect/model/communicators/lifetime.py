"""When the ranks of a communicator reached each stage of its life, as far as lines have a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Event, Process
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.fold.process_log import Note, ProcessLog, Step
from nccl_inspect.model.inventory import InitTiming, Stage
from nccl_inspect.model.statements.index import Quotes
from nccl_inspect.util.times import are_in_order, moment

_BOOTSTRAP = "nccl/bootstrap-timings"
_PLACE = attrgetter("place")
PHASES = ("bootstrap", "topo", "graphs", "connections", "kernels", "alloc", "allgathers", "rest")
"""Of an initialisation, as :class:`~nccl_inspect.event.types.InitTimings` names them."""


class Lifetimes:
    """The stages of communicators."""

    def __init__(self, timings: Mapping[Process, list[Note]]) -> None:
        self._lines = timings
        self._timings: dict[Process, _Timings] = {}

    def stages(self, comm: Communicator) -> list[Stage]:
        """Return the stages that some rank reached, in their order."""
        members = list(comm.members.values())
        took = [timing.event for member in members for timing in self._find(member)]
        stages = [
            _stage("started", [member.started for member in members]),
            _stage(
                "bootstrapped", [], [float(event.value("total")) for event in took if isinstance(event, events.Notice)]
            ),
            _stage(
                "complete",
                [member.completed for member in members],
                [event.total for event in took if isinstance(event, events.InitTimings)],
            ),
            _stage("connected", [max(member.connected, key=_PLACE, default=None) for member in members]),
        ]
        ended: dict[str, list[Step]] = {}
        for member in members:
            if member.ended and isinstance(member.ended.event, events.CommEnd):
                name = "destroyed" if member.ended.event.how == "Destroy" else "aborted"
                ended.setdefault(name, []).append(member.ended)
        stages += [_stage(name, steps) for name, steps in ended.items()]
        return [stage for stage in stages if stage.ranks]

    def timings(self, comm: Communicator, quotes: Quotes) -> list[InitTiming]:
        """Return what each rank says of the time that its initialisation took, and of its parts."""
        return [
            InitTiming(
                member.rank,
                member.log.process,
                timing.event.total,
                {name: seconds for name in PHASES if (seconds := getattr(timing.event, name)) is not None},
            ).defer(evidence=partial(quotes.note, timing))
            for member in comm.members.values()
            for timing in self._find(member)
            if isinstance(timing.event, events.InitTimings)
        ]

    def _find(self, member: Member) -> Iterator[Note]:
        log = member.log
        if log.process not in self._timings:
            self._timings[log.process] = _Timings(log, self._lines.get(log.process, []))
        return self._timings[log.process].find_timings(member)


class _Timings:
    """Holds what a process says of the time that its initialisations took."""

    def __init__(self, log: ProcessLog, timings: list[Note]) -> None:
        self._timings = timings
        self._places = list(map(_PLACE, timings))
        steps = [step for step in log.steps if isinstance(step, Step)] if timings else []
        self._completed = sorted(
            [at for at, _, event in steps if isinstance(event, events.CommInit) and event.phase == "COMPLETE"]
        )

    def find_timings(self, member: Member) -> Iterator[Note]:
        """Yield the lines from COMPLETE to that of another communicator, or for its bootstrap before COMPLETE."""
        done = member.completed
        if done is None or not self._timings:
            return
        begin = bisect_right(self._places, member.started.place if member.started else done.place)
        after = bisect_right(self._completed, done.place)
        end = bisect_right(self._places, self._completed[after]) if after < len(self._completed) else None
        for timing in self._timings[begin:end]:
            event = timing.event
            if timing.printed.tid != done.printed.tid:
                continue
            if not isinstance(event, events.InitTimings):
                if timing.place < done.place:
                    yield timing
            elif timing.place > done.place and (event.rank, event.nranks) == (member.rank, member.init.nranks):
                yield timing


def is_timing(event: Event | None) -> bool:
    """Return whether a statement only says how long something took."""
    return event is not None and (isinstance(event, events.InitTimings) or event.qualified_name == _BOOTSTRAP)


def _stage(name: str, steps: Iterable[Step | None], took: Sequence[float] = ()) -> Stage:
    reached = [step for step in steps if step is not None]
    stage = Stage(name, len(reached) or len(took), seconds=max(took, default=None))
    times = [(time, step.printed.time) for step in reached if (time := moment(step.printed.time))]
    if len(times) == len(reached) and times and are_in_order(*(time for time, _ in times)):
        stage.first, stage.last = min(times)[1], max(times)[1]
    return stage
