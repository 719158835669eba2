"""Failures as people report them: the established cause must lead. What they are says ``tests/cases/README.md``."""

from __future__ import annotations

import tomllib

import pytest
from repository import TESTS

import nccl_inspect

CASES = TESTS / "cases"
EXPECTED = tomllib.loads((CASES / "expected.toml").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_the_established_cause_leads(name: str) -> None:
    job = nccl_inspect.read(str(CASES / f"{name}.log"))
    faults = [finding for finding in job.findings if finding.root and finding.severity != "info"]
    assert (faults[0].rule if faults else "") == EXPECTED[name]["headline"]
    assert job.verdict == EXPECTED[name]["verdict"]
    assert not job.unrecognised


def test_every_case_is_judged() -> None:
    assert {log.stem for log in CASES.glob("*.log")} == set(EXPECTED)
