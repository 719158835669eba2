"""The engine that runs the rules: which ones, in which order, and what they know of each other."""

from __future__ import annotations

import json
import random
from graphlib import TopologicalSorter
from itertools import pairwise

import pytest
from answers import shard
from repository import ROOT
from rule_pages import RULES

import nccl_inspect
from nccl_inspect import judge
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar.layers import BY_NAME
from nccl_inspect.judging import engine
from nccl_inspect.judging.facts import Facts, is_before
from nccl_inspect.judging.siblings import AGREEMENTS
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding

SHM = (
    b"vm:100:100 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    b"vm:100:100 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
)


def find_rules(**options: list[str]) -> set[str]:
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
        assert find_rules(select=select) == expected, select
        assert find_rules(ignore=select) == both - expected, select
    left = {entry.rule.name for entry in engine.select_rules(["socket-*"], ["*-ib"])}
    assert left == {"socket-instead-of-efa", "socket-instead-of-rdma"}
    for option in ("select", "ignore"):
        with pytest.raises(NcclInspectError, match="no rule 'no-such-rule'"):
            find_rules(**{option: ["no-such-rule"]})


def test_rules_are_ordered_by_category_and_name_and_judge_a_job_or_explain_its_findings() -> None:
    order = [(engine.CATEGORIES.index(rule.category), rule.name) for rule in RULES.values()]
    assert all(before < after for before, after in pairwise(order))
    assert {rule.severity for rule in RULES.values()} <= {*engine.SEVERITIES}
    assert [entry.rule.name for entry in engine.list_rules() if (entry.judge is None) == (entry.explain is None)] == []


def test_rules_name_others_that_exist_and_causes_what_is_shown_and_no_effect_causes_its_cause() -> None:
    kinds = {kind for rule in RULES.values() for kind in rule.shows}
    named = {kind for rule in RULES.values() for kind in rule.may_cause}
    wrong = [
        f"{rule.name}: no rule is called {name}" for rule in RULES.values() for name in {*rule.supersedes} - {*RULES}
    ]
    wrong += [f"nothing shows {kind}, which is caused" for kind in named - kinds - {*BY_NAME, "stage"}]
    wrong += [f"nothing causes {kind}, which is shown" for kind in kinds - named]
    assert not wrong, "\n".join(wrong)
    leading = {name: [rule.name for rule in engine.causes_of(name) if not rule.nest_under_effect] for name in RULES}
    TopologicalSorter(leading).prepare()  # a cycle raises
    assert len({one.name for one in AGREEMENTS}) == len(AGREEMENTS)


@pytest.mark.slow
def test_what_is_concluded_does_not_depend_on_the_order_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    random.Random(1).shuffle(rules := list(engine.list_rules()))
    logs = [*shard("logs", 0), *shard("logs", 1)]
    expected = [json.dumps(one.read().to_dict()) for one in logs]
    monkeypatch.setattr(judge, "list_rules", lambda: tuple(rules))
    wrong = [one.name for one, known in zip(logs, expected, strict=True) if json.dumps(one.read().to_dict()) != known]
    assert len(logs) > 10
    assert not wrong, "\n".join(["another answer with the rules in another order:", *wrong])


def test_a_rule_with_a_certain_finding_supersedes_whatever_else_it_found() -> None:
    def build(rule: str, confidence: str, *, fatal: bool) -> Finding:
        return Finding(rule, "failures", "error", confidence, "", "", "", [], fatal=fatal)

    general = build("nccl-tests-failed", "certain", fatal=True)
    certain, possible = (build("peer-death", sure, fatal=False) for sure in ("certain", "possible"))
    wanted = {"peer-death", "nccl-tests-failed"}
    assert judge._drop_superseded([general, certain, possible], wanted) == [certain, possible]
    assert judge._drop_superseded([general, possible], wanted) == [general, possible]


def test_judging_leaves_the_job_as_it_is() -> None:
    job = nccl_inspect.read(str(ROOT / "sample_logs" / "peer-killed"))
    before = json.dumps(job.to_dict())
    judgement = judge.judge(judge.gather_facts(job), [])
    assert json.dumps(job.to_dict()) == before
    judgement.put_into(job)
    assert not job.findings and "peer-death" in job.left_out


def test_a_line_precedes_another_as_they_were_printed() -> None:
    """A log with its newest line first has the later line above the earlier one; of two sources nothing is known."""
    early, late = Evidence("job.log", 9, "early", order=1), Evidence("job.log", 8, "late", order=2)
    assert is_before(early, late)
    assert not is_before(late, early)
    assert not is_before(early, Evidence("other.log", 8, "late", order=2))


def test_a_gpu_is_that_of_the_initialization_before_that_of_a_bracket() -> None:
    begun = "node-a:1:1 [0] NCCL INFO comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE\n"
    facts = Facts(nccl_inspect.read(begun.encode()))
    assert [facts.gpu(0, "c0").bus_id, facts.gpu(1, "c0").bus_id] == ["60", "c0"]
