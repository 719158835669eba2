"""All recorded inputs give the answers that are stored for them; `make answers` stores them anew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from answers import CORPORA, SHARDS, answer, changes, inputs_of, read_stored, shard
from known_labels import KEYS, contradictions, inputs, labels


def parts() -> Iterator[Any]:
    """Yield the parts of all corpora; recordings that repeat others, and half of the largest corpora, are slow."""
    for corpus, number in product(CORPORA, range(SHARDS)):
        is_slow = corpus == "repeated" or (corpus in ("built", "outputs") and number % 2 == 1)
        yield pytest.param(corpus, number, marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize(("corpus", "number"), list(parts()))
def test_answers_are_those_that_are_stored_and_known(corpus: str, number: int) -> None:
    before, differences, wrong = read_stored(corpus), [], []
    for one in shard(corpus, number):
        found, job = answer(one)
        differences += changes(one.name, before.get(one.name), found)
        if one.name in labels():
            known = contradictions(one, job, found) if job else [f"not read: {found}"]
            wrong += [f"{labels()[one.name][0]}: {one.name}: {what}" for what in known]
    if differences:
        differences.insert(0, f"answers differ from tests/answers/{corpus}.jsonl; `make answers` stores them:")
    if wrong:
        wrong.insert(0, "labels in tests/labels say otherwise:")
    assert not wrong + differences, "\n".join(wrong + differences[:200])


@pytest.mark.parametrize("corpus", CORPORA)
def test_each_stored_answer_has_an_input(corpus: str) -> None:
    assert sorted(one.name for one in inputs_of(corpus)) == sorted(read_stored(corpus))


def test_each_label_is_about_an_input_and_has_known_keys() -> None:
    unknown = [f"{file}: {name}" for name, (file, _) in labels().items() if name not in inputs()]
    odd = [
        f"{file}: {name}: {sorted(keys - KEYS)}"
        for name, (file, label) in labels().items()
        if (keys := {*label}) - KEYS
    ]
    assert not unknown + odd


def test_every_log_of_a_kind_with_labels_has_one() -> None:
    folders = {name.rpartition("/")[0] for name in labels() if name.startswith(("tests/", "sample_logs/"))}
    assert not [name for name in inputs() if name.rpartition("/")[0] in folders and name not in labels()]
