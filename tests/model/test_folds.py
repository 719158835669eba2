"""However a log is cut, read apart, handed over and put together: the job is the same."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise

import fuzz_blocks
import pytest
import sample_data
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.grammar.engine import load_grammar
from nccl_inspect.ingest.lines.prefix import NOBODY
from nccl_inspect.model import fold as folds
from nccl_inspect.model.fold import Fold, Raised, SourceCounts
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.scanning.found import Found, Text

SAMPLES = (
    *("socket-2node-tp4-dp2", "v2.21.5-ipc", "torn-p2p-8gpu", "peer-killed", "rank-missing-hang", "timestamps"),
    *("debug-file-per-process", "v2.28.9-libfabric-2node"),
)


@cache
def lines_of(name: str) -> tuple[tuple[str, bytes], ...]:
    """Return the lines of a sample, each with the name of its file."""
    files = zip(sample_data.files(name), sample_data.contents(name), strict=True)
    return tuple((str(file), line) for file, data in files for line in data.splitlines())


def fold_of(lines: Sequence[tuple[str, bytes]]) -> Fold:
    parts = [(name, [line for _, line in part]) for name, part in groupby(lines, key=lambda row: row[0])]
    return sample_data.fold_sources(parts)


def document(fold: Fold) -> str:
    """Return the whole JSON, findings and their evidence included."""
    return json.dumps(Judge(Options())(fold).to_dict(), indent=1)


@cache
def read_at_once(name: str) -> str:
    return document(fold_of(lines_of(name)))


def merge_folds(folds: Sequence[Fold], from_the_end: bool) -> Fold:
    """Return the folds as one, joined in their order, beginning with the first two or with the last two."""
    folds = list(folds)
    while len(folds) > 1:
        at = len(folds) - 2 if from_the_end else 0
        folds[at].merge(folds.pop(at + 1))
    return folds[0]


@FEW
@given(
    name=st.sampled_from(SAMPLES),
    places=st.lists(st.integers(0, 100_000), min_size=1, max_size=5),
    from_the_end=st.booleans(),
)
def test_a_log_cut_anywhere_gives_the_same_job(name: str, places: list[int], from_the_end: bool) -> None:
    """Parts may begin amid a file, and each is handed over by a process of its own."""
    lines = lines_of(name)
    ends = [0, *sorted(place % (len(lines) + 1) for place in places), len(lines)]
    folds = [fold_of(lines[start:end]) for start, end in pairwise(ends)]
    whole = merge_folds([pickle.loads(pickle.dumps(fold)) for fold in folds], from_the_end)
    assert document(whole) == read_at_once(name)


def test_an_empty_fold_changes_nothing_on_either_side() -> None:
    before, after = Fold(), fold_of(lines_of("v2.21.5-ipc"))
    before.merge(fold_of(lines_of("v2.21.5-ipc")))
    after.merge(Fold())
    assert document(before) == document(after) == read_at_once("v2.21.5-ipc")


def test_unrecognised_lines_and_warnings_keep_their_number_and_first_place() -> None:
    lines = [("log", b"vm:1:%d [0] NCCL INFO a line that no release prints" % (tid % 3)) for tid in range(30)]
    lines += [("log", b"vm:1:1 [0] misc/socket.cc:41 NCCL WARN a warning that no release prints")] * 3
    whole = fold_of(lines)
    for border in range(0, len(lines) + 1, 3):
        joined = fold_of(lines[:border])
        joined.merge(fold_of(lines[border:]))
        assert document(joined) == document(whole)
        assert {m: (n.count, n.place, n.last) for m, n in joined.unrecognised.items()} == {
            m: (n.count, n.place, n.last) for m, n in whole.unrecognised.items()
        }


def quote_job(fold: Fold) -> str:
    """Return what is said of a log, and the lines of ends and layouts, which are made when a rule asks."""
    job = Judge(Options())(fold)
    layouts = [(comm.layout, range(len(comm.rings))) for comm in job.communicators]
    ends = [list(job.paths.end_lines(side)) for side in SIDES]
    rings = [(layout.channels(), *map(layout.ring, rings), layout.contradiction()) for layout, rings in layouts]
    return json.dumps(job.to_dict(), indent=1) + repr((ends, rings))


@pytest.mark.parametrize("names", [SAMPLES[::4], pytest.param(SAMPLES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_fold_is_resolved_again_and_handed_over_with_the_same_answers(names: tuple[str, ...]) -> None:
    wrong = []
    for name in names:
        fold = fold_of(lines_of(name))
        first, again, handed_over = quote_job(fold), quote_job(fold), quote_job(pickle.loads(pickle.dumps(fold)))
        wrong += [name] if not first == again == handed_over else []
    assert not wrong


def test_both_ends_of_a_path_have_their_line() -> None:
    job = Judge(Options())(fold_of(lines_of("socket-2node-tp4-dp2")))
    for side in SIDES:
        lines = list(job.paths.where(lambda kind: kind.transport == "NET").end_lines(side))
        assert lines
        assert all(f"[{side}]" in line.text for line in lines)
    assert not list(job.paths.where(lambda kind: kind.transport == "P2P").end_lines("send"))


def test_what_one_part_of_a_source_shows_is_kept() -> None:
    flags = ("newest_first", "crowded", "elided", "decorated", "is_cut")
    for flag in flags:
        for shows_first in (True, False):
            parts = [SourceCounts("job.log"), SourceCounts("job.log")]
            setattr(parts[not shows_first], flag, True)
            parts[0].merge(parts[1])
            assert [getattr(parts[0], name) for name in flags] == [name == flag for name in flags]


def test_kept_lines_of_both_halves_of_a_source_have_their_numbers_in_it() -> None:
    begin, rest = SourceCounts("job.log"), SourceCounts("job.log")
    begin.counts.number(10)
    for half in (begin, rest):
        half.raised.append(Raised(2, b"ValueError", 3))
        half.spared.append((4, b"Segmentation fault"))
        half.benchmarks.append((5, b"step 1"))
    begin.merge(rest)
    assert [one.number for one in begin.raised] == [2, 12]
    assert [number for number, _ in begin.spared + begin.benchmarks] == [4, 14, 5, 15]


# --- the order of steps and bursts

INIT = b"vm:%d:%d [0] NCCL INFO comm 0x%d rank 0 nranks 8 cudaDev 0 busId 10 commId 0x1 - Init %b"
EDGE = b"vm:%d:%d [0] NCCL INFO Channel %02d/0 : 0[0] -> %d[%d] via P2P/CUMEM"
INTERFACE = b"vm:%d:%d [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>"


def bursts(pid: int, tid: int, peer: int, channels: range = range(4)) -> list[bytes]:
    return [EDGE % (pid, tid, channel, peer, peer) for channel in channels]


def print_by_threads(begin: bytes, peer: int) -> list[bytes]:
    """Return what two processes print, one of them with two threads, line by line in turn."""
    threads = ((7, 7), (7, 8), (9, 9))
    columns = [[INIT % (pid, tid, tid, begin), *bursts(pid, tid, peer)] for pid, tid in threads]
    return [line for lines in zip(*columns, strict=True) for line in lines]


ODD = range(97, 103)
"""Channels of many, some of which have three digits."""
STEPS = {
    "bursts that go on": [bursts(7, 7, 1), bursts(7, 7, 2), bursts(7, 7, 1), print_by_threads(b"COMPLETE", 3)],
    "several threads": [
        print_by_threads(b"START", 1),
        print_by_threads(b"COMPLETE", 2),
        bursts(7, 8, 3),
        print_by_threads(b"START", 4),
    ],
    "a process that begins anew": [bursts(7, 7, 1), [INTERFACE % (7, 7)], bursts(7, 7, 1), bursts(7, 8, 1)],
    "channels of three digits": [
        print_by_threads(b"START", 1),
        [*bursts(7, 7, 1), *bursts(7, 7, 1, ODD), *bursts(9, 9, 1)],
        bursts(7, 7, 2),
    ],
    "only such": [bursts(7, 7, 1, ODD), bursts(7, 7, 2, ODD), bursts(7, 7, 2)],
}


def differences(blocks: fuzz_blocks.Blocks) -> Iterator[str]:
    """Yield where blocks must not be cut: the parts do not merge into the whole."""
    whole = fuzz_blocks.state(fuzz_blocks.fold_log(blocks, by_line=True))
    for at in range(1, len(blocks)):
        fold, later = fuzz_blocks.fold_log(blocks[:at]), fuzz_blocks.fold_log(blocks[at:])
        fold.merge(pickle.loads(pickle.dumps(later)))
        if fuzz_blocks.state(fold) != whole:
            yield f"cut before block {at}"


def test_steps_and_bursts_are_those_that_lines_give_one_by_one() -> None:
    wrong = [f"{name}: {how}" for name, blocks in STEPS.items() for how in differences(blocks)]
    found = [(name, fuzz_blocks.difference(blocks)) for name, blocks in STEPS.items()]
    wrong += [f"{name}: {difference}" for name, difference in found if difference]
    assert not wrong, "\n".join(wrong)


# --- statements, and how many that all differ are kept

WARN = b"vm:%d:7 [0] x.cc:%d NCCL WARN message %d"
STATED = [
    [WARN % (pid, number % 3, number * number % size) for number in range(60) for pid in (7, 8, 9)]
    for size in (5, 7, 59, 11)
]
MOST, OF_PROCESS = 20, 2


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MAX_NOTES", 20), ("LONG", 60), ("MAX_LONG", 3)):
        monkeypatch.setattr(folds, name, most)


@pytest.mark.usefixtures("few")
def test_more_statements_than_are_kept_apart_and_long_ones_are_the_same_ones() -> None:
    assert fuzz_blocks.difference(STATED) is None
    long = [WARN % (7, 1, number) + b" and so on" * (number % 3 * 3) for number in range(30)]
    assert fuzz_blocks.difference([STATED[0], long, STATED[0] + long, long[:5]]) is None


def test_statements_merge() -> None:
    assert not list(differences(STATED))


@pytest.fixture
def bound_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "MAX_WORDINGS", MOST)
    monkeypatch.setattr(folds, "OF_PROCESS", OF_PROCESS)


def list_stated(lines: list[bytes]) -> list[tuple[object, int]]:
    half = len(lines) // 2
    fold = fuzz_blocks.fold_log([lines[:half], lines[half:]])
    return [(note.wording, note.count) for log in fold.processes.values() for note in log.notes.values()]


@pytest.mark.usefixtures("bound_statements")
def test_statements_of_many_processes_that_all_differ_are_bounded_and_counted() -> None:
    lines = [WARN % (number % 5, number, number) for number in range(500)]
    found = list_stated(lines)
    assert len({wording for wording, _ in found}) == MOST + OF_PROCESS * 5 + 1
    assert sum(count for _, count in found) == len(lines)
    job = Judge(Options())(fuzz_blocks.fold_log([lines]))
    (most,) = (notice for notice in job.notices if notice.count > 1)
    assert (len(most.processes), most.message[:8]) == (5, "message ")
    assert sum(notice.count for notice in job.notices) == len(lines)
    long = [WARN % (number, 1, number) + b" and so on" * 4000 for number in range(30)]
    assert len({wording for wording, _ in list_stated(long)}) < MOST // 2, "long ones count as several"
    own = [WARN % (number, 1, number * 2 + more) for number in range(300) for more in range(OF_PROCESS)]
    assert len({wording for wording, _ in list_stated(own)}) == len(own), "what each process states of itself is kept"
    fold, later = fuzz_blocks.fold_log([own[:300]]), fuzz_blocks.fold_log([own[300:]])
    assert fold.can_merge(later)


@pytest.mark.usefixtures("bound_statements")
def test_folds_merge_only_if_nothing_would_have_been_too_much() -> None:
    lines = [WARN % (number // 9 % 7, 1, number % 34) for number in range(100)]
    whole = fuzz_blocks.state(fuzz_blocks.fold_log([lines]))
    for at in range(1, 100, 7):
        fold, later = fuzz_blocks.fold_log([lines[:at]]), fuzz_blocks.fold_log([lines[at:]])
        if fold.can_merge(later):
            fold.merge(later)
            assert fuzz_blocks.state(fold) == whole
        else:
            assert at > MOST or len(lines) - at > MOST


def test_lines_of_nobody_that_come_late_hide_none_of_those_behind_them() -> None:
    """A line whose end is lost is given at the end of a torn file, with the number of its place."""
    report = b"[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Some NCCL operations have failed or timed out."
    text = Text("OTHER", report, load_grammar().parse_foreign(report))
    fold = Fold()
    fold.start("job.log")
    for numbers in ((4, 9), (7, 3)):
        block = Found()
        for number in numbers:
            block.keep(number, NOBODY, text)
        fold.take(block)
    log = fold.processes[NOBODY.process]
    assert (fold.where(log.first)[1], fold.where(log.last)[1]) == (3, 9)
