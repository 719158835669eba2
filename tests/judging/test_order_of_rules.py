"""Rules return values: what is concluded from a log does not depend on the order in which they run."""

from __future__ import annotations

import json
import random
from inspect import signature
from pathlib import Path

import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect import judge
from nccl_inspect.judging.engine import registered
from nccl_inspect.judging.facts import Facts

SAMPLES = ROOT / "sample_logs"
MANY = ("faults", "field-notes", "launchers", "mesh")
"""Folders with many jobs."""
FOLDERS = [folder for folder in SAMPLES.iterdir() if folder.is_dir() and folder.name not in MANY]
LOGS = sorted([*FOLDERS, *(log for name in MANY for log in (SAMPLES / name).iterdir() if log.suffix != ".md")])


def judged(log: Path) -> str:
    return json.dumps(nccl_inspect.read(str(log)).to_dict())


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rules_does_not_matter(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random.Random(seed).shuffle(logs := list(LOGS))
    logs = logs[: len(LOGS) // 3]
    expected = [judged(log) for log in logs]
    random.Random(seed).shuffle(rules := list(registered()))
    monkeypatch.setattr(judge, "registered", lambda: tuple(rules))
    assert [judged(log) for log in logs] == expected


def test_a_rule_that_explains_findings_gets_them() -> None:
    for entry in registered():
        assert len(signature(entry.judge).parameters) == (2 if entry.rule.explains else 1), entry.rule.name


def test_judging_leaves_the_job_as_it_is() -> None:
    job = nccl_inspect.read(str(SAMPLES / "peer-killed"))
    before = json.dumps(job.to_dict())
    judgement = judge.judge(Facts(job), [])
    assert json.dumps(job.to_dict()) == before
    judgement.put_into(job)
    assert not job.findings and "peer-death" in job.left_out
