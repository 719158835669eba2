"""How long ago a log, or a line of it, was written."""

from __future__ import annotations

import time
from pathlib import Path

from nccl_inspect.model.job import Job
from nccl_inspect.util.times import moment

_RECENT = 86_400  # seconds; the age of a line that is older says nothing of a job that runs
_NEAR = 300  # seconds between the last line of a file and its last change, where nobody copied it


def file_age(job: Job) -> float | None:
    """Whole seconds since the newest file was written; of a log from a pipe since its last line, where that has a time.

    None where neither is known. A copy is younger than the log.
    """
    now = time.time()
    times_written = [write_time(source.name) for source in job.sources]
    if times_written and all(times_written):
        return float(max(0, round(now - max(when for when in times_written if when))))
    times = [when for last in job.last_lines if (when := moment(last.time))]
    if not times or any(when.clock != "utc" for when in times):
        return None
    return float(max(0, round(now - max(when.seconds for when in times))))


def line_age(source: str, stamp: str) -> float | None:
    """Seconds since the last line was printed; None where the clock is unknown, or it is long ago.

    A time without a zone is that of the file's last change, in UTC or in local time, unless the file was copied.
    """
    now = time.time()
    when = moment(stamp.strip("[]"))
    if when is None or when.clock == "day":
        return None
    seconds: float | None = when.seconds
    if when.clock == "local":
        changed = write_time(source)
        if changed is None:
            return None
        zones = (0.0, -float(time.localtime(changed).tm_gmtoff))
        seconds = next((when.seconds + zone for zone in zones if abs(when.seconds + zone - changed) < _NEAR), None)
    return now - seconds if seconds is not None and 0 <= now - seconds < _RECENT else None


def write_time(name: str) -> float | None:
    """Return when a file was written, by the clock of its host; None if it is not a file on disk."""
    try:
        return Path(name).stat().st_mtime
    except (OSError, ValueError):  # standard input, a member of an archive, bytes
        return None
