"""The pages of the rules: each is complete, and the stored answers to its examples are what it says.

`tests/answers` proves that the stored answers are those of the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from answers import read_stored
from repository import ROOT
from rule_pages import RULES, Example, examples

from nccl_inspect.errors import PageError
from nccl_inspect.grammar.engine import load_grammar
from nccl_inspect.grammar.layers import list_roles
from nccl_inspect.judging import engine, pages, remedies
from nccl_inspect.judging.check import Facts, Hit

FOLDER = Path(engine.__file__).parents[1] / "rules"
HEADINGS = ["What it means", "Why it matters", "What to do", "When to ignore it", "What it does not prove", "Examples"]
OUTCOMES = {"raises", "silent", "undecided"}
OPTIONS = {"severity", "confidence", "clue", "platform", "topology", "repeat", "beside", "ranks", "line", "findings"}
TEXTS = ("summary", "cause", "impact", "confirm")


def gaps(name: str) -> Iterator[str]:
    """Yield what a page lacks."""
    page = RULES[name].page
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```.*?^```$", "example", page, flags=re.MULTILINE | re.DOTALL)
    if not page.startswith(f"# {name}\n\n"):
        yield "its heading is not the rule's name"
    if re.findall(r"^## (.*)$", prose, re.MULTILINE) != HEADINGS:
        yield f"its sections are not {HEADINGS}"
    if not all(part.strip() for part in re.split(r"^#.*$", plain, flags=re.MULTILINE)[1:]):
        yield "a section is empty"
    source = (FOLDER / f"{name.replace('-', '_')}.md").read_text(encoding="utf-8")
    if unworded := {*re.findall(r"<\w+>", prose)} - {*re.findall(r"<\w+>", source)}:
        yield f"no words for all jobs (judging/tables.txt): {unworded}"
    if max(map(len, prose.splitlines())) > 120:
        yield "a line is longer than 120"
    if not {"raises", "silent"} <= {example.outcome for example in examples(name)} <= OUTCOMES:
        yield "its examples do not raise and are silent"


def test_each_rule_has_a_complete_page() -> None:
    assert {path.stem.replace("_", "-") for path in FOLDER.glob("*.md")} == {*RULES}
    wrong = [f"{FOLDER / name.replace('-', '_')}.md: {gap}" for name in RULES for gap in gaps(name)]
    assert not wrong, "\n".join(wrong)


PRODUCTIONS = {f"{one.dialect}/{one.name}" for one in load_grammar().productions}
WORDS = {
    "production": PRODUCTIONS,
    "with": PRODUCTIONS,
    "only": PRODUCTIONS,
    "role": set(list_roles()),
    "dialect": {one.dialect for one in load_grammar().productions},
    "rule": set(RULES),
}
UNREAD = {
    *("lines-damaged", "lines-cut-off"),
    *(name for name in RULES if "\nabout: warning " in (FOLDER / f"{name.replace('-', '_')}.md").read_text("utf-8")),
}
"""Rules about lines that no production may know."""
MODULES = {
    name: text
    for path in FOLDER.glob("*.py")
    for text in [path.read_text(encoding="utf-8")]
    for name in (path.stem, *re.findall(r"^def (\w+)", text, re.MULTILINE))
}
FIELDS = {name for one in load_grammar().productions for name in (*one.shape.names, *one.constants)}


def faults(declared: str, said: str, name: str) -> Iterator[str]:
    """Yield what is wrong with the block of a page."""
    try:
        cases = pages.cases(said, name)
    except PageError as error:
        yield str(error)
        return
    check = re.search(r"^check: (\w+)", declared, re.MULTILINE)
    module = MODULES.get(check[1] if check else name, "")
    found_out = {text or key for text, key in re.findall(r'"([^"\n]*)"|\b(\w+)=', module)}
    block = f"{declared}\n{said}"
    found_out |= {*re.findall(r"^(?:beside|known): (\w[\w ]*) = ", block, re.MULTILINE)}
    conditions = re.findall(r"^(?:(?:when|unless|except): ([^#\n]*)|\w+ if (.+?): )", block, re.MULTILINE)
    asked = "\n".join(map("".join, conditions)).replace(" & ", "\n")
    asked += "".join(f"\nis {part[2]}" for part in pages.PART.finditer(block) if part[2] not in FIELDS)
    may_have = (
        "settings paths more account partial running effects who file lines costs steps idle doubtful concerned "
        "cuda_code cuda_file cuda_errors cuda_cause cuda_telling cuda_kernel cuda_fix cuda_try"
    )
    always = {*may_have.split(), *pages.DERIVED}
    for word, *rest in (line.removeprefix("not ").split() for line in asked.strip().splitlines()):
        if word == "is" and " ".join(rest).partition("=")[0] not in found_out | always:
            yield f"no field of a statement, and nothing that the module finds out: '{' '.join(rest)}'"
        yield from (f"no {word} {one}" for one in rest if word in WORDS and one not in WORDS[word])
    sources = re.findall(r"^(?:about|beside|known|explains): (?:\w[\w ]* = )?(?:-?\d+ )?([^#\n]*)", block, re.MULTILINE)
    for about in (*sources, *re.findall(r"^(?:not )?found (.*)", asked, re.MULTILINE)):
        word, *rest = re.split(" where | saying | not saying ", about)[0].split()
        if word not in pages.SOURCES and not {word, *rest} <= PRODUCTIONS:
            yield f"no statements are {about}"
        if word == "role" and not list_roles().keys() >= {*rest}:
            yield f"no statements are {about}"
    for text in (text for case in cases for texts in case.values() for text in texts):
        named = (match[2] for match in pages.PLACEHOLDER.finditer(text) if match[1] != "count")
        known = {*pages.PLACEHOLDERS, *pages.FIGURES, *FIELDS, *found_out, *always}
        yield from (f"nothing is called {one}: {text}" for one in named if one not in known)
        if re.search(r"\d GB/s", text):
            yield f"a rate without a source: {text}"
    for step in (step for case in cases for step in pages.steps(case)):
        is_prose = re.match(r"(?:[A-Z][a-z]+|look|see|check|ask|set|use) [a-z]", step)
        if not step or (is_prose and not remedies.is_sentence(step)):
            yield f"neither a command nor a sentence: {step}"
        if re.search(r"\S {1,2}# |\S {4,}# ", step):
            yield f"three blanks precede a comment: {step}"


def test_the_blocks_of_pages_are_well_formed() -> None:
    wrong = []
    for page in sorted(FOLDER.glob("*.md")):
        declared, mark, said = pages.split(page.read_text(encoding="utf-8"))[0].partition("\nsummary: ")
        wrong += [f"{page}: {fault}" for fault in faults(declared, f"summary: {said}", page.stem)] if mark else []
    assert not wrong, "\n".join(wrong)


PAGE = dedent(re.split(r"^   ````.*\n", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1])
"""The first page of whoever writes one."""


@pytest.mark.parametrize(
    ("given", "broken", "reason"),
    [
        ("category: environment\n", "", "the rule has no category"),
        ("category: environment", "category: networks", "choose from intra-node path"),
        ("title:", "titel:", "no such key here; choose from about"),
        ("summary:", "fix: ls\nsummary:", "no such key here"),
        ("cause: all licenses are in use, or the server does not know this node\n", "", "the rule has no cause"),
        ("cause: all", "cause: unknown\ncause: all", "repeats cause"),
        ("cause: all", "cause:all", "has no 'KEY: '"),
        ("stops:", "\nstops:", "a blank line in the block"),
        ("{text}", "«text?{text}", "a part is «NAME? text»"),
        ("{text}", "«text?{text},\n  «not text?{message}»»", ""),
        ("stops:", "impact:", ""),
        ("stops:", "deadly: yes\nimpact:", "deadly does not go with impact"),
        ("when: says in use", "when: unlucky", "'unlucky' is not a condition"),
        ("when: says in use", "when: failed & not unlucky", "'not unlucky' is not a condition"),
        ("when: says in use", "cause if unlucky: none is left\nwhen: says in use", "'unlucky' is not a condition"),
        ("when: says in use", "cause if failed: none is\n  left\nwhen: says in use", ""),
        ("when: says in use", "words: text low = too few\nwhen: says in use", ""),
        ("when: says in use   # all are taken", "cause if failed: none is left", "follows a case of one line"),
        ("   # all are taken", "\nfix: ls", "or its words (#)"),
        ("summary:", "sumary:", "has no block with a summary"),
        ("## When to", "## Whether to", "no section '## When to ignore it'"),
        ("```examples", "```log", "no block of examples"),
    ],
)
def test_a_broken_page_is_named(tmp_path: Path, given: str, broken: str, reason: str) -> None:
    page = PAGE.replace(given, broken, 1)
    assert page != PAGE
    (tmp_path / "license_refused.md").write_text(page, encoding="utf-8")
    found = ""
    try:
        (entry,) = pages.load_rules(tmp_path, ())
        assert entry.rule.name in pages.render_page(page, entry.rule)
    except PageError as error:
        found = str(error)
    assert found.startswith("license_refused.md: ") if reason else found == ""
    assert reason in found


def test_an_example_without_lines_has_the_log_above(tmp_path: Path) -> None:
    page = PAGE.replace(
        "\n>>> silent\n", "\n>>> raises line=1 platform=p5.48xlarge   # Elsewhere, too\n>>> silent\n", 1
    )
    (tmp_path / "license_refused.md").write_text(page, encoding="utf-8")
    (entry,) = pages.load_rules(tmp_path, ())
    first, again, other = re.findall(r"^```log .*\n(.*)$", pages.render_page(page, entry.rule), re.MULTILINE)
    assert first == again != other


def test_a_page_says_nothing_that_its_function_passes_over(tmp_path: Path) -> None:
    (tmp_path / "license_refused.md").write_text(PAGE, encoding="utf-8")

    def license_refused(facts: Facts) -> Iterator[Hit]:
        yield from ()

    module = ModuleType(__name__)
    vars(module)["license_refused"] = license_refused
    with pytest.raises(PageError, match="a function finds what the rule is about: about says nothing"):
        list(pages.load_rules(tmp_path, [module]))


def contradictions(example: Example, answer: dict[str, Any] | None) -> Iterator[str]:
    """Yield how the answer to an example differs from what its page says."""
    if answer is None:
        yield "no answer is stored: make answers"
        return
    if unknown := example.options.keys() - OPTIONS:
        yield f"unknown options {unknown}"
    unread = [entry for entry in answer.get("sources", ()) if entry.split()[-3::2] != ["0", "0"]]
    if unread and example.rule not in UNREAD:
        yield f"lines are not recognised, or damaged: {unread}"
    found = [finding for finding in answer.get("findings", ()) if finding["rule"] == example.rule]
    questions = [question for question in answer.get("not_judged", ()) if question["rule"] == example.rule]
    if (
        str(len(found)) != example.options.get("findings", "1")
        if example.outcome == "raises"
        else example.outcome == "silent" and found
    ):
        yield f"{len(found)} findings"
    elif example.outcome == "raises":
        yield from differences(example, found[0])
    elif example.outcome == "undecided":
        if not questions or not all(question["reason"] and question["needs"] for question in questions):
            yield f"open questions {questions}"
        if any(finding["confidence"] != "possible" for finding in found):
            yield "a finding that is more than possible"


def differences(example: Example, finding: dict[str, Any]) -> Iterator[str]:
    """Yield how a finding differs from what the example says of it."""
    known: dict[str, Any] = {key: example.options.get(key, finding[key]) for key in ("severity", "confidence")}
    known |= {"ranks": example.ranks, "clue": example.options.get("clue") == "true"}
    for key, value in known.items():
        if (finding.get(key) or type(value)()) != value:
            yield f"{key} {finding.get(key)}, not {value}"
    if finding.get("clue") and (finding["confidence"] == "certain" or not finding.get("confirm")):
        yield "a clue that is certain, or that nothing would confirm"
    if not all(finding.get(key) for key in ("evidence", "summary", "cause", "impact", "fix")):
        yield "a text or the evidence is empty"
    if re.search(r"\bNone\b", "\n".join([*(str(finding.get(key, "")) for key in TEXTS), *finding.get("fix", ())])):
        yield "a text says None"
    source, _, number = example.options["line"].rpartition(":")
    if (line := f"{source or '<bytes>'}:{number}") not in finding["evidence"]:
        yield f"evidence {finding['evidence']}, without {line}"


def test_examples_come_out_as_their_pages_say() -> None:
    answers = read_stored("pages")
    wrong = [
        f"{FOLDER / name.replace('-', '_')}.md: example {example.number} ({example.outcome}): {what}"
        for name in RULES
        for example in examples(name)
        for what in contradictions(example, answers.get(f"{name}#{example.number}"))
    ]
    assert not wrong, "\n".join(wrong)
