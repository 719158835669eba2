"""How long ago a log was written."""

from __future__ import annotations

import time
from pathlib import Path

from nccl_inspect.model.job import Job
from nccl_inspect.times import moment


def of(job: Job) -> float | None:
    """Whole seconds since the newest file was written; of a log from a pipe since its last line, where that has a time.

    None where neither is known. A copy is younger than the log.
    """
    now = time.time()
    times_written = [written(source.name) for source in job.sources]
    if times_written and all(times_written):
        return float(max(0, round(now - max(when for when in times_written if when))))
    times = [when for last in job.last_lines if (when := moment(last.time))]
    if not times or any(when.clock != "utc" for when in times):
        return None
    return float(max(0, round(now - max(when.seconds for when in times))))


def written(name: str) -> float | None:
    """When a file was written, by the clock of its host; None for what is no file on disk."""
    try:
        return Path(name).stat().st_mtime
    except (OSError, ValueError):  # standard input, a member of an archive, bytes
        return None
