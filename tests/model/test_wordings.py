"""Statements that all differ do not fill the memory, whoever makes them, and all of them are counted."""

from __future__ import annotations

from math import inf

import fuzz_columns
import pytest

import nccl_inspect
from nccl_inspect.model.fold import wordings
from nccl_inspect.model.fold.fold import Fold

WARN = b"vm:%d:7 [0] x.cc:%d NCCL WARN message %d"
MOST, OF_PROCESS = 20, 2


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordings, "MAX_WORDINGS", MOST)
    monkeypatch.setattr(wordings, "OF_PROCESS", OF_PROCESS)


def _statements(fold: Fold) -> list[tuple[object, int]]:
    return [(note.wording, note.count) for log in fold.processes.values() for note in log.notes.values()]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("large", [0, inf])
def test_statements_of_many_processes_that_all_differ_are_bounded(large: float) -> None:
    lines = [WARN % (number % 5, number, number) for number in range(500)]
    fold = fuzz_columns.folded([lines[:200], lines[200:]], large)
    stated = _statements(fold)
    assert len({wording for wording, _ in stated}) == MOST + OF_PROCESS * 5 + 1
    assert sum(count for _, count in stated) == len(lines)


@pytest.mark.usefixtures("few")
def test_long_statements_count_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [WARN % (number, 1, number) + b" and so on" * 4000 for number in range(30)]
    kept = {wording for wording, _ in _statements(fuzz_columns.folded([long], inf))}
    assert len(kept) < MOST // 2


@pytest.mark.usefixtures("few")
def test_one_statement_stands_for_others_of_its_kind_in_all_processes() -> None:
    lines = [WARN % (number % 5, number, number) for number in range(500)]
    job = nccl_inspect.read(b"\n".join(lines) + b"\n")
    assert len(job.notices) <= MOST + OF_PROCESS * 5 + 1
    (most,) = (notice for notice in job.notices if notice.count > 1)
    assert len(most.processes) == 5
    assert most.message.startswith("message ")
    assert sum(notice.count for notice in job.notices) == len(lines)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("at", range(1, 100, 7))
def test_folds_merge_only_if_nothing_would_have_been_too_much(at: int) -> None:
    lines = [WARN % (number // 9 % 7, 1, number % 34) for number in range(100)]
    whole = fuzz_columns.folded([lines], inf)
    fold, later = fuzz_columns.folded([lines[:at]], inf), fuzz_columns.folded([lines[at:]], inf)
    if fold.can_merge(later):
        fold.merge(later)
        assert fuzz_columns.state(fold) == fuzz_columns.state(whole)
    else:
        assert at > MOST or len(lines) - at > MOST


@pytest.mark.usefixtures("few")
def test_what_each_process_states_of_itself_is_kept() -> None:
    lines = [WARN % (number, 1, number * 2 + more) for number in range(300) for more in range(OF_PROCESS)]
    half = len(lines) // 2
    fold, later = fuzz_columns.folded([lines[:half]], inf), fuzz_columns.folded([lines[half:]], inf)
    assert fold.can_merge(later)
    fold.merge(later)
    assert len({wording for wording, _ in _statements(fold)}) == len(lines)
