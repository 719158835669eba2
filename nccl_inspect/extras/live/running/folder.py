"""Where the files of a run go. That they cannot be written is no reason not to run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nccl_inspect.extras.live.running import variables

_MAX_RUNS = 1000


class Place(NamedTuple):
    """A folder, and the log in it, which is new."""

    folder: Path
    log: BinaryIO


def make(wanted: str, environment: Mapping[str, str], say: Callable[[str], None]) -> Place | None:
    """The folder of this run; None where nothing can be written.

    What an earlier run left is kept: this one then goes to ``DIR-2``. All processes of a job share a folder.

    Args:
        wanted: as it was given; may be empty.
        environment: names and numbers the job.
        say: takes what is worth knowing.
    """
    rank, _ = variables.ranks(environment)
    log = "job.log" if rank is None else f"job.{rank}.log"
    name = wanted or f"nccl-run-{variables.job_name(environment) or time.strftime('%Y%m%d-%H%M%S')}"
    problem = ""
    for folder in _folders(Path(os.path.abspath(name))):  # noqa: PTH100 - links stay
        try:
            place = _open(folder, log)
        except FileExistsError:
            continue
        except OSError as error:
            problem = f"{error.filename or folder}: {error.strerror}"
            break
        if wanted and folder.name != Path(os.path.abspath(name)).name:  # noqa: PTH100
            say(f"{wanted} holds an earlier run; this one goes to {folder}")
        return place
    with suppress(OSError):
        place = _open(Path(tempfile.mkdtemp(prefix="nccl-run-")), log)
        say(f"{problem or f'{name}: too many runs'}; the files go to {place.folder}")
        return place
    say(f"{problem}; the job runs without a report")
    return None


def keep_status(place: Place, line: str) -> None:
    """Keep how the command ended, in a file beside its log, so that a later report says so, too."""
    log = Path(place.log.name)
    with suppress(OSError):
        log.with_name(log.name.replace("job", "exit-status", 1)).write_text(f"nccl-inspect: {line}\n", encoding="utf-8")


def discard(place: Place) -> None:
    """Take away a folder in which there is nothing: the job could not be started."""
    place.log.close()
    with suppress(OSError):
        Path(place.log.name).unlink()
        place.folder.rmdir()


def _folders(folder: Path) -> Iterator[Path]:
    later = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return (place for place, _ in zip(chain([folder], later), range(_MAX_RUNS), strict=False))


def _open(folder: Path, log: str) -> Place:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(20, "Not a directory", str(folder)) from None
    return Place(folder, (folder / log).open("xb", buffering=0))
