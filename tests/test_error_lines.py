"""Every error line that the grammar knows leads to a rule, which says what to do about it."""

import pytest

from nccl_inspect.grammar import engine as grammar
from nccl_inspect.rules import engine

RULES = {entry.rule.name: entry.rule for entry in engine.registered()}
PRODUCTIONS = grammar.shipped().productions


@pytest.mark.parametrize("name", sorted({production.rule for production in PRODUCTIONS} - {""}))
def test_a_rule_that_the_grammar_names_exists(name: str) -> None:
    assert name in RULES
