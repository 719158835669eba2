"""The rank that went away, found from what the others say and from who says nothing."""

from __future__ import annotations

import re

import pytest
import sample_data
from repository import TESTS

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.answers import ranks
from nccl_inspect.judging.process_ends import lost_peer
from nccl_inspect.model.finding import Finding

KILLED = b"".join(sample_data.contents("peer-killed"))
"""Rank 3 of 4 was killed, on the second host; its process is 5026, the others are 5023 to 5025."""
LINES = [line for line in KILLED.splitlines(keepends=True) if b"Abort" not in line]
"""Without the lines in which the others come to an end."""
FIRST = next(index for index, line in enumerate(LINES) if b"losed by" in line)


def lead(lines: list[bytes]) -> Finding:
    job = nccl_inspect.read(b"".join(lines))
    assert job.verdict == "failed"
    return job.findings[0]


def without(pid: bytes, since: int = 0) -> list[bytes]:
    return [line for index, line in enumerate(LINES) if index < since or b":%b:" % pid not in line]


VARIANTS = {
    "no end of the others": LINES,
    "a survivor is silent, too": without(b"5024", FIRST),
    "its whole host is silent": [
        line for index, line in enumerate(LINES) if index < FIRST or b"node-0-1" not in line or b"Service" in line
    ],
    "no word of helper threads": [line for line in LINES if b"Service thread" not in line],
    "one host after the other": sorted(LINES, key=lambda line: b"node-0-1:" in line),
    "bytes for an address": [re.sub(rb"remote peer.*", b"remote peer \x90\xe1\x7f<>", line) for line in LINES],
    "empty address": [re.sub(rb"remote peer.*", b"remote peer <>", line) for line in LINES],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_rank_that_was_killed_is_named_with_its_host_process_and_gpu(name: str) -> None:
    finding = lead(VARIANTS[name])
    assert (finding.rule, finding.ranks, finding.confidence) == ("peer-death", [3], "likely")
    assert finding.summary.startswith("rank 3 (llama-3-8b-node-0-1, pid 5026, GPU 3) went away: silent after line ")


def test_the_only_rank_without_a_line_is_it_by_elimination() -> None:
    finding = lead(without(b"5026"))
    assert finding.ranks == [3]
    assert finding.summary.endswith(
        "by elimination it was rank 3, which has no line in this log (host llama-3-8b-node-0-1, local rank 1)"
    )


SILENT = re.compile(rb"NCCL WARN|Service thread")
"""What ``grep 'NCCL INFO'`` leaves out, and what helper threads say."""


def test_without_warnings_the_code_of_a_lost_peer_says_it() -> None:
    finding = lead([line for line in LINES if not SILENT.search(line)])
    assert (finding.rule, finding.ranks) == ("peer-death", [3])


def test_no_slow_path_is_the_reason_of_a_failure() -> None:
    """A code that no rule explains, from a thread that ended (as 2.21 prints it)."""
    lines = [re.sub(rb"-> 6$", b"-> 2 [Progress Thread]", line) for line in LINES if not SILENT.search(line)]
    job = nccl_inspect.read(b"".join(lines))
    head = report.load("text").render(job, report.Style(width=120)).splitlines()[:4]
    assert head[0] == "FAILED: the job is dead or stuck, and the log does not say why"
    assert any(line.startswith("do ") and "all ranks" in line for line in head)


def test_a_rank_with_lines_is_not_said_to_have_none() -> None:
    """The files of all processes, one after the other."""
    finding = lead(sorted(LINES, key=lambda line: line.partition(b":")[2][:5]))
    assert finding.summary.endswith("this log does not show which rank failed first")


@pytest.mark.parametrize("peer", [b"<>", b" ", b"\x90\xe1\x7f\xff<>", b""])
def test_no_headline_has_an_empty_name_or_bytes_that_mean_nothing(peer: bytes) -> None:
    line = b"vm:10:50 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer "
    finding = nccl_inspect.read(line + peer + b"\n").findings[0]
    assert "a peer;" in finding.summary


def last_words(message: bytes) -> list[bytes]:
    """Rank 3 prints something, and then the others lose it."""
    said = b"\nllama-3-8b-node-0-1:5026:5070 [1] init.cc:71 NCCL WARN %b\n" % message
    rest = [line for line in LINES[FIRST:] if b":5026:" not in line]
    return [*LINES[:FIRST], said, *rest]


def test_an_error_that_was_the_last_word_of_a_rank_is_fatal() -> None:
    finding = lead(last_words(b"Async job state is 3, expected 3"))
    assert (finding.rule, finding.severity, finding.fatal, finding.ranks) == ("internal-error", "error", True, [3])


def test_the_same_error_is_not_where_the_rank_goes_on() -> None:
    lines = last_words(b"Async job state is 3, expected 3")
    goes_on = b"llama-3-8b-node-0-1:5026:5026 [1] NCCL INFO Connected all trees\n"
    at = next(index for index, line in enumerate(lines) if b"Async job" in line)
    job = nccl_inspect.read(b"".join([*lines[: at + 1], goes_on]))
    assert job.verdict != "failed"


def test_of_lost_connections_the_silent_host_is_told_and_not_the_victims() -> None:
    job = nccl_inspect.read(TESTS / "logs" / "judging" / "silent-host.log")
    lead = job.findings[0]
    assert (lead.rule, lead.ranks, lead.hosts) == ("peer-death", [2, 3], ["h1"])
    assert {row.rank for row in ranks.rows(job) if ranks.is_bad(row)} == {2, 3}


def test_a_rank_whose_log_is_here_is_not_said_to_be_elsewhere() -> None:
    echoes = [one for one in nccl_inspect.read(KILLED).notices if "Connection closed by remote peer" in one.message]
    assert echoes
    assert "whose log is missing" in lost_peer.why_closed(echoes)
    assert lost_peer.why_closed(echoes, is_here=True).endswith("that failed first printed no error in this log")
