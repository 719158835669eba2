"""The row of a report that lists the evidence beside the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.model.job import Job
from nccl_inspect.rules.facts import count


def row(job: Job) -> Iterator[tuple[str, str]]:
    """What lies beside the log, by kind, and what could not be used; nothing where there is nothing."""
    used = Counter(entry.kind for entry in job.artifacts if not entry.problem)
    unused = [f"{entry.name.rpartition('/')[2]} not used: {entry.problem}" for entry in job.artifacts if entry.problem]
    if job.artifacts:
        yield "evidence", ", ".join([*(count(number, kind) for kind, number in used.items()), *unused])
