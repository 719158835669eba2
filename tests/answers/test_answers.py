"""All recorded inputs give the answers that are stored for them; `make answers` stores them anew."""

from __future__ import annotations

import pytest
from answers import CORPORA, SHARDS, changes, judge, shard, stored


@pytest.mark.parametrize("number", range(SHARDS))
@pytest.mark.parametrize("corpus", CORPORA)
def test_answers_are_those_that_are_stored(corpus: str, number: int) -> None:
    before, found = stored(corpus), judge((corpus, number))
    differences = [line for name in found for line in changes(name, before.get(name), found[name])]
    assert not differences, "\n".join(
        [f"{corpus}: answers differ from tests/answers/{corpus}.jsonl; `make answers` stores them:", *differences[:200]]
    )


@pytest.mark.parametrize("corpus", CORPORA)
def test_each_stored_answer_has_an_input(corpus: str) -> None:
    inputs = [one.name for number in range(SHARDS) for one in shard(corpus, number)]
    assert sorted(inputs) == sorted(stored(corpus))
