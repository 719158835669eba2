"""What ``run`` sets for the job, who it is among several processes, where files go, and when a job stands still."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_inspect.extras.live.cli_run import (
    JobLog,
    choose_variables,
    launcher_ranks,
    look_for_silence,
    nccl_log_pattern,
    open_run_log,
)


def test_settings_are_added_and_none_is_replaced(tmp_path: Path) -> None:
    runs = Path("/runs/50%")
    given = choose_variables({}, runs)
    assert given["NCCL_DEBUG"] == "INFO"
    assert given["NCCL_DEBUG_FILE"] == "/runs/50%%/nccl.%h.%p.log"
    assert given["NCCL_TOPO_DUMP_FILE"] == "/runs/50%/topology.xml"
    assert given["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == "/runs/50%/nccl_trace_rank_"
    assert given["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert not {"NCCL_DEBUG", "NCCL_DEBUG_FILE"} & choose_variables({"NCCL_DEBUG": "INFO"}, runs).keys(), "lines stay"
    own = {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}
    assert not own & choose_variables({"TORCH_FR_BUFFER_SIZE": "7"}, runs).keys()
    assert nccl_log_pattern({"NCCL_DEBUG_FILE": "/l/50%%/n.%h.%p"}) == "/l/50%/n.*.*"
    (tmp_path / "nccl.conf").write_text("# ours\nNCCL_DEBUG=WARN\n")
    assert "NCCL_DEBUG" not in choose_variables({"NCCL_CONF_FILE": str(tmp_path / "nccl.conf")}, runs)


def test_the_innermost_launcher_numbers() -> None:
    for given, ranks in (
        ({}, (None, None)),
        ({"RANK": "3"}, (3, None)),
        ({"SLURM_PROCID": "9", "SLURM_LOCALID": "1"}, (9, 1)),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, (5, 1)),
        ({"SLURM_PROCID": "1", "TORCHELASTIC_RUN_ID": "x", "RANK": "12", "LOCAL_RANK": "4"}, (12, 4)),
        ({"RANK": "many"}, (None, None)),
    ):
        assert launcher_ranks(given) == ranks, given


def test_where_nothing_can_be_written_the_job_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text("a file")

    def fail(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    said: list[str] = []
    assert open_run_log(str(tmp_path / "out"), {}, said.append) is None
    assert said == [f"{tmp_path}/out: Not a directory; the job runs without a report"]


def test_each_silence_counts_once(tmp_path: Path) -> None:
    clock = [1000.0]
    with (tmp_path / "job.log").open("wb", buffering=0) as file:
        log = JobLog(file)
        log.last = 1000.0
        os.utime(tmp_path / "job.log", (1000, 1000))
        patterns = [str(tmp_path / name) for name in ("nccl.*", "job*.log")]
        silences = look_for_silence(60, log, patterns, now=lambda: clock[0])
        looks = []
        for clock[0] in (1030.0, 1061.0, 1062.0, 1500.0):
            looks.append(next(silences))
        (tmp_path / "nccl.node.1.log").write_text("a line")
        os.utime(tmp_path / "nccl.node.1.log", (1510, 1510))
        for clock[0] in (1561.0, 1571.0, 1580.0):
            looks.append(next(silences))
    assert looks == [False, True, False, False, False, True, False]
