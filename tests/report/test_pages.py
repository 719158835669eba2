"""Pages fit the terminal: paragraphs are wrapped anew, and nothing else is changed; tables are those of tabulate."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

from nccl_inspect.judging.engine import list_rules
from nccl_inspect.report.tables import KIND_HEAD, align_table
from nccl_inspect.report.words import fit_page

PAGES = {entry.rule.name: entry.rule.page for entry in list_rules()}


def misfitting(text: str, width: int) -> Iterator[str]:
    """Yield what is wrong with a page in a terminal of some width."""
    page, found = fit_page(text, 120), fit_page(text, width)
    if found.split() != page.split() or _list_kept(found) != _list_kept(page):
        yield "other words, code, headings, tables or items"
    prose = re.sub(r"^ *```.*?^ *```$", "", found, flags=re.MULTILINE | re.DOTALL).split("\n")
    wide = [line for line in prose if len(line) > width and not line.startswith(("|", "#"))]
    yield from (f"could be broken: {line}" for line in wide if len(line.split()) > 2)


def test_the_pages_of_rules_fit() -> None:
    wrong = [
        f"{name}: {what}" for name, text in PAGES.items() for width in (40, 80) for what in misfitting(text, width)
    ]
    assert not wrong, "\n".join(wrong)


def _list_kept(page: str) -> list[str]:
    """Return code, headings, tables and the beginnings of items."""
    code = re.findall(r"^ *```.*?^ *```$", page, flags=re.MULTILINE | re.DOTALL)
    return code + re.findall(r"^ *(?:[|#].*|[-*] |\d+\. |$)", page, flags=re.MULTILINE)


def test_a_wide_terminal_gets_pages_as_they_are_but_for_what_the_tests_read() -> None:
    for name, text in PAGES.items():
        page = text.split("\n")
        changed = [line for line, known in zip(fit_page(text, 120).split("\n"), page, strict=True) if line != known]
        assert len(changed) == sum(line.startswith("```log ") for line in page), name
        assert all(re.match("```text (raises a finding|no finding|cannot be judged)", line) for line in changed), name


CELLS = st.text(st.characters(categories=("L", "N", "P"), max_codepoint=0x2FF), min_size=1)


@given(st.lists(st.lists(CELLS, min_size=len(KIND_HEAD), max_size=len(KIND_HEAD)), min_size=1))
def test_a_table_is_as_tabulate_draws_it(rows: list[list[str]]) -> None:
    assert "\n".join(align_table(KIND_HEAD, rows)) == tabulate(
        rows, KIND_HEAD, tablefmt="simple", disable_numparse=True
    )
