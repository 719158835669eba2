"""The engine that runs the rules: which ones, in which order, and what they know of each other."""

from __future__ import annotations

import fnmatch
import json
import random
from dataclasses import replace
from graphlib import TopologicalSorter
from inspect import signature
from itertools import pairwise

import pytest
from answers import shard
from repository import ROOT
from rule_pages import RULES

import nccl_inspect
from nccl_inspect import judge
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging import engine
from nccl_inspect.judging.agreement import AGREEMENTS
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.relations import Relations, relations

SHM = (
    b"vm:100:100 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    b"vm:100:100 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
)


def found(**options: list[str]) -> set[str]:
    job = nccl_inspect.read(SHM, **options)  # type: ignore[arg-type]
    return {finding.rule for finding in job.findings}


def test_rules_are_selected_and_ignored_by_name_glob_and_category() -> None:
    both = {"p2p-disabled-by-env", "shm-instead-of-p2p"}
    for select, expected in (
        (["p2p-disabled-by-env"], {"p2p-disabled-by-env"}),
        (["shm-*"], {"shm-instead-of-p2p"}),
        (["intra-node path"], both),
        (["Intra-Node Path"], both),
        (["network"], set()),
    ):
        assert found(select=select) == expected, select
        assert found(ignore=select) == both - expected, select
    left = {entry.rule.name for entry in engine.selected(["socket-*"], ["*-ib"])}
    assert left == {"socket-instead-of-efa", "socket-instead-of-rdma"}
    for option in ("select", "ignore"):
        with pytest.raises(NcclInspectError, match="no rule 'no-such-rule'"):
            found(**{option: ["no-such-rule"]})


def test_rules_are_ordered_by_category_and_name() -> None:
    order = [(engine.CATEGORIES.index(rule.category), rule.name) for rule in RULES.values()]
    assert all(before < after for before, after in pairwise(order))
    assert {rule.severity for rule in RULES.values()} <= {*engine.SEVERITIES}


def test_rules_name_others_that_exist_and_no_rule_is_an_echo_of_its_own_echoes() -> None:
    wrong = [
        f"nccl_inspect/rules/{rule.name.replace('-', '_')}.py: no rule is called {name}"
        for rule in RULES.values()
        for name in (*rule.explains, *rule.causes, *rule.echoes, *rule.supersedes)
        if not fnmatch.filter(RULES, name)
    ]
    assert not wrong, "\n".join(wrong)
    TopologicalSorter({name: relations().leading(name) for name in RULES}).prepare()  # a cycle raises
    assert {rule for one in AGREEMENTS if one.effect for rule in one.effect.rules} <= {*RULES}
    assert len({one.name for one in AGREEMENTS}) == len(AGREEMENTS)


def test_a_new_cause_names_its_effects_by_a_glob_and_edits_none_of_them() -> None:
    new = replace(RULES["plugin-not-found"], name="new-failure", causes=(), echoes=("watchdog-*",))
    known = Relations([*RULES.values(), new])
    assert "new-failure" in known.leading("watchdog-stuck") and "new-failure" in known.leading("watchdog-timeout")
    assert "new-failure" not in relations().leading("watchdog-stuck")


def test_a_rule_that_explains_findings_gets_them() -> None:
    for entry in engine.registered():
        assert len(signature(entry.judge).parameters) == (2 if entry.rule.explains else 1), entry.rule.name


def test_what_is_concluded_does_not_depend_on_the_order_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    random.Random(1).shuffle(rules := list(engine.registered()))
    logs = [*shard("logs", 0), *shard("logs", 1)]
    expected = [json.dumps(one.read().to_dict()) for one in logs]
    monkeypatch.setattr(judge, "registered", lambda: tuple(rules))
    wrong = [one.name for one, known in zip(logs, expected, strict=True) if json.dumps(one.read().to_dict()) != known]
    assert len(logs) > 10
    assert not wrong, "\n".join(["another answer with the rules in another order:", *wrong])


def test_judging_leaves_the_job_as_it_is() -> None:
    job = nccl_inspect.read(str(ROOT / "sample_logs" / "peer-killed"))
    before = json.dumps(job.to_dict())
    judgement = judge.judge(Facts(job), [])
    assert json.dumps(job.to_dict()) == before
    judgement.put_into(job)
    assert not job.findings and "peer-death" in job.left_out
