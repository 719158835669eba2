"""Jobs whose paths are known, as collectors write them: lines read in columns and lines read one by one join."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import logs
import pytest
from wide_job import WideJob, collected

import nccl_inspect


@pytest.mark.parametrize("passed_on", [iter, collected, logs.docker], ids=["plain", "pod and time", "docker"])
def test_all_paths_are_those_of_the_job(passed_on: Callable[[Iterable[str]], Iterator[str]]) -> None:
    job = WideJob(64)
    read = nccl_inspect.read("".join(passed_on(job.lines())).encode())
    assert {(path.src, path.dst): (path.transport, path.gdr) for path in read.paths} == job.truth
