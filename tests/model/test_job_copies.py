"""Jobs are handed to other processes and threads, and copied: all of them say the same."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job


def _show_job(job: Job) -> str:
    ends = [list(job.paths.end_lines(side)) for side in ("send", "receive")]
    return json.dumps(job.to_dict()) + repr((job.without_nvls, job.communicators, ends))


NAMES = ("peer-killed", "v2.19.4-socket-2node", "torch-watchdog-timeout", "p2p-nvlink-8gpu")


@pytest.mark.parametrize("names", [NAMES[::3], pytest.param(NAMES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_copies_say_the_same(names: tuple[str, ...]) -> None:
    logs = [sample_data.contents(name)[0] for name in names]
    for log in (*logs[1:], logs[0] + logs[-1]):  # the last is the worst of two jobs
        jobs = [nccl_inspect.read(log) for _ in range(4)]
        copies = pickle.loads(pickle.dumps(jobs[0])), copy.deepcopy(jobs[1]), copy.copy(jobs[2]), replace(jobs[3])
        assert all(job == jobs[0] for job in (*copies, *jobs))
        shown = _show_job(jobs[0])
        assert all(_show_job(job) == shown for job in (*copies, *jobs))
        assert repr(jobs[0]).startswith("Job(")
    assert len(jobs[0].jobs) == 2


def test_other_paths_are_another_job() -> None:
    job, other = (nccl_inspect.read(sample_data.contents("socket-2node-tp4-dp2")[0]) for _ in range(2))
    other.paths[1].kind = other.paths[1].kind.with_fields(nic="mlx5_7")
    assert job.paths[:1] == other.paths[:1]
    assert job != other
    assert job.paths.take(1) == other.paths.take(1) != job.paths.take(2)
    assert job.paths != list(job.paths)


def test_a_job_does_not_need_its_log_any_more(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(sample_data.contents("socket-2node-tp4-dp2")[0])
    early, late = nccl_inspect.read(str(log)), nccl_inspect.read(str(log))
    shown = _show_job(early)
    log.unlink()
    assert _show_job(late) == shown


def test_threads_may_ask_at_once() -> None:
    data = sample_data.contents("socket-2node-tp4-dp2")[0]
    expected = _show_job(nccl_inspect.read(data))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        job = nccl_inspect.read(data)
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(_show_job, [job] * 8)) == [expected] * 8
    finally:
        sys.setswitchinterval(interval)
