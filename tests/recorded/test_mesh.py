"""Real jobs, broken on purpose (``tools/break_mesh.py``), judged by the log alone and with all that they left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mesh_verdicts import MESHES, Recording, recordings
from repository import ROOT

import nccl_inspect
from nccl_inspect.model.job import Job

TWO, NODES = MESHES
LEADING = {
    "skipped-call": "collective-mismatch",
    "other-size": "collective-mismatch",
    "other-type": "collective-mismatch",
    "other-operation": "collective-mismatch",
    "order": "groups-out-of-order",
    "busy": "collective-not-called",
    "stopped": "process-unresponsive",
    "left": "process-unresponsive",
    "killed": "peer-death",
    "exception": "peer-death",
    "shm": "shm-segment-failed",
    "straggler": "straggler",
}
"""What must lead, by what was done to the job."""
OF_TWO, OF_NODES = recordings(TWO), recordings(NODES)
_BLAME_ALONE = {
    *("skipped-call", "other-size", "other-type", "other-operation", "order", "busy", "no-partner", "stopped", "left"),
    "straggler",
}
"""Ways to break a job of which the evidence leaves one culprit, where there are ranks to compare it with."""


def everything(recording: Recording) -> Job:
    """The job, judged with all that it left."""
    return nccl_inspect.read(str(recording.folder))


def alone(recording: Recording) -> Job:
    """The job, judged by its log."""
    return nccl_inspect.read(str(recording.folder / "job.log.xz"))


@pytest.mark.parametrize("recording", OF_TWO, ids=str)
def test_a_job_is_judged_by_all_that_it_left(recording: Recording) -> None:
    job = everything(recording)
    expected = LEADING.get(recording.kind)
    assert not any(artifact.problem for artifact in job.artifacts)
    if recording.kind == "healthy":
        assert (job.verdict, job.findings) == ("ok", [])
        return
    assert job.verdict in ("failed", "unknown")
    if expected:
        assert job.verdict == ("unknown" if recording.kind == "straggler" else "failed")
        assert job.findings[0].rule == expected
    if expected in ("collective-not-called", "process-unresponsive", "peer-death", "straggler"):
        assert job.findings[0].ranks == [recording.culprit]


@pytest.mark.parametrize("recording", OF_NODES, ids=str)
def test_a_job_of_several_nodes_is_judged_by_all_that_it_left(recording: Recording) -> None:
    job = everything(recording)
    assert not job.jobs
    assert not [artifact.problem for artifact in job.artifacts if artifact.problem]
    # The ranks of a node share a machine: without RDMA between them each job is degraded at best.
    about = [finding for finding in job.findings if finding.rule != "socket-instead-of-rdma"]
    if recording.kind == "healthy":
        assert (job.verdict, about) == ("degraded", [])
        return
    assert job.verdict == ("degraded" if recording.kind == "straggler" else "failed")
    if expected := LEADING.get(recording.kind):
        assert about[0].rule == expected
    if recording.culprit is not None and len(about[0].ranks) == 1:
        assert about[0].ranks == [recording.culprit]


@pytest.mark.parametrize("recording", [one for one in OF_NODES if one.kind in _BLAME_ALONE], ids=str)
def test_nobody_but_the_culprit_is_blamed(recording: Recording) -> None:
    findings = [finding for finding in everything(recording).findings if finding.rule != "socket-instead-of-rdma"]
    assert findings[0].ranks == [recording.culprit]
    assert all(finding.ranks in ([], [recording.culprit]) for finding in findings)
    assert [finding.rule for finding in findings if finding.root] == [findings[0].rule]


@pytest.mark.parametrize(
    "recording", [one for one in (*OF_TWO, *OF_NODES) if one.kind not in ("other-setting", "shm")], ids=str
)
def test_the_log_alone_names_no_wrong_suspect(recording: Recording) -> None:
    for finding in alone(recording).findings:
        if "suspect" in finding.summary.lower() and finding.root:
            assert finding.summary.endswith(f"suspect: rank {recording.culprit}")


@pytest.mark.parametrize(
    "recording", [one for one in OF_NODES if one.kind in ("busy", "stopped", "left", "no-partner")], ids=str
)
def test_by_the_log_alone_the_rank_that_waits_nowhere_is_the_suspect(recording: Recording) -> None:
    (leading, *_) = alone(recording).findings
    assert (leading.rule, leading.ranks) == ("watchdog-timeout", [recording.culprit])


@pytest.mark.parametrize("recording", [one for one in OF_NODES if one.kind in ("other-operation", "order")], ids=str)
def test_by_the_log_alone_a_hang_is_followed_to_the_group_where_it_began(recording: Recording) -> None:
    (leading, *_) = alone(recording).findings
    assert "It likely began in process group 3(tp)" in leading.cause


def test_groups_of_one_job_are_one_job_with_the_ranks_that_torchrun_names() -> None:
    job = nccl_inspect.read(str(NODES / "p2p-off-lazy"))
    assert (job.world_size, job.rank_space, len(job.hosts)) == (8, "global", 4)
    assert (job.findings[0].rule, job.findings[0].ranks) == ("env-mismatch-across-ranks", [5])


def test_the_table_of_verdicts_is_up_to_date() -> None:
    page = (ROOT / "docs" / "howto" / "hangs.md").read_text(encoding="utf-8")
    jobs: dict[str, tuple[list[str], list[str]]] = {}
    for recording in OF_NODES:
        by_log, by_all = jobs.setdefault(recording.what, ([], []))
        by_log.append(verdict(alone(recording)))
        by_all.append(verdict(everything(recording)))
    rows = [f"| {what} | {_both(by_log)} | {_both(by_all)} |" for what, (by_log, by_all) in jobs.items()]
    assert not [row for row in rows if row not in page], "\n".join(["of docs/howto/hangs.md:", *rows])


def _both(verdicts: list[str]) -> str:
    """Those with eager and with lazy communicators."""
    return "; ".join(dict.fromkeys(verdicts))


_WHERE = re.compile(r"likely began (?:in process group \d+\((\w+)\)|with (ranks [\d,-]*\d))")


def verdict(job: Job) -> str:
    """The leading finding, with the rank or the place that it points to."""
    findings = [finding for finding in job.findings if finding.rule != "socket-instead-of-rdma"]
    if not findings:
        return "no finding"
    first = findings[0]
    if first.rule == "watchdog-timeout" and (where := _WHERE.search(first.cause)):
        return f"{first.rule}: began {f'in group {where[1]}' if where[1] else f'with {where[2]}'}"
    only_waits = first.rule == "watchdog-timeout" and "suspect" not in first.summary
    return f"{first.rule}: rank {first.ranks[0]}" if len(first.ranks) == 1 and not only_waits else first.rule


def test_what_run_kept_of_a_hang_names_the_rank_and_lists_the_evidence() -> None:
    job = nccl_inspect.read(str(Path(TWO).parent / "run-loop"))
    assert (job.findings[0].rule, job.findings[0].ranks) == ("collective-not-called", [1])
    assert job.findings[0].confidence == "certain"
    assert job.platform == "h200-sxm"
    kinds = {artifact.kind for artifact in job.artifacts if not artifact.problem}
    assert {"flight recorder dump", "RAS answer", "topology file", "df output", "nvidia-smi -q output"} <= kinds
    assert not [artifact.problem for artifact in job.artifacts if artifact.problem]


def test_how_far_ranks_came_is_said_of_the_ranks_of_the_job() -> None:
    job = nccl_inspect.read(str(Path(NODES) / "setting-eager"))
    leading, effect = job.findings[0], next(entry for entry in job.findings if entry.rule == "hang-after-init")
    assert (leading.rule, leading.ranks) == ("env-mismatch-across-ranks", [5])
    assert "How far the ranks came: ranks 4-5 started to connect" in effect.cause
