"""Levels that NCCL got in 2.31 and 2.32: ATTN, which is no failure, and DIAG, the results of its own checks."""

from __future__ import annotations

import sample_data
from repository import TESTS

import nccl_inspect
from nccl_inspect.event import types as events

ATTENTION = (TESTS / "data" / "attention.log").read_bytes()
"""What a healthy job of NCCL 2.32.3 printed with NCCL_DEBUG=ATTN, NCCL_BUFFSIZE=abc and NCCL_SOCKET_NTHREADS=99."""


def test_lines_of_this_level_are_read_as_others_are() -> None:
    job = nccl_inspect.read(ATTENTION)
    (source,) = job.sources
    assert (source.nccl_lines, source.typed_lines, source.damaged_lines) == (11, 11, 0)
    assert {notice.level for notice in job.notices} == {"VERSION", "WARN", "ATTN"}
    (setting,) = (notice for notice in job.notices if "NCCL_BUFFSIZE" in notice.message)
    assert setting.evidence[0].text.startswith("[2026-11-22 13:39:19] vm:1134:1134 [1] misc/param.cc:100")


def test_they_are_no_failure() -> None:
    job = nccl_inspect.read(ATTENTION)
    assert job.verdict == "unknown"
    assert sorted(finding.rule for finding in job.findings) == ["debug-level-too-low", "setting-invalid"]


def test_one_that_the_grammar_does_not_know_is_told_and_no_error() -> None:
    line = b"vm:1:1 [0] init.cc:1 (f) NCCL ATTN something that no release prints\n"
    job = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" + line)
    assert (job.sources[0].unrecognised_lines, job.unexplained, job.paths[0].verdict) == (1, [], "ok")
    assert [notice.message for notice in job.notices if notice.level == "ATTN"] == ["something that no release prints"]


def test_results_of_checks_are_events_of_whoever_printed_them() -> None:
    (data,) = sample_data.contents("v2.32.3-diagnostics")
    found = [event for event in nccl_inspect.events(data) if event.production == "diagnostics-result"]
    assert len(found) == 13
    first = found[0]
    assert isinstance(first, events.Notice)
    assert (first.value("host"), first.value("pid"), first.value("status")) == ("vm", 1144, "OK")
