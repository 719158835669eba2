"""Figures that a user reads have a source: on the rules' pages and in the words of findings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from repository import ROOT
from rule_pages import findings

RULES = ROOT / "nccl_inspect" / "rules"
MEASURED = "../../docs/explanation/measurements.md"
FIGURE = re.compile(
    r"\d (?:[GMT]i?B|[GMT]b(?:it)?)/s|\d:\d\d min|\d minutes (?:over|against)|\d s (?:over|against)"
    r"|\d times (?:less|longer|more|faster|slower)|\d MB\b"
)
"""A rate, a factor, or what was measured."""
WAIT = re.compile(r"\d (?:s|seconds|minutes|hours)\b")
"""How long a program waits; where a page says what to do, the reader waits."""
OWN = ("hang_in_init",)
"""Pages whose times are the rule's own."""
LINK = re.compile(r"^Source: \[[^\]]+\]\(([^)]+)\)\.$", re.MULTILINE)


def sections(page: str) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [part for part in re.split(r"^## ", prose, flags=re.MULTILINE) if not part.startswith("Examples")]


_SAYS = ("What i", "Why it")
"""What the sections begin with that state how things are."""


def without_source(page: str, waits: bool = True) -> list[str]:
    """The sections that tell a figure and not where it comes from."""
    told = [
        part for part in sections(page) if FIGURE.search(part) or (waits and part[:6] in _SAYS and WAIT.search(part))
    ]
    return [part for part in told if not LINK.search(part)]


@pytest.mark.parametrize("page", sorted(RULES.glob("*.md")), ids=lambda page: page.stem)
def test_a_figure_on_a_page_has_its_source_in_the_same_section(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not without_source(text, page.stem not in OWN)
    for target in LINK.findall(text):
        assert target.startswith("https://") or (RULES / target).resolve().is_file()


def test_a_page_with_a_figure_and_no_source_fails() -> None:
    bare = "## Why it matters\n\nSHM gives 13-35 GB/s.\n\n## What to do\n\nWait 10 minutes, 34 times.\n"
    assert without_source(bare) == ["Why it matters\n\nSHM gives 13-35 GB/s.\n\n"]
    assert not without_source(bare.replace("s.\n", f"s.\n\nSource: [measurements]({MEASURED}).\n"))
    assert not without_source("```log raises\nbusbw 210.85 GB/s\n```\n")
    assert without_source("## What it means\n\nPyTorch waits for 10 minutes.\n")


@pytest.mark.parametrize("module", sorted(RULES.glob("*.py")), ids=lambda module: module.stem)
def test_rules_take_rates_from_where_their_sources_are(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [text for text in texts if re.search(r"\d GB/s", text)]


def test_a_figure_in_an_impact_has_references_that_can_be_opened() -> None:
    told = [finding for finding in findings() if FIGURE.search(finding.impact)]
    assert len(told) > 20
    assert not [finding.impact for finding in told if not finding.references]
    for reference in {reference for finding in told for reference in finding.references}:
        assert reference.link.startswith("https://") or (ROOT / reference.link).exists(), reference


def test_an_impact_is_a_sentence_without_addresses() -> None:
    assert not [finding.impact for finding in findings() if re.search(r"https?:|\.(?:com|md)\b", finding.impact)]


def test_what_others_measured_can_be_opened() -> None:
    page = (ROOT / "docs" / "explanation" / "measurements.md").read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\|.*\|$", page, re.MULTILINE) if re.search(r"\d", row)]
    others, own = page.split("## Measured here")
    assert all("](http" in row or "](#measured-here)" in row for row in rows if row in others)
    assert len(re.findall(r"`(sample_logs/[^`]+)`", own)) > 4
    assert all((ROOT / path).exists() for path in re.findall(r"`(sample_logs/[^`]+)`", page))
    assert "from memory" not in page
