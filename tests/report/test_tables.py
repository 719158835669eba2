"""Tables of the text reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

from nccl_inspect.report.tables import KIND_HEAD, aligned

CELLS = st.text(st.characters(categories=("L", "N", "P"), max_codepoint=0x2FF), min_size=1)


@given(st.lists(st.lists(CELLS, min_size=len(KIND_HEAD), max_size=len(KIND_HEAD)), min_size=1))
def test_a_table_is_as_tabulate_draws_it(rows: list[list[str]]) -> None:
    assert "\n".join(aligned(KIND_HEAD, rows)) == tabulate(rows, KIND_HEAD, tablefmt="simple", disable_numparse=True)
