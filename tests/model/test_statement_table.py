"""Statements in columns are those that lines give one by one, whoever has too many, and wherever a log is cut."""

from __future__ import annotations

from math import inf

import fuzz_columns
import pytest

from nccl_inspect.model.fold import process_log, statement_table, tables

WARN = b"vm:%d:7 [0] x.cc:%d NCCL WARN message %d"
BLOCKS = [
    [WARN % (pid, number % 3, number * number % size) for number in range(60) for pid in (7, 8, 9)]
    for size in (5, 7, 59, 11)
]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (process_log, tables):
        monkeypatch.setattr(module, "MAX_NOTES", 20)
        monkeypatch.setattr(module, "LONG", 60)
    monkeypatch.setattr(process_log, "MAX_LONG", 3)
    monkeypatch.setattr(statement_table, "FEW", 10)
    monkeypatch.setattr(statement_table, "MANY", 30)


@pytest.mark.usefixtures("few")
def test_more_statements_than_are_kept_apart_are_the_same_ones() -> None:
    assert fuzz_columns.difference(BLOCKS) is None


@pytest.mark.usefixtures("few")
def test_long_statements_are_the_same_ones() -> None:
    long = [WARN % (7, 1, number) + b" and so on" * (number % 3 * 3) for number in range(30)]
    assert fuzz_columns.difference([BLOCKS[0], long, BLOCKS[0] + long, long[:5]]) is None


def test_objects_are_made_when_somebody_asks() -> None:
    fold = fuzz_columns.folded(BLOCKS, 0)
    logs = list(fold.processes.values())
    fuzz_columns.document(fold)
    assert all(log.statement_table is not None and not log.own for log in logs)
    sizes = [log.note_count for log in logs]
    assert [len(log.notes) for log in logs] == sizes
    assert not any(log.statement_table for log in logs)


@pytest.mark.parametrize("at", range(1, len(BLOCKS)))
@pytest.mark.parametrize("large", [(0, 0), (0, inf), (inf, 0)])
def test_folds_with_statements_in_columns_merge(at: int, large: tuple[float, float]) -> None:
    whole = fuzz_columns.state(fuzz_columns.folded(BLOCKS, inf))
    fold, later = fuzz_columns.folded(BLOCKS[:at], large[0]), fuzz_columns.folded(BLOCKS[at:], large[1])
    fold.merge(later)
    assert fuzz_columns.state(fold) == whole
