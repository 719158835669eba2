"""The end of a process, as launchers, shells or the process itself state it: the same event whoever prints the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_inspect.event.base import Notice
from nccl_inspect.util import signals
from nccl_inspect.util.patterns import later
from nccl_inspect.util.records import named

_RANK = later(r"\d{1,7}")
_WHO = ("ranks", "node", "ended_pid")
_ALL = (*_WHO, "exit_code", "signal", "how")
NEAR = 3
"""Lines, blank ones too, after which a report has no further line."""


@named
class ProcessEnded(Notice):
    """A launcher, a shell or a process itself says that a process ended: which one, and how."""

    reporter: str = ""
    """Who says so: ``torchrun``, ``mpirun``, ``shell``; ``process`` for the process that ended."""
    order: str = "any"
    """``first``: of all processes that ended, the first one is named; ``own``: who says so knows of one process only;
    ``any``: each that ended with an error is named, also those that only lost another one."""
    process: str = "rank"
    """``rank``; ``any`` (it may be no rank), ``loader`` (of data, for a rank), ``task`` (of Slurm), ``spawned`` (by
    torch.multiprocessing), ``command`` (a launcher or a script, as a whole) or ``training`` (all of it)."""
    ranks: tuple[int, ...] = ()
    """Of the job."""
    node: str | None = None
    ended_pid: int | None = None
    exit_code: int | None = None
    """As a shell has it, 128 + number for a signal; None where the line names a signal, and where it does not say."""
    signal: str | None = None
    """By its name, ``SIGKILL``."""
    how: str | None = None
    """In words, where neither code nor signal says it."""
    external: str = ""
    """The signals by which somebody else ends processes, ``SIGINT|SIGTERM``: that is not a failure of its own."""
    ends_others: bool = False
    """Whether the reporter ends the other processes then."""
    kills_with: str | None = None
    """The signal by which the reporter ends the others: which it then reports, too."""
    exception: bool = False
    """Whether an exception ended it."""
    retries: bool = False
    """Whether the reporter may start the process anew: it counts where that gave up."""
    completes: str = ""
    """``above`` or ``below``: the line is one of a report of several, and completes that of the same reporter which is
    there, see :func:`join_lines`."""

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the fields of a line mean; all of them are kept as they are, too.

        ``exitcode`` is negative for a signal, as Python's subprocess has it; ``status`` has signals as 128 + number, as
        shells and containers do.
        """
        found: dict[str, Any] = {name: values[name] for name in ("how", "node") if values.get(name) is not None}
        ranks = values.get("global_rank", values.get("ranks"))
        if ranks is not None:
            found["ranks"] = tuple(sorted({int(rank) for rank in _RANK.findall(str(ranks))}))
        if values.get("pid"):  # Open MPI 4 prints 0
            found["ended_pid"] = values["pid"]
        code, number = values.get("exitcode"), signals.number(str(values.get("signal")))
        if (status := values.get("status")) is not None:
            found["exit_code"], code = status, signals.from_status(status)
        if number is None and code is not None and code < 0:
            number = -code
        if number is not None:
            found["signal"] = signals.name(number)
        elif code is not None:
            found["exit_code"] = code
        return {**Notice.arrange(values), **found}

    @property
    def code(self) -> int | None:
        """Exit code; negative for a signal, None where the line does not say."""
        number = None if self.signal is None else signals.number(self.signal)
        return self.exit_code if number is None else -number

    def take(self, part: ProcessEnded) -> None:
        """Take what another line of the same report says: who ended, and how, as far as this one leaves it out."""
        for name in _WHO if self.code is not None else _ALL:
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(part, name))

    def repeat(self, later: ProcessEnded) -> None:
        """Take what a report in the same words says of another process: one of another host, or of another attempt."""
        self.take(later)
        if self.retries:
            object.__setattr__(self, "how", later.how)
        object.__setattr__(self, "ranks", tuple(sorted({*self.ranks, *later.ranks})))

    @property
    def is_external(self) -> bool:
        """Whether a signal ended it that somebody else sends; SIGKILL that a shell passes on was sent by anybody."""
        is_passed_on = self.signal == "SIGKILL" and self.exit_code is not None
        return self.signal in self.external.split("|") and not is_passed_on


def join_lines(number: int, event: ProcessEnded, near: list[tuple[int, ProcessEnded]]) -> None:
    """Join a line of a report with those of the same reporter near it: what completes another line becomes part of it.

    Args:
        number: of the line.
        event: that it states.
        near: the lines before it that may be of the same report, with their numbers; this one is added.
    """
    near[:] = [entry for entry in near if number - entry[0] <= NEAR]
    others = [other for _, other in reversed(near) if other.reporter == event.reporter]
    if event.completes == "above":
        for whole in [other for other in others if not other.completes][:1]:
            whole.take(event)
    elif not event.completes:
        for part in [other for other in others if other.completes == "below"]:
            event.take(part)
    near.append((number, event))
