"""What the page in the browser asks of the package; runs in Pyodide, see ``worker.js``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from nccl_inspect import __version__, artifacts, report
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.extras.anonymize import cli_anonymize as anonymize
from nccl_inspect.ingest.sources import blocks, files
from nccl_inspect.pipeline import reading
from nccl_inspect.report import Style
from nccl_inspect.report.digest import list_unused_evidence as problems_of
from nccl_inspect.util.memory import pause_collector

FOLDER = Path("/logs")
"""Where the worker puts what was dropped; names in reports are relative to it."""
COPY = Path("/anonymized")
_SMALLER = "give it the lines of NCCL only: grep -a -E 'NCCL|Error|signal|exit' job.log > small.log"
FORMATS = ("html", "text", "json")


def judge_files(names: Sequence[str], limit: int, told: Callable[..., None]) -> str:
    """Return the reports on some files as a JSON object: each format, the verdict, and what could not be read.

    Args:
        names: of files or folders in :data:`FOLDER`.
        limit: bytes that they may unpack to.
        told: how many bytes were read, of how many, and what is done.
    """
    return _answer(lambda: _judge_files(names, limit, told))


def anonymize_files(names: Sequence[str], told: Callable[..., None]) -> str:
    """Write a copy that can be passed on; a JSON object with the path of the file.

    Args:
        names: as for :func:`judge_files`.
        told: likewise.
    """
    return _answer(lambda: _anonymize_files(names, told))


def _sum_sizes(told: Callable[..., None]) -> blocks.Progress:
    """Return what takes the size of each piece, and tells that of all pieces."""
    done = 0

    def progress(size: int, total: int | None) -> None:
        nonlocal done
        done += size
        told(done, total or 0)

    return progress


def _answer(work: Callable[[], dict[str, object]]) -> str:
    os.chdir(FOLDER)
    try:
        answer = work()
    except NcclInspectError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"this browser has not enough memory for the log; {_SMALLER}"}
    return json.dumps(answer)


def _judge_files(names: Sequence[str], limit: int, told: Callable[..., None]) -> dict[str, object]:
    told(0, 0, "Looking at the files")
    beside = artifacts.inventory(list(names))
    _require_bearable(beside.logs, limit)
    judge = reading.Judge(reading.Options())
    with pause_collector():
        fold = reading.fold(beside.logs, _sum_sizes(told))
        told(0, 0, "Judging")
        job = judge.find_job(fold, beside=beside)
        told(0, 0, "Writing the reports")
        reports = {name: report.load(name).render(job, Style()) for name in FORMATS}
    unread = (source.problem for source in job.sources if source.problem)
    problems = [*judge.misfits(job), *problems_of(job.artifacts), *unread]
    return {"version": __version__, "verdict": job.verdict, "problems": problems, **reports}


def _require_bearable(logs: Sequence[files.Input], limit: int) -> None:
    """Make sure that packed logs do not unpack to more than a browser can hold.

    Raises:
        NcclInspectError: they do.
    """
    size = 0
    for source in blocks.find(logs):
        try:
            for block in blocks.raw_blocks(source):
                size += len(block)
                if size > limit:
                    raise NcclInspectError(
                        f"unpacked, this is more than the {limit >> 20} MB that this page reads",
                        _SMALLER,
                    )
        except NoInputError:
            continue  # the report says so


def _anonymize_files(names: Sequence[str], told: Callable[..., None]) -> dict[str, object]:
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir()
    several = len(names) > 1 or Path(names[0]).is_dir()
    target = COPY / ("shareable" if several else "shareable.log")
    anonymize.write(list(names), str(target), progress=_sum_sizes(told))
    if not target.is_dir():
        return {"path": str(target), "name": target.name}
    return {"path": shutil.make_archive(str(target), "zip", target), "name": "shareable.zip"}
