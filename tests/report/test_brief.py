"""What is sent to a colleague: ten lines at most, each complete, in text and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_data
from command_line import invoke

import nccl_inspect
from nccl_inspect.model.job import Job
from nccl_inspect.report import brief

_EFA = "efa-provider-missing-socket-fallback"
_KILLED = """\
FAILED: rank 3 (llama-3-8b-node-0-1, pid 5026, GPU 3) went away: silent after line 134, then its peers \
lost connections
where: rank 3 on llama-3-8b-node-0-1, pid 5026, GPU 3
since: first sign 2026-11-20 23:15:18, job.log:139; rank 3 silent since job.log:134; last line job.log:176
cause: likely: its lines stop without an error or a regular end: killed (out of memory, preemption, spot loss), \
crashed, or its machine was lost
fix: kubectl describe pod llama-3-8b-node-0-1; kubectl logs --previous llama-3-8b-node-0-1   # pod named after the \
host; OOMKilled, 137, Evicted?
evidence: job.log:134: llama-3-8b-node-0-1:5026:5066 [1] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
evidence: job.log:137: llama-3-8b-node-0-1:5025:5057 [0] NCCL INFO [Service thread] Connection closed by localRank 1
evidence: job.log:139: [2026-11-20 23:15:18] llama-3-8b-node-0-0:5023:5070 [0] misc/socket.cc:71 NCCL WARN \
socketProgress: Connection closed by remote peer
job: 4 ranks on 2 hosts (llama-3-8b-node-0-0, llama-3-8b-node-0-1); NCCL 2.27.3+cuda13.0, CUDA driver 13.0; network \
Socket, devices eth0
more: nccl-inspect explain peer-death   # the rule and all its fixes
"""


def labels(text: str) -> list[str]:
    return [line.partition(": ")[0] for line in text.splitlines()[1:]]


def misshapen(job: Job) -> Iterator[str]:
    """Yield what is wrong with the shape of what is sent of a job."""
    text = brief.render(job)
    if len(text.splitlines()) > brief.MAX_LINES:
        yield "too long"
    if not text.startswith((f"{job.verdict.upper()}:", f"{job.verdict.upper()}, ", "WAITING")):
        yield "begins without the verdict"
    found = labels(text)
    if job.verdict in ("failed", "degraded") and (not {"fix", "evidence"} & set(found) or found.count("evidence") > 3):
        yield f"a fault with {found}"
    if job.verdict == "ok" and found != ["job", "paths"]:
        yield f"what is right with {found}"
    marked = [line for line in brief.render(job, "markdown").splitlines() if line]
    if len(marked) != len(text.splitlines()) or not all(line.startswith(("**", "- **")) for line in marked):
        yield "other lines in Markdown"


def test_it_fits_ten_lines_and_begins_with_the_verdict() -> None:
    wrong = [f"{name}: {what}" for name in sample_data.names() for what in misshapen(sample_data.job(name))]
    assert not wrong, "\n".join(wrong)


def test_the_cause_is_what_leads_to_the_finding_and_shared_evidence_comes_first() -> None:
    text = brief.render(sample_data.job(_EFA))
    assert "cause: aws-ofi-nccl found no usable provider" in text
    assert "cost: TCP gives" in text
    assert "No eligible providers were found" in text


def test_a_command_is_code_in_markdown_and_what_the_log_says_is_never_markup() -> None:
    text = brief.render(sample_data.job(_EFA), "markdown")
    assert "- **fix:** `fi_info -p efa -t FI_EP_RDM; ls /dev/infiniband` inside the container" in text
    quoted = [line for line in text.splitlines() if line.startswith("- **evidence:**")]
    assert len(quoted) == 3
    assert all(re.search(r": `.*`$", line) for line in quoted)


def test_of_several_jobs_the_worst_and_a_line_about_all(tmp_path: Path) -> None:
    for name in ("peer-killed", "p2p-nvlink-8gpu"):
        (tmp_path / f"{name}.log").write_bytes(sample_data.contents(name)[0])
    lines = brief.render(nccl_inspect.read(str(tmp_path))).splitlines()
    assert lines[0].startswith("FAILED: rank 3")
    assert any(line.startswith("jobs: 2 jobs: 1 failed, 1 ok; the worst is ") for line in lines)
    assert len(lines) <= brief.MAX_LINES


def test_a_log_that_shows_little_says_what_to_do() -> None:
    lines = brief.render(nccl_inspect.read(b"vm:1:1 [0] NCCL WARN Something nobody has ever seen\n")).splitlines()
    assert lines[0].startswith("UNKNOWN")
    assert any("Something nobody has ever seen" in line for line in lines[1:])


def test_the_command_writes_it_as_text_or_markdown_and_nothing_else(tmp_path: Path) -> None:
    log = str(sample_data.files("peer-killed")[0])
    assert invoke("summarize", log, "--brief").stdout == _KILLED
    invoke("summarize", log, "--brief", "-o", str(tmp_path / "brief.md"))
    assert (tmp_path / "brief.md").read_text(encoding="utf-8").startswith("**FAILED: rank 3")
    with pytest.raises(Exception, match="--brief supports text or markdown, not json"):
        invoke("summarize", log, "--brief", "--format", "json")


def test_a_job_without_a_verdict_shows_what_its_log_suggests() -> None:
    log = b"vm:7:7 [0] NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/graph.xml\n"
    text = brief.render(nccl_inspect.read(log))
    sign = "NCCL_GRAPH_FILE=/opt/graph.xml fixes the rings and trees of one machine (possible, topo-file-bad)"
    assert f"\nsign: {sign}\n" in text
    assert "log-incomplete" not in text


def test_a_host_that_the_log_does_not_name_is_not_a_place() -> None:
    for log in (
        b"NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n",
        b"include/socket.h:344 NCCL WARN Socket creation failed : Address family not supported by protocol\n",
    ):
        text = brief.render(nccl_inspect.read(log))
        assert " ? " not in text
        assert "where" not in labels(text)
