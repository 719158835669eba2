"""The command that captures what a log lacks."""

from __future__ import annotations

import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.judging import capture
from nccl_inspect.model.finding import Needs, NotJudged

NOTES = ROOT / "sample_logs" / "field-notes"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (
            "g6e-4x4-efa-libfabric.log",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH <the job> 2>&1 | tee job.log; "
            "nvidia-smi topo -m > topo.txt; nccl-inspect summarize job.log --topology topo.txt",
        ),
        (
            "p4d-4pod-1gpu-efa.log",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log <the job>; "
            "nccl-inspect summarize /logs",
        ),
        ("p4d-1pod-4gpu.log", None),
    ],
)
def test_what_rules_need_becomes_one_command(name: str, command: str | None) -> None:
    job = nccl_inspect.read(str(NOTES / name))
    assert capture.command(job) == command
    assert ("to capture it" in report.load("text").render(job, report.Style())) == (command is not None)


def test_where_the_log_is_enough_it_is_read_again_with_the_topology() -> None:
    log = str(NOTES / "g6e-4x4-eni-socket-trees.log")
    command = capture.command(nccl_inspect.read(log))
    assert command == f"nvidia-smi topo -m > topo.txt; nccl-inspect summarize {log} --topology topo.txt"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_no_command_is_told_that_would_only_read_the_same_log_again(form: str) -> None:
    job = nccl_inspect.read(str(NOTES / "p4d-1pod-4gpu.log"))
    job.not_judged = [
        NotJudged("separate-jobs", "separate jobs or replicas", Needs(others=("the launch command of each host",)))
    ]
    assert capture.command(job) is None
    assert "o capture it" not in report.load(form).render(job, report.Style())
