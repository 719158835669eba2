"""The pages of the rules: each is complete, and its examples come out as it says."""

import re
from pathlib import Path

import pytest
from rule_pages import EXAMPLES, RULES, Example, examples

from nccl_inspect.judging import engine

HEADINGS = [
    "What it means",
    "Why it matters",
    "What to do",
    "When to ignore it",
    "What it does not prove",
    "Examples",
]
OUTCOMES = {"raises", "silent", "undecided"}
OPTIONS = {"severity", "confidence", "clue", "platform", "topology", "repeat", "beside", "ranks", "line"}
RANK_IN_TEXT = "only the message names the rank"
OTHER_LINE = "the line that shows it is not among those quoted"
SHORT = {
    "bootstrap-failed-1-raises": RANK_IN_TEXT,
    "container-killed-1-raises": "of the ranks in the pod those are left out that wrote nothing after the start",
    "duplicate-gpu-10-raises": RANK_IN_TEXT,
    "few-channels-1-raises": OTHER_LINE,
    "few-channels-5-raises": OTHER_LINE,
    "gdr-one-sided-1-raises": "the quoted lines are those of the sound ends",
    "nccl-check-failed-2-raises": RANK_IN_TEXT,
    "nic-asymmetry-3-raises": RANK_IN_TEXT,
    "nic-asymmetry-8-raises": RANK_IN_TEXT,
    "nic-shared-1-raises": OTHER_LINE,
    "no-transport-1-raises": RANK_IN_TEXT,
    "no-transport-2-raises": RANK_IN_TEXT,
    "no-transport-3-raises": RANK_IN_TEXT,
    "one-gpu-per-pod-2-raises": "a rank without a connection in the log is left out",
    "process-unresponsive-1-raises": "the answer of RAS names the rank, far below its first line",
    "ring-crosses-nodes-too-often-1-raises": OTHER_LINE,
    "rings-disagree-1-raises": OTHER_LINE,
    "rings-disagree-2-raises": OTHER_LINE,
    "version-mismatch-2-raises": RANK_IN_TEXT,
    "version-mismatch-3-raises": RANK_IN_TEXT,
}
"""Examples whose finding says less than the log: their pages state what is true."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_complete_page(name: str) -> None:
    page = RULES[name].page
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    assert page.startswith(f"# {name}\n\n")
    assert re.findall(r"^## (.*)$", prose, re.MULTILINE) == HEADINGS
    plain = re.sub(r"^```.*?^```$", "example", page, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#.*$", plain, flags=re.MULTILINE)
    assert all(part.strip() for part in parts[1:])
    assert max(map(len, prose.splitlines())) <= 120
    kinds = {example.outcome for example in examples(name)}
    assert {"raises", "silent"} <= kinds <= OUTCOMES


def test_every_page_has_a_rule() -> None:
    pages = {path.stem.replace("_", "-") for path in (Path(engine.__file__).parents[1] / "rules").glob("*.md")}
    assert pages == set(RULES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_comes_out_as_its_page_says(example: Example) -> None:
    assert example.options.keys() <= OPTIONS
    job = example.read()
    sound = all(source.unrecognised_lines == source.damaged_lines == 0 for source in job.sources)
    assert sound or example.rule in ("lines-damaged", "lines-cut-off")
    findings = [finding for finding in job.findings if finding.rule == example.rule]
    open_questions = [question for question in job.not_judged if question.rule == example.rule]
    if example.outcome == "raises":
        (finding,) = findings
        assert example.options.get("severity", finding.severity) == finding.severity
        assert example.options.get("confidence", finding.confidence) == finding.confidence
        assert finding.clue == (example.options.get("clue") == "true")
        if finding.clue:
            assert finding.confidence != "certain"
            assert finding.confirm
        assert finding.evidence
        assert finding.summary
        assert finding.cause
        assert finding.impact
        assert finding.fix
    elif example.outcome == "silent":
        assert not findings
    else:
        assert open_questions
        assert all(question.reason and question.needs for question in open_questions)
        assert all(finding.confidence == "possible" for finding in findings)


def _known(example: Example) -> object:
    reason = SHORT.get(example.id)
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(example, id=example.id, marks=marks)


@pytest.mark.parametrize(
    "example", [_known(example) for name in RULES for example in examples(name) if example.outcome == "raises"]
)
def test_the_finding_of_an_example_names_its_ranks_and_quotes_the_line_that_shows_it(example: Example) -> None:
    (finding,) = [finding for finding in example.read().findings if finding.rule == example.rule]
    assert finding.ranks == example.ranks
    quoted = {(Path(one.source).name, one.line) for one in finding.evidence}
    source, _, number = example.options["line"].rpartition(":")
    assert (source or "<bytes>", int(number)) in quoted


def test_examples_that_say_less_than_the_log_exist() -> None:
    assert SHORT.keys() <= {example.id for name in RULES for example in examples(name)}
