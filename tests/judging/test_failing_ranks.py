"""Ranks that fail or wait, and what programs raise: in numbers, in pieces, and among other jobs.

The logs with labels say who fails, and which is the cause.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import sample_data
from answers import inputs_of

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.pipeline.reader import Reader

(LOG,) = (one.texts[0][1] for one in inputs_of("built") if one.name.endswith("/what ended nobody makes no failure"))
START = LOG[: LOG.index(b"\n", LOG.rindex(b"NCCL INFO Connected")) + 1] + b"step 1 loss 1.5\n"
"""Two ranks, connected, at work."""
FAILED = (
    b"E1121 16:35:11.771000 9 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1 "
    b"(pid: 611) of binary: /usr/bin/python\n"
)


def traceback(last: str, front: str = "") -> list[str]:
    frames = 'Traceback (most recent call last):\n  File "/train.py", line 3, in main\n    raise Failed\n    ^^^^^^\n'
    return [f"{front}{line}\n" for line in f"{frames}{last}".splitlines()]


def test_read_in_blocks_and_merged_where_that_is_allowed_it_is_the_same() -> None:
    lines = (START + "".join(traceback("pkg.Failed: x")).encode() + FAILED).splitlines()
    whole = sample_data.fold_sources([("log", lines)]).sources[0].raised
    assert [one.text for one in whole] == [b"pkg.Failed: x"]
    for at in range(len(lines) - 12, len(lines)):
        reader, first = Reader(), sample_data.fold_sources([("log", lines[:at])])
        reader.fold.start("log")
        reader.feed(lines[:at])
        reader.feed(lines[at:])
        assert reader.fold.sources[0].raised == whole
        later = sample_data.fold_sources([("log", lines[at:])])
        if first.can_merge(later):
            first.merge(later)
            assert first.sources[0].raised == whole


def test_a_file_in_which_ranks_wait_has_an_age(tmp_path: Path) -> None:
    (log,) = sample_data.contents("rank-missing-hang")
    file = tmp_path / "job.log"
    file.write_bytes(b"".join(log.splitlines(keepends=True)[:-1]))  # without the line of the launcher that ends it
    then = time.time() - 720
    os.utime(file, (then, then))
    job = nccl_inspect.read(file)
    assert job.waiting is not None and job.waiting.age is not None
    assert 720 <= job.waiting.age < 780
    assert "no new line for 12 min" in report.load("text").render(job, report.Style())
