"""Files that one log was spread over are read in the order in which they were written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.ingest.sources import rotation

LOG = sample_data.contents("peer-killed")[0].splitlines(keepends=True)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (
            ["job.log", "job.log.1", "job.log.2.gz", "job.log.10"],
            ["job.log.10", "job.log.2.gz", "job.log.1", "job.log"],
        ),
        (
            ["0.log", "0.log.20261120-231307.gz", "0.log.20261121-010203"],
            ["0.log.20261120-231307.gz", "0.log.20261121-010203", "0.log"],
        ),
        (["a.log", "a.log-20261120", "b.log"], ["a.log-20261120", "a.log", "b.log"]),
        (
            ["llama-0.log", "llama-0.previous.log", "llama-1.log"],
            ["llama-0.previous.log", "llama-0.log", "llama-1.log"],
        ),
        (["x.log", "x.log.old"], ["x.log.old", "x.log"]),
        (["nccl.vm.17", "nccl.vm.18"], ["nccl.vm.17", "nccl.vm.18"]),
        (["job.log.2", "job.log.1"], ["job.log.2", "job.log.1"]),
        (["b.log", "a.log"], ["b.log", "a.log"]),
    ],
)
def test_what_was_put_aside_is_older(given: list[str], read: list[str]) -> None:
    assert [given[place] for place in rotation.order(given)] == read


@pytest.mark.parametrize("name", ["job.log.1", "job.log.20261120-231307.gz"])
def test_a_rotated_log_is_judged_as_the_whole_one(name: str, tmp_path: Path) -> None:
    older, newer = b"".join(LOG[:200]), b"".join(LOG[200:])
    (tmp_path / name).write_bytes(gzip.compress(older) if name.endswith(".gz") else older)
    (tmp_path / "job.log").write_bytes(newer)
    whole, job = nccl_inspect.read(b"".join(LOG)), nccl_inspect.read(str(tmp_path))
    assert [source.name.rpartition("/")[2] for source in job.sources] == [name, "job.log"]
    assert [finding.summary.partition(":")[0] for finding in job.findings] == [
        finding.summary.partition(":")[0] for finding in whole.findings
    ]
    assert [comm.state for comm in job.communicators] == [comm.state for comm in whole.communicators]
