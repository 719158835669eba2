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
        texts = (finding.summary, finding.cause, finding.impact, *finding.fix, finding.confirm)
        assert not [text for text in texts if re.search(r"\bNone\b", text)]
    elif example.outcome == "silent":
        assert not findings
    else:
        assert open_questions
        assert all(question.reason and question.needs for question in open_questions)
        assert all(finding.confidence == "possible" for finding in findings)


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.id) for name in RULES for e in examples(name) if e.outcome == "raises"],
)
def test_the_finding_of_an_example_names_its_ranks_and_quotes_the_line_that_shows_it(example: Example) -> None:
    (finding,) = [finding for finding in example.read().findings if finding.rule == example.rule]
    assert finding.ranks == example.ranks
    quoted = {(Path(one.source).name, one.line) for one in finding.evidence}
    source, _, number = example.options["line"].rpartition(":")
    assert (source or "<bytes>", int(number)) in quoted
