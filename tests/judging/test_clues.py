"""Clues: findings that rest on a statement, a setting or an inventory, without an effect in the log."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.judging import verdicts
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.judgement import Judgement
from nccl_inspect.model.document import finding_to_dict
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, load
from nccl_inspect.report.digest import reason, verdict_line

RULE = Rule(name="gdr-disabled", category="gpudirect", severity="warning", title="No GPUDirect RDMA")
CONNECTED = b"node-a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
BEGUN = b"node-a:1:1 [0] NCCL INFO cudaDriverVersion 13000\n"


def clue(severity: str = "warning", confidence: str = "likely") -> Finding:
    return RULE.clue(
        f"a {confidence} {severity}",
        cause="c",
        impact="i",
        fix=["f"],
        confirm="grep GDRDMA job.log",
        severity=severity,
        confidence=confidence,
    )


def job(*findings: Finding, log: bytes = BEGUN) -> Job:
    found = nccl_inspect.read(log)
    found.findings = list(findings)
    judged = Judgement([], [], found.findings, [], [], found.unexplained, found.paths)
    found.verdict = verdicts.of_job(found, judged)
    return found


@pytest.mark.parametrize("severity", ["error", "warning"])
@pytest.mark.parametrize("confidence", ["likely", "possible"])
@pytest.mark.parametrize("log", [BEGUN, CONNECTED])
def test_a_clue_leaves_the_verdict_unknown(log: bytes, severity: str, confidence: str) -> None:
    assert job(clue(severity, confidence), log=log).verdict == "unknown"


def test_the_headline_leads_with_the_strongest_clue() -> None:
    guess, surer = clue("error", "possible"), clue("warning", "likely")
    assert verdict_line(job(guess, surer)) == "UNKNOWN, likely: a likely warning"
    assert verdict_line(job(guess)) == "UNKNOWN, possibly: a possible error"


def test_an_info_does_not_make_the_headline() -> None:
    assert verdict_line(job(clue("info"))) == (
        "UNKNOWN: the log ends before a communicator begins, at line 1: still starting, stuck, or cut"
    )


def test_a_headline_without_verdict_is_reason_and_word() -> None:
    found = job(clue())
    assert verdict_line(found) == f"UNKNOWN, {reason(found)}"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_report_says_what_would_confirm_it(form: str) -> None:
    page = load(form).render(job(clue()), Style())
    assert "grep GDRDMA job.log" in page
    assert "confirm" in page.lower()


def test_the_document_says_so_too() -> None:
    entry = finding_to_dict(clue())
    assert (entry["clue"], entry["confirm"], entry["culprits"]) == (True, "grep GDRDMA job.log", [])
