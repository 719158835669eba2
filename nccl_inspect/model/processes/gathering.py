"""Who printed what in a log: processes, their lives one after the other, and the communicators that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators import communicator, members
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.fold.fold import Burst, Fold, ProcessLog, Step
from nccl_inspect.model.processes import duplicates, identity
from nccl_inspect.model.processes.damage import Damage


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
        self.processes, self.communicators = walked(self.living)

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


def walked(logs: Iterable[ProcessLog]) -> tuple[list[ProcessMembers], list[Communicator]]:
    """The members of each process, and the communicators that they form."""
    processes = [members.of_process(log) for log in logs]
    return processes, communicator.join(processes)


def _printers(logs: Iterable[ProcessLog], passed_on: bool) -> list[ProcessLog]:
    """The processes that printed; where hosts are named, a line without one was torn, or ``passed_on`` without it."""
    logs = [log for log in logs if log.process.host]
    named = [log for log in logs if not is_masked(log.process)]
    return logs if passed_on else named or logs
