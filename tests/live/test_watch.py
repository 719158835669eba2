"""Watching a log while it is written: with a clock of our own, and the command on pipes and terminals."""

from __future__ import annotations

import json
import lzma
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import sample_data
from watching import HANG, HEALTHY, TWO_HOSTS, Clock, Watched

from nccl_inspect import artifacts
from nccl_inspect.artifacts import NOTHING, Inventory
from nccl_inspect.errors import NoInputError
from nccl_inspect.live.watch import Change, End, News, Resumed, Stall, Timing, Turn, Verdict, Watch, paired
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options

BAD_PLUGIN = b"vm:7:7 [0] NCCL INFO Failed to initialize NET plugin IB\n"


# --- looking at a job does not change what is read


@pytest.mark.parametrize("name", sample_data.names())
def test_a_fold_may_be_resolved_again_and_again_while_it_grows(name: str) -> None:
    judge = Judge(Options())
    looked_at, left_alone = Reader(), Reader()
    for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True):
        lines = data.splitlines()
        step = len(lines) // 3 + 1
        for reader in (looked_at, left_alone):
            reader.fold.start(file.name)
        for start in range(0, len(lines), step):
            for reader in (looked_at, left_alone):
                reader.feed(lines[start : start + step])
            first, second = (json.dumps(judge(looked_at.fold).to_dict()) for _ in range(2))
            assert first == second
    assert json.dumps(judge(looked_at.fold).to_dict()) == json.dumps(judge(left_alone.fold).to_dict())


@pytest.mark.parametrize("name", sample_data.names())
def test_a_job_stays_what_it_was_when_more_is_read(name: str) -> None:
    judge, reader = Judge(Options()), Reader()
    jobs, fresh = [], []
    for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True):
        lines = data.splitlines()
        reader.fold.start(file.name)
        step = len(lines) // 6 + 1
        for start in range(0, len(lines), step):
            reader.feed(lines[start : start + step])
            jobs.append(judge(reader.fold))
            fresh.append(_shown(judge(reader.fold)))
    assert list(map(_shown, jobs)) == fresh


def _shown(job: Job) -> str:
    return repr((job.to_dict(), job.without_nvls, job.communicators))


def test_resolving_leaves_every_part_of_the_fold_as_it_was() -> None:
    fold = sample_data.folded([("log", TWO_HOSTS.splitlines())])
    before = repr([fold.processes, fold.sources, fold.unrecognised])
    Judge(Options())(fold)
    assert repr([fold.processes, fold.sources, fold.unrecognised]) == before


def test_the_extent_of_a_fold_changes_with_every_line_that_counts_and_with_no_other() -> None:
    reader = Reader()
    fold = reader.fold
    fold.start("log")
    judge = Judge(Options())

    def seen() -> str:
        document = judge(fold).to_dict()
        return json.dumps([document[key] for key in ("job", "communicators", "paths", "verdict")])

    extent, known = fold.extent(), seen()
    for line in HEALTHY.splitlines():
        reader.feed([line])
        now = seen()
        assert fold.extent() != extent or now == known, line
        extent, known = fold.extent(), now
    reader.feed([b"loss 0.25", b"vm:1:1 [0] NCCL INFO a line that no release prints"])
    assert fold.extent() == extent


def kinds(news: list[News]) -> list[type]:
    return [type(one) for one in news]


def test_the_verdict_comes_when_all_is_complete_and_connected_without_a_wait() -> None:
    watched = Watched()
    (news,) = watched.after(3, HEALTHY)
    assert isinstance(news, Verdict)
    assert news.job.verdict == "ok"
    assert watched.after(100) == []
    assert watched.watch.status().verdict == "ok"


def test_connections_are_waited_for_until_nothing_comes() -> None:
    watched = Watched()
    lines = [line for line in HEALTHY.splitlines(keepends=True) if b" via " not in line and b"Connected" not in line]
    until_complete = [line for line in lines if b"Destroy" not in line and b"Abort" not in line]
    assert watched.after(0, b"".join(until_complete)) == []
    assert watched.after(2.5) == []
    assert kinds(watched.after(2.5)) == [Verdict]


def test_a_busy_log_without_nccl_lines_is_quiet() -> None:
    watched = Watched()
    ring_only = b"".join(line for line in HEALTHY.splitlines(keepends=True) if b" via " not in line)
    watched.after(0, ring_only)
    looks = [watched.after(2.5, b"step 17 loss 0.25\n" * 100) for _ in range(4)]
    assert [kinds(news) for news in looks] == [[], [Verdict], [], []]


def test_the_job_is_looked_at_four_times_in_an_interval_and_only_when_something_came() -> None:
    judged = []

    class Counting(Judge):
        def __call__(  # type: ignore[no-untyped-def]
            self, state: Fold, going_on: bool = False, quiet: float | None = None, beside: Inventory = NOTHING
        ):
            judged.append(clock())
            return super().__call__(state, going_on, quiet)

    clock = Clock()
    watch = Watch(Counting(Options()), Timing(interval=10, settle=1e9, stall=1e9), clock=clock)
    lines = [line for line in HEALTHY.splitlines(keepends=True) if b"COMPLETE" not in line]
    for line in lines[:100]:
        clock.now += 0.25
        watch.feed(line)
        watch.look()
    assert all(later - earlier >= 2.5 for earlier, later in pairwise(judged))
    assert len(judged) <= 10
    done = len(judged)
    for _ in range(100):
        clock.now += 2.5
        watch.feed(b"step\n")
        watch.look()
    assert len(judged) <= done + 1


def test_each_new_finding_comes_once_and_the_turn_of_the_verdict_with_it() -> None:
    watched = Watched()
    assert kinds(watched.after(0, HEALTHY)) == [Verdict]
    whole = watched.after(5, TWO_HOSTS)
    changes = [one for one in whole if isinstance(one, Change)]
    assert ("new", "socket-instead-of-rdma") in [(one.how, one.finding.rule) for one in changes]
    assert [one.before for one in whole if isinstance(one, Turn)] == ["ok"]
    assert watched.after(5) == []
    last, job = watched.watch.end()
    assert isinstance(last[-1], End)
    told = {one.finding.rule for one in (*changes, *(one for one in last if isinstance(one, Change)))}
    assert {finding.rule for finding in job.findings} <= told


def finding(rule: str, summary: str, severity: str = "warning") -> Finding:
    return Finding(rule, "network", severity, "certain", summary, "", "", [])


def test_findings_are_the_same_when_they_read_the_same_or_take_the_same_place() -> None:
    before = [finding("a", "one"), finding("a", "two"), finding("b", "three pairs"), finding("c", "over")]
    after = [finding("a", "two"), finding("b", "four pairs", "error"), finding("a", "one"), finding("d", "new")]
    pairs = [(old and old.summary, new and new.summary) for old, new in paired(before, after)]
    assert pairs == [("two", "two"), ("three pairs", "four pairs"), ("one", "one"), (None, "new"), ("over", None)]


def test_what_disappears_and_what_gets_worse_is_told() -> None:
    results = [
        [finding("a", "x"), finding("b", "y")],
        [finding("b", "y", "error")],
        [finding("a", "x"), finding("b", "y", "error")],
    ]

    class Scripted(Judge):
        def __call__(  # type: ignore[no-untyped-def]
            self, state: Fold, going_on: bool = False, quiet: float | None = None, beside: Inventory = NOTHING
        ):
            job = super().__call__(state, going_on, quiet)
            job.findings = results[len(state.sources[0].counts.tail) if watched_up else 0]
            return job

    watched_up = False
    clock = Clock()
    watch = Watch(Scripted(Options()), Timing(), clock=clock)
    watch.feed(HEALTHY)
    fold = watch._fold
    fold.sources[0].counts.tail.clear()
    assert kinds(watch.look()) == [Verdict]
    watched_up = True
    told = []
    for number in range(2):
        clock.now += 5
        watch.feed(b"other\n" + BAD_PLUGIN.replace(b"IB", b"X%d" % number))
        told.append([(one.how, one.finding.rule, one.before) for one in watch.look() if isinstance(one, Change)])
    assert told == [[("severity", "b", "warning"), ("gone", "a", "")], [("back", "a", "")]]


def test_dumps_of_a_job_that_failed_are_read_while_the_log_goes_on(tmp_path: Path) -> None:
    sample = sample_data.FOLDER / "mesh" / "order-lazy"
    clock = Clock()
    watch = Watch(
        Judge(Options()),
        Timing(settle=5, stall=60),
        beside=lambda: artifacts.beside([str(tmp_path)]),
        clock=clock,
    )
    watch.feed(lzma.decompress((sample / "job.log.xz").read_bytes()))
    watch.look()
    clock.now += 10
    assert [news.job.verdict for news in watch.look() if isinstance(news, Verdict)] == ["failed"]
    for dump in sample.glob("nccl_trace_rank_*"):
        shutil.copy(dump, tmp_path)
    clock.now += 60
    told = [(news.how, news.finding.rule) for news in watch.look() if isinstance(news, Change)]
    assert ("new", "groups-out-of-order") in told
    clock.now += 10
    watch.feed(b"another line\n")
    assert watch.look() == []


def test_a_stall_is_warned_of_with_growing_distance_and_its_end_is_told() -> None:
    watched = Watched(Timing(stall=60))
    assert watched.after(0, HANG) == []
    warned = {}
    for second in range(10, 600, 10):
        for news in watched.after(10):
            assert isinstance(news, Stall)
            warned[second] = news
    assert list(warned) == [60, 120, 240, 480]
    stall = warned[120]
    assert (stall.waiting, stall.missing, stall.are_global) == ([0, 1, 3], [2], True)
    assert (stall.seconds, stall.communicator.id) == (120, "world")
    assert stall.last == "init began (rank 3)"
    start = next(line for line in HANG.splitlines() if b"rank 3 nranks 4" in line)
    late = start.replace(b"rank 3", b"rank 2").replace(b":5182:5182 [1]", b":5181:5181 [0]")
    assert watched.after(10, late + b"\n") == [Resumed(600)]
    assert watched.after(50) == []
    (again,) = watched.after(10)
    assert isinstance(again, Stall)
    assert (again.waiting, again.missing) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("interrupted", [True, False])
def test_after_a_stall_the_end_says_what_the_stall_said(interrupted: bool) -> None:
    hang = b"".join(HANG.splitlines(keepends=True)[:-1])
    watched = Watched(Timing(stall=60))
    assert watched.after(0, hang) == []
    assert kinds(watched.after(60)) == [Stall]
    _, job = watched.watch.end(interrupted)
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "rank-missing", [2])
    assert "no progress for 60 s" in job.findings[0].summary
    assert job.waiting is not None
    assert (job.waiting.missing, job.waiting.age) == ([2], 60)


def test_waiting_alone_is_no_failure_while_the_log_goes_on() -> None:
    watched = Watched(Timing(stall=60))
    watched.after(0, b"".join(HANG.splitlines(keepends=True)[:-1]))
    _, job = watched.watch.end(interrupted=True)
    assert job.verdict == "unknown"


def test_a_word_like_timeout_ends_nothing_while_the_log_goes_on() -> None:
    watched = Watched()
    assert watched.after(0, HANG + b"init_process_group(timeout=1800)\n") == []
    assert kinds(watched.after(30)) == []


def test_a_log_without_a_communicator_gets_its_verdict_when_it_is_quiet() -> None:
    watched = Watched()
    assert watched.after(0, b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n") == []
    assert kinds(watched.after(5)) == [Verdict]


def test_the_end_without_a_line_of_nccl_is_an_error_and_compressed_data_too() -> None:
    watched = Watched()
    watched.after(0, b"one\ntwo")
    with pytest.raises(NoInputError, match="no NCCL line among 2 lines"):
        watched.watch.end()
    with pytest.raises(NoInputError, match="compressed"):
        Watched().after(0, b"\x1f\x8b\x08")
