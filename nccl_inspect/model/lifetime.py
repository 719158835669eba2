"""When the ranks of a communicator reached each stage of its life, as far as lines tell the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect import event_types as events
from nccl_inspect.model.communicators import Communicator
from nccl_inspect.model.fold import Note, Step
from nccl_inspect.model.inventory import Stage
from nccl_inspect.model.members import Member
from nccl_inspect.times import in_order, moment

_BOOTSTRAP = "bootstrap-timings"


def stages(comm: Communicator) -> list[Stage]:
    """The stages that some rank reached, in their order."""
    members = list(comm.members.values())
    took = [_timings(member) for member in members]
    found = [
        _stage("started", [member.started for member in members]),
        _stage("bootstrapped", [], [seconds for note in took for seconds in _bootstrap(note)]),
        _stage(
            "complete", [member.completed for member in members], [seconds for note in took for seconds in _total(note)]
        ),
        _stage("connected", [_last(member.connected) for member in members]),
    ]
    ended: dict[str, list[Step]] = {}
    for member in members:
        if member.ended and isinstance(member.ended.event, events.CommEnd):
            name = "destroyed" if member.ended.event.how == "Destroy" else "aborted"
            ended.setdefault(name, []).append(member.ended)
    found += [_stage(name, steps) for name, steps in ended.items()]
    return [stage for stage in found if stage.ranks]


def is_timing(event: events.Event | None) -> bool:
    """Whether a statement only says how long something took."""
    return event is not None and (event.production == _BOOTSTRAP or isinstance(event, events.InitTimings))


def _last(steps: list[Step]) -> Step | None:
    return max(steps, key=lambda step: step.place, default=None)


def _stage(name: str, steps: Iterable[Step | None], seconds: Iterable[float] = ()) -> Stage:
    reached = [step for step in steps if step is not None]
    took = list(seconds)
    stage = Stage(name, len(reached) or len(took), seconds=max(took, default=None))
    times = [(time, step.origin.time) for step in reached if (time := moment(step.origin.time))]
    if len(times) == len(reached) and times and in_order(*(time for time, _ in times)):
        stage.first, stage.last = min(times)[1], max(times)[1]
    return stage


def _timings(member: Member) -> list[Note]:
    """What NCCL says of the time that this initialisation took: after COMPLETE, or of its bootstrap before it."""
    done = member.completed
    if done is None:
        return []
    return [
        note
        for note in member.log.notes.values()
        if note.event is not None
        and is_timing(note.event)
        and note.origin.tid == done.origin.tid
        and _is_of(member, done, note)
    ]


def _is_of(member: Member, done: Step, note: Note) -> bool:
    event = note.event
    if isinstance(event, events.InitTimings):
        same = (event.rank, event.nranks) == (member.rank, member.init.nranks)
        return same and note.place > done.place and not _completed_between(member, done.place, note.place)
    of_bootstrap = event is not None and event.production == _BOOTSTRAP
    return of_bootstrap and member.started is not None and member.started.place < note.place < done.place


def _completed_between(member: Member, begin: int, end: int) -> bool:
    """Whether the process finished another communicator between two places."""
    steps = (step for step in member.log.steps if isinstance(step, Step) and begin < step.place < end)
    return any(isinstance(step.event, events.CommInit) and step.event.phase == "COMPLETE" for step in steps)


def _total(notes: list[Note]) -> Iterator[float]:
    for note in notes:
        if isinstance(note.event, events.InitTimings):
            yield note.event.total


def _bootstrap(notes: list[Note]) -> Iterator[float]:
    for note in notes:
        if isinstance(note.event, events.Notice):
            yield float(note.event.value("total"))
