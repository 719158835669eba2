"""Healthy and slow jobs as people paste them: no false alarm, and the slow path leads. See their README."""

from __future__ import annotations

import tomllib

import pytest
from repository import TESTS

import nccl_inspect

CASES = TESTS / "cases_healthy"
EXPECTED = tomllib.loads((CASES / "expected.toml").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_job_is_judged_as_a_maintainer_would(name: str) -> None:
    case = EXPECTED[name]
    job = nccl_inspect.read(str(CASES / f"{name}.log"), platform=case.get("platform"))
    faults = [finding for finding in job.findings if finding.severity != "info"]
    assert [f"{fault.severity} {fault.rule} ({fault.confidence})" for fault in faults] == case["faults"]
    assert [finding.rule for finding in job.findings if finding.severity == "info"] == case["notes"]
    assert [question.rule for question in job.not_judged] == case["open"]
    assert job.verdict == case["verdict"]
    assert not job.unrecognised
    assert not job.unplaced_lines


def test_every_case_is_judged() -> None:
    assert {log.stem for log in CASES.glob("*.log")} == set(EXPECTED)
