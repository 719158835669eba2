"""What a cut message can still become: the same with the package ``regex`` and, where that is missing, without."""

from __future__ import annotations

import random
import re
import sys

import pytest
import regex

from nccl_inspect.grammar import engine
from nccl_inspect.grammar.partial import beginning, rewritten

GRAMMAR = engine.shipped()
SAMPLES = [sample.encode() for production in GRAMMAR.productions for sample in production.samples]


@pytest.mark.parametrize("part", range(8))
def test_rewritten_patterns_match_what_partial_matches_do(part: int) -> None:
    chance = random.Random(part)
    for production in GRAMMAR.productions[part::8]:
        pattern = production.shape.pattern.encode()
        theirs, ours = regex.compile(pattern, regex.DOTALL), re.compile(rewritten(pattern), re.DOTALL)
        own = [sample.encode() for sample in production.samples]
        for message in [*own, *chance.sample(SAMPLES, 5)]:
            cut = message[: chance.randint(0, len(message))]
            for text in (message, cut, cut + b" 1", cut + b"zz"):
                assert bool(theirs.fullmatch(text, partial=True)) == bool(ours.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "beginnings", "others"),
    [
        (rb"ab{2,3}c", [b"", b"a", b"ab", b"abbb", b"abbc"], [b"b", b"ac", b"abc", b"abbbb"]),
        (rb"(?:(\d+) )*end", [b"1", b"1 22", b"1 2 e"], [b"1 2x", b"e1"]),
        (rb"(?>(.*?) via(?= |\Z))(?: on)?", [b"x", b"x vi", b"x via", b"x via o"], [b"x via of"]),
        (rb"(?!No )([^ ]++) [a-f\]]", [b"No", b"Noon", b"x ]"], [b"No such", b"x g", b"x ]]"]),
    ],
)
def test_each_kind_of_part_may_be_cut(pattern: bytes, beginnings: list[bytes], others: list[bytes]) -> None:
    ours = re.compile(rewritten(pattern))
    assert [text for text in [*beginnings, *others] if ours.fullmatch(text)] == beginnings


def test_without_the_package_a_cut_line_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = b"Trees " + b" ".join(b"[%d] 1/-1/-1->0->-1" % channel for channel in range(64))
    monkeypatch.setitem(sys.modules, "regex", None)
    beginning.cache_clear()
    try:
        parsed = [GRAMMAR.parse_cut(text) for text in (trees[:960], trees[:955] + b"x" * 5)]
    finally:
        beginning.cache_clear()
    assert [one and one.production.name for one in parsed] == ["trees", None]
