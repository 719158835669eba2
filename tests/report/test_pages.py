"""Pages fit the terminal: paragraphs are wrapped anew, and nothing else is changed."""

from __future__ import annotations

import re

import pytest

from nccl_inspect.judging.engine import registered
from nccl_inspect.report.words import fitted

PAGES = {entry.rule.name: entry.rule.page for entry in registered()}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [40, 80])
def test_the_page_of_a_rule_fits(name: str, width: int) -> None:
    page = fitted(PAGES[name], 120)
    found = fitted(PAGES[name], width)
    assert found.split() == page.split()
    assert _kept(found) == _kept(page)
    prose = re.sub(r"^ *```.*?^ *```$", "", found, flags=re.MULTILINE | re.DOTALL).split("\n")
    wide = [line for line in prose if len(line) > width and not line.startswith(("|", "#"))]
    assert all(len(line.split()) <= 2 for line in wide), "only what cannot be broken is wider"


def _kept(page: str) -> list[str]:
    """Code, headings, tables and the beginnings of items."""
    code = re.findall(r"^ *```.*?^ *```$", page, flags=re.MULTILINE | re.DOTALL)
    return code + re.findall(r"^ *(?:[|#].*|[-*] |\d+\. |$)", page, flags=re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_a_wide_terminal_gets_the_page_as_it_is_but_for_what_the_tests_read(name: str) -> None:
    page = PAGES[name].split("\n")
    changed = [line for line, known in zip(fitted(PAGES[name], 120).split("\n"), page, strict=True) if line != known]
    assert len(changed) == sum(line.startswith("```log ") for line in page)
    assert all(re.match("```text (raises a finding|no finding|cannot be judged)", line) for line in changed)
