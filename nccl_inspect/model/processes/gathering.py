"""Who printed what in a log: processes, their lives one after the other, and the communicators that they form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import CommInit
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators import communicator, members
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.fold.fold import Burst, Fold, ProcessLog, Step
from nccl_inspect.model.processes import duplicates, identity
from nccl_inspect.model.processes.damage import Damage

_BELIEVED, _PER_STEP = 1 << 18, 128
"""Ranks that communicators may claim though no line names them: in all, and more for each line that orders them.

The log of one rank of the largest runs claims that many, in some communicators of the world; more is damage.
"""
_MOST = 1 << 16
"""Communicators with an id of their own that are judged: a hundred times those of the largest runs."""


class Gathered:
    """The processes of a log, or of one job in it.

    Args:
        everything: what each process said, and what nobody did.
        passed_on: lines may have lost the name of their host before they were passed on.
        repeated: lines that were left out because they had been collected before, by process.
    """

    def __init__(
        self,
        everything: list[ProcessLog],
        passed_on: bool,
        repeated: Mapping[Process, list[Step | Burst]],
    ) -> None:
        self.everything = everything
        self.passed_on = passed_on
        self.repeated = repeated
        self.logs = _printers(everything, passed_on)
        """Of the processes that printed."""
        self.lives = [identity.lives(log) for log in self.logs]
        """For each of these the processes that have its name, one after the other."""
        self.processes, self.communicators, self.refused = walked(self.living)

    @property
    def living(self) -> Iterator[ProcessLog]:
        """All of these processes."""
        return chain.from_iterable(self.lives)

    @classmethod
    def of(cls, fold: Fold) -> Gathered:
        """All processes of a fold."""
        once = [duplicates.without(log) for log in Damage(fold).leave_out(identity.apart(fold.processes.values()))]
        repeated = {log.process: left_out for log, left_out in once if left_out}
        return cls([log for log, _ in once], fold.restored > 0, repeated)


def walked(logs: Iterable[ProcessLog]) -> tuple[list[ProcessMembers], list[Communicator], list[int]]:
    """The members of each process, and the communicators that they form.

    Those that only claim to be large are left out; the last value is where these begin.
    """
    logs = list(logs)
    steps = sum(len(log.steps) for log in logs)
    beyond = _beyond(logs) if steps > _MOST else {}
    logs = [_without(log, beyond.get(log.process, ())) for log in logs] if beyond else logs
    processes = [members.of_process(log) for log in logs]
    communicators = communicator.join(processes)
    if refused := _refused(communicators, steps):
        processes = [members.of_process(_without(log, refused.get(log.process, ()))) for log in logs]
        communicators = communicator.join(processes)
    left_out = [place for some in (beyond, refused) for comms in some.values() for place in comms.values()]
    return processes, communicators, left_out


def _beyond(logs: Sequence[ProcessLog]) -> dict[Process, dict[str, int]]:
    """Return the pointers of communicators of which a log has too many: all but the first ones and the last."""
    begins = [
        (step.place, step.event.comm_id, log.process, step.event.comm)
        for log in logs
        for step in log.steps
        if isinstance(step.event, CommInit) and step.event.comm_id
    ]
    begins.sort()
    ids = list(dict.fromkeys([comm_id for _, comm_id, _, _ in begins]))
    beyond: dict[Process, dict[str, int]] = {}
    if len(ids) > _MOST:
        gone = set(ids[_MOST // 2 : -(_MOST // 2)])
        for place, comm_id, process, comm in begins:
            if comm_id in gone:
                beyond.setdefault(process, {}).setdefault(comm, place)
    return beyond


def _refused(communicators: Iterable[Communicator], steps: int) -> dict[Process, dict[str, int]]:
    """Return the pointers of communicators with more ranks that no line names than a log of that size is believed."""
    refused: dict[Process, dict[str, int]] = {}
    room = _BELIEVED + steps * _PER_STEP
    for comm in sorted(communicators, key=lambda comm: comm.nranks - len(comm.members)):
        room -= comm.nranks - len(comm.members)
        for member in comm.members.values() if room < 0 else ():
            refused.setdefault(member.log.process, {})[member.init.comm] = member.first.place
    return refused


def _without(log: ProcessLog, comms: Collection[str]) -> ProcessLog:
    """Return what a process printed but for what it says of some communicators."""
    return replace(log, steps=[step for step in log.steps if getattr(step.event, "comm", None) not in comms])


def _printers(logs: Iterable[ProcessLog], passed_on: bool) -> list[ProcessLog]:
    """The processes that printed; where hosts are named, a line without one was torn, or ``passed_on`` without it."""
    logs = [log for log in logs if log.process.host]
    named = [log for log in logs if not is_masked(log.process)]
    return logs if passed_on else named or logs
