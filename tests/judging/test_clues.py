"""What is said where the log does not decide: clues and what would confirm them, and the command that captures more."""

from __future__ import annotations

from itertools import product

from repository import ROOT

import nccl_inspect
from nccl_inspect import judge, report
from nccl_inspect.judging import remedies
from nccl_inspect.judging.engine import Rule
from nccl_inspect.model.document import finding_to_dict
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Job
from nccl_inspect.report.digest import reason, verdict_line

RULE = Rule(name="gdr-disabled", category="gpudirect", severity="warning", title="No GPUDirect RDMA")
CONNECTED = b"node-a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
BEGUN = b"node-a:1:1 [0] NCCL INFO cudaDriverVersion 13000\n"
NOTES = ROOT / "sample_logs" / "field-notes"


def clue(severity: str = "warning", confidence: str = "likely") -> Finding:
    told = {"cause": "c", "impact": "i", "confirm": "grep GDRDMA job.log"}
    summary = f"a {confidence} {severity}"
    return RULE.finding(summary, fix=["f"], severity=severity, confidence=confidence, **told)  # type: ignore[arg-type]


def job(*findings: Finding, log: bytes = BEGUN) -> Job:
    found = nccl_inspect.read(log)
    found.findings = list(findings)
    found.verdict = judge.judge_job(found)
    return found


def test_a_clue_leaves_the_verdict_unknown() -> None:
    for log, severity, confidence in product((BEGUN, CONNECTED), ("error", "warning"), ("likely", "possible")):
        assert job(clue(severity, confidence), log=log).verdict == "unknown", (log, severity, confidence)


def test_the_headline_leads_with_the_strongest_clue() -> None:
    guess, surer = clue("error", "possible"), clue("warning", "likely")
    assert verdict_line(job(guess, surer)) == "UNKNOWN, likely: a likely warning"
    assert verdict_line(job(guess)) == "UNKNOWN, possibly: a possible error"
    assert verdict_line(job(surer)) == f"UNKNOWN, {reason(job(surer))}"
    begun = "UNKNOWN: the log ends before a communicator begins, at line 1: still starting, stuck, or cut"
    assert verdict_line(job(clue("info"))) == begun


def test_a_report_says_what_would_confirm_it() -> None:
    for form in ("text", "markdown", "html"):
        page = report.load(form).render(job(clue()), report.Style())
        assert "grep GDRDMA job.log" in page and "confirm" in page.lower(), form
    entry = finding_to_dict(clue())
    assert (entry["clue"], entry["confirm"], entry["culprits"]) == (True, "grep GDRDMA job.log", [])


def test_no_command_is_told_that_would_only_read_the_same_log_again() -> None:
    found = nccl_inspect.read(str(NOTES / "p4d-1pod-4gpu.log"))
    needs = Needs(others=("the launch command of each host",))
    found.not_judged = [NotJudged("separate-jobs", "separate jobs or replicas", needs)]
    assert remedies.capture_command(found) is None
    for form in ("text", "markdown", "html"):
        assert "o capture it" not in report.load(form).render(found, report.Style()), form


def test_one_rank_that_ended_is_fine_and_a_log_of_settings_names_what_it_lacks() -> None:
    comm = "comm 0x3a82950 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 6000"
    alone = f"node-a:1:1 [0] NCCL INFO ncclCommInitRank {comm} commId 0xf50d - Init START\n"
    alone += f"node-a:1:1 [0] NCCL INFO ncclCommInitRank {comm} commId 0xf50d - Init COMPLETE\n"
    ended = "node-a:1:1 [0] NCCL INFO comm 0x3a82950 rank 0 nranks 1 cudaDev 0 busId 6000 - Destroy COMPLETE\n"
    setting = "node-a:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Tree\n"
    expected = {
        alone + ended: "OK: one rank, which needs no path to another, and ended in order",
        alone: "UNKNOWN: the log does not show enough to judge a path",
        alone + ended.replace("Destroy", "Abort"): "UNKNOWN: ",
        alone + ended + "run.sh: line 3:   1 Killed                  python train.py\n": "UNKNOWN: ",
        alone + 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\n' + ended: "UNKNOWN: ",
        alone + "RuntimeError: CUDA error: an illegal memory access was encountered\n" + ended: "UNKNOWN: ",
        (alone + ended) + (alone + ended).replace("node-a:1", "node-a:2"): "UNKNOWN: ",
        BEGUN.decode()
        + setting
        + "iter 10\n" * 100: "UNKNOWN: the log shows no communicator: NCCL's last line is 2 of",
        BEGUN.decode() + setting + "iter 10\n" * 50: "UNKNOWN: the log ends before a communicator begins, at line 52",
    }
    found = {log: verdict_line(nccl_inspect.read(log.encode())) for log in expected}
    assert not [(found[log], told) for log, told in expected.items() if not found[log].startswith(told)]
