"""The story of a job: every statement of an error and every rule has a layer, and the story begins with the lead."""

from __future__ import annotations

import gzip
import re
from functools import partial
from pathlib import Path
from typing import Any

import large_job
import pytest
import sample_data
from answers import read_stored
from call_count import calls

import nccl_inspect
from nccl_inspect.grammar.engine import load_grammar
from nccl_inspect.grammar.layers import BY_NAME, Layer
from nccl_inspect.judge import gather_facts
from nccl_inspect.judging.engine import list_rules, rules_by_name
from nccl_inspect.judging.facts import Facts
from nccl_inspect.story.telling import tell

RETRIES = ("logged-retry", "connection-retry")
"""What is tried again says nothing about a failure."""
CLASSES = {*BY_NAME, "stage"}
RECORDED = ("sample_logs/faults/", "sample_logs/mesh-nodes/")
"""Recordings of jobs that failed."""
BARE = re.compile(r"[\w.]+:")
"""An exception without its text."""
SILENT = re.compile(r"silent since \S+:(\d+)")


def test_every_error_and_every_rule_has_a_layer() -> None:
    wrong = []
    for production in load_grammar().productions:
        is_judged = production.details.layer or not production.roles.isdisjoint(RETRIES)
        if production.constants.get("tone") == "error" and production.layer == Layer.NONE and not is_judged:
            wrong.append(f"{production.name}: an error without a layer")
    kinds = {kind for entry in list_rules() for kind in entry.rule.shows}
    for rule in (entry.rule for entry in list_rules()):
        if rule.reach == Layer.NONE and rule.category != "log quality":
            wrong.append(f"{rule.name}: no layer")
        wrong += [f"{rule.name}: may_cause names no layer: {name}" for name in set(rule.may_cause) - CLASSES - kinds]
    assert not wrong, "\n".join(wrong)


def test_the_story_of_a_recorded_fault_begins_with_the_lead_and_each_entry_follows_from_an_earlier_one() -> None:
    wrong = []
    for name, one in read_stored("samples").items():
        if not name.startswith(RECORDED) or not name.endswith((".gz", "-lazy")) or one["verdict"] != "failed":
            continue
        story, findings = one.get("story", []), one.get("findings", [])
        lead: dict[str, Any] = next(
            (finding for finding in findings if finding.get("fatal") or finding.get("root", True)), {}
        )
        if not story or story[0]["rule"] != lead.get("rule"):
            wrong.append(f"{name}: {[entry['what'] for entry in story[:1]]}, lead: {lead.get('summary')}")
        for number, entry in enumerate(story):
            if (entry.get("because") is None) != (number == 0) or (number and entry["because"] >= number):
                wrong.append(f"{name}: entry {number} follows from {entry.get('because')}")
        wrong += [
            f"{name}: {first['rule']} leads and has causes" for first in findings[:1] if not first.get("root", True)
        ]
    assert not wrong, "\n".join(wrong)


def test_a_failed_job_has_a_finding_that_says_so() -> None:
    """A failed job has an error among its findings, or what says that the log shows no reason."""
    wrong = [
        name
        for corpus in ("samples", "pages", "logs", "built")
        for name, one in read_stored(corpus).items()
        if one.get("verdict") == "failed" and not any(map(_says_that_it_failed, one.get("findings", ())))
    ]
    assert not wrong, "\n".join(wrong)


def test_what_a_rule_tells_of_a_failed_job_is_in_its_story() -> None:
    """The finding that nothing explains a failure has no story: the log shows none."""
    wrong = []
    for corpus in ("samples", "pages", "logs", "built"):
        for name, one in read_stored(corpus).items():
            lead = next(iter(one.get("findings", ())), None)
            if one.get("verdict") == "failed" and not one.get("story") and lead and lead["confidence"] != "possible":
                is_told = rules_by_name()[lead["rule"]].tells and lead["rule"] != "failure-unexplained"
                wrong += [f"{name}: {lead['rule']}"] if is_told else []
    assert not wrong, "\n".join(wrong)


def _says_that_it_failed(finding: dict[str, Any]) -> bool:
    return finding["severity"] == "error" or finding["rule"] in ("failure-unexplained", "ended-from-outside")


def test_a_log_that_ends_while_watchdogs_report_accuses_nobody_else() -> None:
    wrong = []
    for name in ("data-exhausted", "extra-call"):
        lines = gzip.decompress((sample_data.FOLDER / "faults" / f"{name}.log.gz").read_bytes()).splitlines(
            keepends=True
        )
        first = next(at for at, line in enumerate(lines, 1) if b"Watchdog caught" in line)
        for end in range(first, first + 40, 2):
            job = nccl_inspect.read(b"".join(lines[:end]))
            suspects = re.search(r"suspect: (.*)", job.head.headline if job.head else "")
            if suspects and suspects[1] != "rank 2":
                wrong.append(f"{name}, {end} lines: {suspects[0]}")
    assert not wrong, "\n".join(wrong)


def test_who_told_others_of_a_time_out_confirmed_it(tmp_path: Path) -> None:
    """A host that told others of it was not cut off, although its own output ends."""
    logs = [tmp_path / f"gpu-0{number}.log" for number in (1, 2, 3)]
    for teller, is_cut_off in ((b"this local rank", True), (b" rank 2", False)):
        for log in logs:
            packed = sample_data.FOLDER / "faults" / "net-cut" / f"{log.name}.gz"
            log.write_bytes(gzip.decompress(packed.read_bytes()).replace(b"from this local rank", b"from " + teller))
        job = nccl_inspect.read(logs)
        assert any("did not confirm the time-out" in (found.cause or "") for found in job.findings) is is_cut_off


def test_entries_say_what_happened_and_name_each_process_that_a_launcher_ended() -> None:
    wrong = []
    answers = [item for corpus in ("samples", "pages", "logs", "built") for item in read_stored(corpus).items()]
    for name, one in answers:
        story, head = one.get("story", []), one.get("head", {})
        wrong += [f"{name}: says nothing: {entry['what']}" for entry in story if BARE.fullmatch(entry["what"])]
        if "no line in the log; not the other" in head.get("where", ""):
            wrong.append(f"{name}: says twice that the others have lines: {head['where']}")
        since = SILENT.search(head.get("since", ""))
        gone = [entry["line"] for entry in story if "fell silent" in entry["what"] and len(entry["ranks"]) == 1]
        if since and gone and gone != [int(since[1])]:
            wrong.append(f"{name}: silent since line {since[1]} and since {gone}")
    by_name = dict(answers)
    for launcher in ("deepspeed-exception", "deepspeed-interrupted"):
        told = [
            entry for entry in by_name[f"sample_logs/launchers/{launcher}.log.gz"]["story"] if "told" in entry["what"]
        ]
        wrong += [] if [entry["ranks"] for entry in told] == [[0, 1, 2, 3]] else [f"{launcher}: {told}"]
    (refused, *_) = by_name["sample_logs/graph-file-refused/job.log"]["story"]
    wrong += [] if (refused["ranks"], refused["count"]) == ([0, 1, 2, 3], 1) else [f"once on each rank: {refused}"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_twice_as_many_lost_ranks_are_at_most_a_little_more_than_twice_the_work() -> None:
    small, middle, large = (calls(partial(tell, lost_ranks(hosts), [])) for hosts in (32, 64, 128))
    assert large - middle < 2.6 * (middle - small)


def lost_ranks(hosts: int) -> Facts:
    """Return the facts of a job with eight ranks on each host, which ended in order but for those who lost one."""
    log = large_job.log(hosts).decode()
    lost = (
        f"train-7f9c-node-{host}:{pid}:{pid} [0] NCCL WARN socketProgress: Connection closed by remote peer "
        f"train-7f9c-node-0<{40000 + host}>\n"
        for host, pid in enumerate(range(4008, 4000 + 8 * hosts, 8), 1)
    )
    return gather_facts(nccl_inspect.read((log + "".join(lost)).encode()))
