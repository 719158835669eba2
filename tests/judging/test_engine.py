"""The engine that runs the rules: which ones, in which order, and what they know of each other."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import time
from collections.abc import Callable
from graphlib import TopologicalSorter
from itertools import pairwise, product
from pathlib import Path

import pytest
import sample_data
from answers import inputs_of, shard
from few_examples import every
from repository import ROOT, TESTS
from rule_pages import RULES

import nccl_inspect
from nccl_inspect import judge, report
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar.layers import BY_NAME
from nccl_inspect.judging import engine, remedies
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, is_before
from nccl_inspect.judging.siblings import AGREEMENTS
from nccl_inspect.model.document import finding_to_dict
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.report.digest import reason, verdict_line

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


def test_a_job_judged_without_rules_has_no_finding_and_knows_what_was_left_out() -> None:
    job = nccl_inspect.read(str(ROOT / "sample_logs" / "peer-killed"))
    judge.judge(judge.gather_facts(job), [])
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


# --- Ranks that fail or wait, in numbers, in pieces, and among other jobs; labels of logs say who fails

(LOG,) = (one.texts[0][1] for one in inputs_of("built") if one.name.endswith("/what ended nobody makes no failure"))
START = LOG[: LOG.index(b"\n", LOG.rindex(b"NCCL INFO Connected")) + 1] + b"step 1 loss 1.5\n"
"""Two ranks, connected, at work."""
FAILED = (
    b"E1121 16:35:11.771000 9 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1 "
    b"(pid: 611) of binary: /usr/bin/python\n"
)


def traceback(last: str, front: str = "") -> list[str]:
    frames = 'Traceback (most recent call last):\n  File "/train.py", line 3, in main\n    raise Failed\n    ^^^^^^\n'
    return [f"{front}{line}\n" for line in f"{frames}{last}".splitlines()]


def test_read_in_blocks_and_merged_where_that_is_allowed_it_is_the_same() -> None:
    lines = (START + "".join(traceback("pkg.Failed: x")).encode() + FAILED).splitlines()
    whole = sample_data.fold_sources([("log", lines)]).sources[0].raised
    assert [one.text for one in whole] == [b"pkg.Failed: x"]
    for at in range(len(lines) - 12, len(lines)):
        reader, first = Reader(), sample_data.fold_sources([("log", lines[:at])])
        reader.fold.start("log")
        reader.feed(lines[:at])
        reader.feed(lines[at:])
        assert reader.fold.sources[0].raised == whole
        later = sample_data.fold_sources([("log", lines[at:])])
        if first.can_merge(later):
            first.merge(later)
            assert first.sources[0].raised == whole


def test_a_file_in_which_ranks_wait_has_an_age(tmp_path: Path) -> None:
    (log,) = sample_data.contents("rank-missing-hang")
    file = tmp_path / "job.log"
    file.write_bytes(b"".join(log.splitlines(keepends=True)[:-1]))  # without the line of the launcher that ends it
    then = time.time() - 720
    os.utime(file, (then, then))
    job = nccl_inspect.read(file)
    assert job.waiting is not None and job.waiting.age is not None
    assert 720 <= job.waiting.age < 780
    assert "no new line for 12 min" in report.load("text").render(job, report.Style())


# --- What is found does not depend on what a collector puts around lines, nor on communicators that nobody uses


def findings_in(text: str) -> list[object]:
    job = nccl_inspect.read(text.encode())
    return [job.verdict, *((one.rule, one.severity, one.confidence, one.ranks, one.summary) for one in job.findings)]


def at_second(number: int) -> str:
    """Return a time of its own for each line."""
    return f"2026-11-20T23:{13 + number // 6000:02}:{number // 100 % 60:02}.{number % 100:02}7186812Z"


WRAPS: dict[str, Callable[[str, int], str]] = {
    "timestamps": lambda line, number: f"{at_second(number)} {line}",
    "cri": lambda line, number: f"{at_second(number)} stdout F {line}",
    "prefix": lambda line, _: f"[pod/trainer-0/pytorch] {line}",
    "prefix and timestamps": lambda line, number: f"[pod/trainer-0/pytorch] {at_second(number)} {line}",
    "json": lambda line, number: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": at_second(number)}),
}
"""The forms of ``kubectl logs --timestamps`` and ``--prefix``, of CRI's files and of Docker's json-file driver."""


@every(15)
def test_how_a_job_ended_is_told_alike_whatever_a_collector_puts_around_its_lines(step: int) -> None:
    wrong = []
    folders = sample_data.FOLDER / "launchers", sample_data.FOLDER / "faults", TESTS / "launchers"
    files = sorted(file for folder in folders for file in folder.iterdir() if file.suffix in (".gz", ".log"))
    for number, file in enumerate(files[::step]):
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode(errors="replace")
        lines = [line.rstrip("\r") for line in text.split("\n")[:-1]]
        bare = findings_in("".join(f"{line}\n" for line in lines))
        for name, wrap in [*WRAPS.items()][number % 2 :: 2]:  # each form with half of the files
            wrapped = findings_in("".join(f"{wrap(line, at)}\n" for at, line in enumerate(lines)))
            if wrapped != bare:
                wrong.append(f"{file}: {name}: {wrapped}, bare: {bare}")
    assert not wrong, "\n".join(wrong)


_RELEASES = re.compile(r"NCCL version 2\.(2[2-9]|3\d)\.")
"""They connect a communicator when it is first used."""
_COMPLETE = re.compile(
    r"(?m)^(?P<prefix>.*NCCL INFO )\w+ comm (?P<comm>0x[0-9a-f]+) (?P<who>rank (?P<rank>\d+) nranks [^1]\S* .*)"
    r" commId 0x[0-9a-f]+ - Init COMPLETE$"
)
"""A root communicator of several ranks."""


def with_lazy_split(text: str) -> str:
    """Return the log of the same job, which splits its root communicators and uses nothing of that."""

    def split(found: re.Match[str]) -> str:
        comm, rank = found["comm"], found["rank"]
        call = f"ncclCommSplit comm {comm}77 {found['who']} parent {comm} splitCount 1 color 0 key {rank}"
        lines = (f"{found['prefix']}{call}- Init START", f"{found['prefix']}{call} - Init COMPLETE")
        return "\n".join((found[0], *lines))

    return _COMPLETE.sub(split, text)


def judge_pieces(job: Job) -> list[str]:
    """Return what the rules say, without numbers of lines."""
    found = [f"{one.rule} {one.severity} {one.confidence}: {one.summary}" for one in job.findings]
    found += [f"{one.rule} not judged: {one.reason}" for one in job.not_judged]
    return sorted(re.sub(r"(line|comm) \d+", r"\1", one) for one in [*found, job.verdict])


@pytest.mark.slow
def test_a_communicator_that_is_only_initialised_changes_nothing() -> None:
    wrong, logs = [], 0
    for name in sample_data.names():
        text = b"".join(sample_data.contents(name)).decode(errors="replace")
        if _RELEASES.search(text) and "splitCount" not in text and _COMPLETE.search(text):
            before, after = (judge_pieces(nccl_inspect.read(log.encode())) for log in (text, with_lazy_split(text)))
            logs += 1
            if before != after:
                wrong.append(f"sample_logs/{name}: {after}, not {before}")
    assert logs > 5
    assert not wrong, "\n".join(wrong)


# --- What is said where the log does not decide: clues and what would confirm them, and the command for that

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


def test_a_job_that_ended_in_order_did_not_fail_with_a_call_whose_cause_is_only_possible() -> None:
    lines = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_text().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if "Init COMPLETE" in line)
    lines.insert(at, lines[at].partition(" NCCL ")[0] + " misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_cq failed\n")
    unfinished = [line for line in lines if "Destroy" not in line]
    assert nccl_inspect.read("".join(unfinished).encode()).verdict == "failed"
    assert nccl_inspect.read("".join(lines).encode()).verdict != "failed"


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
