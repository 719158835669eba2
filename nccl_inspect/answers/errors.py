"""The first error of each process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.judging.statements import is_error, is_survived
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Job, Notice


class Error(NamedTuple):
    """The error that a process reports."""

    notice: Notice
    line: Evidence | None
    """None if many processes report the same: only the first lines are kept."""

    @property
    def is_echo(self) -> bool:
        """Whether it only reports a failure elsewhere."""
        return not is_error(self.notice)


def first_errors(job: Job) -> dict[Process, Error]:
    """By process, in log order; errors that the job survived are left out."""
    errors: dict[Process, Error] = {}
    for notice in job.notices:
        if _is_trouble(notice, job):
            for process, line in _lines(notice):
                errors.setdefault(process, Error(notice, line))
    return errors


def _is_trouble(notice: Notice, job: Job) -> bool:
    tone = getattr(notice.event, "tone", "info")
    return (is_error(notice) and not is_survived(notice, job)) or tone == "echo"


def _lines(notice: Notice) -> Iterator[tuple[Process, Evidence | None]]:
    for place, process in enumerate(notice.processes):
        yield process, notice.evidence[place] if place < len(notice.evidence) else None
