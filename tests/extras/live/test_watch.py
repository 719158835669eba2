"""Watching a log while it is written, with a clock of our own: bytes as they come, verdicts, stalls, ends."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sample_data
from command_line import invoke
from watching import HANG, HEALTHY, TWO_HOSTS, Watched

from nccl_inspect import artifacts
from nccl_inspect.errors import NoInputError
from nccl_inspect.extras.gate.differences import pair_findings
from nccl_inspect.extras.live.watch import (
    Change,
    End,
    News,
    Note,
    Piece,
    Resumed,
    Splitter,
    Stall,
    Timing,
    Turn,
    Verdict,
    Waiter,
    find_alarm,
    follow,
)
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options

DEGRADED = (sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log").read_bytes()


def differences_when_looked_at(name: str) -> list[str]:
    """Return what becomes otherwise where a sample is judged again and again while it grows."""
    judge, wrong = Judge(Options()), []
    looked_at, left_alone = Reader(), Reader()
    jobs: list[tuple[Job, str]] = []
    for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True):
        lines = data.splitlines()
        for reader in (looked_at, left_alone):
            reader.fold.start(file.name)
        for start in range(0, len(lines), step := len(lines) // 3 + 1):
            for reader in (looked_at, left_alone):
                reader.feed(lines[start : start + step])
            first, second = judge(looked_at.fold), judge(looked_at.fold)
            wrong += [f"{name}: judged twice"] if _show_news(first) != _show_news(second) else []
            jobs.append((first, _show_news(second)))
    wrong += [f"{name}: a job changed when more was read" for job, before in jobs if _show_news(job) != before]
    whole = _show_news(judge(left_alone.fold))
    return wrong + ([f"{name}: the whole"] if _show_news(judge(looked_at.fold)) != whole else [])


def _show_news(job: Job) -> str:
    return repr((job.to_dict(), job.without_nvls, job.communicators))


@sample_data.one_or_all("peer-killed", "v2.30.7-shm-4gpu")
def test_a_job_may_be_judged_again_and_again_while_it_grows(names: tuple[str, ...]) -> None:
    assert not [line for name in names for line in differences_when_looked_at(name)]


@pytest.mark.slow
def test_the_extent_of_a_fold_changes_with_every_line_that_counts_and_with_no_other() -> None:
    reader, judge = Reader(), Judge(Options())
    fold = reader.fold
    fold.start("log")

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


# --- verdicts and findings


def kinds(news: list[News]) -> list[type]:
    return [type(one) for one in news]


def lines_without(data: bytes, *words: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if not any(word in line for word in words))


def test_the_verdict_comes_when_all_is_connected_or_nothing_comes_any_more() -> None:
    watched = Watched()
    (news,) = watched.news_after(3, HEALTHY)
    assert isinstance(news, Verdict)
    assert watched.watch.reported is news.job
    assert news.job.verdict == "ok"
    assert watched.news_after(100) == []
    unconnected = lines_without(HEALTHY, b" via ", b"Connected", b"Destroy", b"Abort")
    for data in (unconnected, b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"):
        watched = Watched()
        assert watched.news_after(0, data) == []
        assert watched.news_after(2.5) == []
        assert kinds(watched.news_after(2.5)) == [Verdict]
    watched = Watched()
    watched.news_after(0, lines_without(HEALTHY, b" via "))
    looks = [watched.news_after(2.5, b"step 17 loss 0.25\n" * 100) for _ in range(4)]
    assert [kinds(news) for news in looks] == [[], [Verdict], [], []], "a busy log without NCCL lines is quiet"


def test_the_job_is_looked_at_four_times_in_an_interval_and_only_when_something_came() -> None:
    judged = []

    class Counting(Judge):
        def __call__(self, *given: Any, **more: Any) -> Job:
            judged.append(watched.clock())
            return super().__call__(*given, **more)

    watched = Watched(Timing(interval=10, settle=1e9, stall=1e9), Counting(Options()))
    for line in lines_without(HEALTHY, b"COMPLETE").splitlines(keepends=True)[:100]:
        watched.news_after(0.25, line)
    assert all(later - earlier >= 2.5 for earlier, later in pairwise(judged))
    assert len(judged) <= 10
    done = len(judged)
    for _ in range(100):
        watched.news_after(2.5, b"step\n")
    assert len(judged) <= done + 1


def test_each_new_finding_comes_once_and_the_turn_of_the_verdict_with_it() -> None:
    watched = Watched()
    assert kinds(watched.news_after(0, HEALTHY)) == [Verdict]
    whole = watched.news_after(5, TWO_HOSTS)
    changes = [one for one in whole if isinstance(one, Change)]
    assert ("new", "socket-instead-of-rdma") in [(one.how, one.finding.rule) for one in changes]
    assert [one.before for one in whole if isinstance(one, Turn)] == ["ok"]
    assert watched.news_after(5) == []
    last, job = watched.watch.end()
    assert isinstance(last[-1], End)
    shown = {one.finding.rule for one in (*changes, *last) if isinstance(one, Change)}
    assert {finding.rule for finding in job.findings} <= shown


def finding(rule: str, summary: str, severity: str = "warning") -> Finding:
    return Finding(rule, "network", severity, "certain", summary, "", "", [])


def test_findings_are_the_same_when_they_read_the_same_or_take_the_same_place() -> None:
    before = [finding("a", "one"), finding("a", "two"), finding("b", "three pairs"), finding("c", "over")]
    after = [finding("a", "two"), finding("b", "four pairs", "error"), finding("a", "one"), finding("d", "new")]
    pairs = [(old and old.summary, new and new.summary) for old, new in pair_findings(before, after)]
    assert pairs == [("two", "two"), ("three pairs", "four pairs"), ("one", "one"), (None, "new"), ("over", None)]


def test_what_disappears_and_what_gets_worse_is_told() -> None:
    worse = finding("b", "y", "error")
    results = [[finding("a", "x"), finding("b", "y")], [worse], [finding("a", "x"), worse]]
    step = 0

    class Scripted(Judge):
        def __call__(self, *given: Any, **more: Any) -> Job:
            job = super().__call__(*given, **more)
            job.findings = results[step]
            return job

    watched = Watched(judge=Scripted(Options()))
    assert kinds(watched.news_after(0, HEALTHY)) == [Verdict]
    shown = []
    for step in (1, 2):
        news = watched.news_after(5, b"vm:7:7 [0] NCCL INFO Failed to initialize NET plugin X%d\n" % step)
        shown.append([(one.how, one.finding.rule, one.before) for one in news if isinstance(one, Change)])
    assert shown == [[("severity", "b", "warning"), ("gone", "a", "")], [("back", "a", "")]]


def test_dumps_of_a_job_that_failed_are_read_while_the_log_goes_on(tmp_path: Path) -> None:
    sample = sample_data.FOLDER / "mesh" / "order-lazy"
    watched = Watched(Timing(settle=5, stall=60), beside=lambda: artifacts.beside([str(tmp_path)]))
    watched.news_after(0, lzma.decompress((sample / "job.log.xz").read_bytes()))
    assert [news.job.verdict for news in watched.news_after(10) if isinstance(news, Verdict)] == ["failed"]
    for dump in sample.glob("nccl_trace_rank_*"):
        shutil.copy(dump, tmp_path)
    shown = [(news.how, news.finding.rule) for news in watched.news_after(60) if isinstance(news, Change)]
    assert ("new", "groups-out-of-order") in shown
    assert watched.news_after(10, b"another line\n") == []


# --- stalls and ends


def test_a_stall_is_warned_of_with_growing_distance_and_its_end_is_told() -> None:
    watched = Watched(Timing(stall=60))
    assert watched.news_after(0, HANG) == []
    warned = {}
    for second in range(10, 600, 10):
        for news in watched.news_after(10):
            assert isinstance(news, Stall)
            warned[second] = news
    assert list(warned) == [60, 120, 240, 480]
    stall = warned[120]
    assert stall.what == "communicator world (4 ranks) made no progress for 120 s"
    assert stall.rows == [
        ("waiting", "3 ranks: 0-1,3, began and did not finish"),
        ("missing", "1 rank: 2, did not begin, or not in this log"),
        ("last step", "init began (rank 3)"),
    ]
    assert stall.reason == "communicator world made no progress for 120 s: 1 rank, 2, did not begin"
    assert stall.ranks == [2]
    start = next(line for line in HANG.splitlines() if b"rank 3 nranks 4" in line)
    late = start.replace(b"rank 3", b"rank 2").replace(b":5182:5182 [1]", b":5181:5181 [0]")
    assert watched.news_after(10, late + b"\n") == [Resumed(600)]
    assert watched.news_after(50) == []
    (again,) = watched.news_after(10)
    assert isinstance(again, Stall)
    assert again.rows[0] == ("waiting", "4 ranks: 0-3, began and did not finish")
    assert (len(again.rows), again.ranks) == (2, [0, 1, 2, 3])


def test_after_a_stall_the_end_says_what_the_stall_said() -> None:
    hang = b"".join(HANG.splitlines(keepends=True)[:-1])
    for interrupted in (True, False):
        watched = Watched(Timing(stall=60))
        assert watched.news_after(0, hang) == []
        assert kinds(watched.news_after(60)) == [Stall]
        news, job = watched.watch.end(interrupted)
        assert Stall not in kinds(news), "the verdict says it"
        assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "rank-missing", [2])
        assert "no progress for 60 s" in job.findings[0].summary
        assert job.waiting is not None
        assert (job.waiting.missing, job.waiting.age) == ([2], 60)
    watched = Watched(Timing(stall=60))
    watched.news_after(0, hang)
    assert watched.watch.end(interrupted=True)[1].verdict == "unknown", "waiting alone is no failure yet"
    watched = Watched()
    assert watched.news_after(0, HANG + b"init_process_group(timeout=1800)\n") + watched.news_after(30) == [], (
        "a word ends nothing"
    )


def test_the_end_without_a_line_of_nccl_is_an_error_and_compressed_data_too() -> None:
    watched = Watched()
    watched.news_after(0, b"one\ntwo")
    with pytest.raises(NoInputError, match="no NCCL line among 2 lines"):
        watched.watch.end()
    with pytest.raises(NoInputError, match="compressed"):
        Watched().news_after(0, b"\x1f\x8b\x08")


# --- bytes as they come: lines that wait for their end, files that grow, are cut and replaced


def test_a_line_waits_for_its_end() -> None:
    splitter = Splitter()
    pieces = [list(splitter.split(data)) for data in (b"on", b"e\r\ntw", b"o", b"\n\nthr")]
    assert pieces == [[], [b"one"], [], [b"two", b""]]
    (rest,) = splitter.take_rest()
    assert (list(rest), rest.size) == ([b"thr"], 0)
    assert list(splitter.take_rest()) == []
    lines = [json.dumps({"log": f"a:1:1 [0] NCCL INFO {n}\n", "stream": "stdout"}).encode() + b"\n" for n in range(3)]
    assert [len(splitter.split(line).lines) for line in lines] == [1, 1, 1], "of Docker, each object at once"


def test_a_log_that_is_whole_gets_its_verdict_once(tmp_path: Path) -> None:
    (log := tmp_path / "job.log").write_bytes(sample_data.contents("p2p-nvlink-8gpu")[0])
    assert invoke("watch", "--until-end", str(log)).stdout.count("OK: ") == 1


def following(pieces: Iterator[Piece]) -> list[Any]:
    """Return what comes until nothing comes any more; notes as whether a log begins, and their words."""
    found: list[Any] = []
    for piece in iter(lambda: next(pieces), None):
        found.append((piece.begins, piece.text) if isinstance(piece, Note) else piece)
    return found


def test_a_file_is_followed_from_before_it_exists_until_it_is_cut_and_replaced(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    pieces = follow(log, Waiter(0.001))
    ((_, words),) = following(pieces)
    assert "not there yet" in words
    log.write_bytes(b"one\n")
    assert following(pieces) == [b"one\n"]
    with log.open("ab") as file:
        file.write(b"two\n")
    assert following(pieces) == [b"two\n"]
    for data in (b"3\n", b"another one, and longer than what was there\n"):
        log.write_bytes(data)
        (begins, _), came = following(pieces)
        assert (begins, came) == (True, data)
    log.rename(tmp_path / "job.log.1")
    assert following(pieces) == []
    with (tmp_path / "job.log.1").open("ab") as file:
        file.write(b"last words\n")
    log.write_bytes(b"4\n")
    last, (_, words), first = following(pieces)
    assert (last, "replaced" in words, first) == (b"last words\n", True, b"4\n")


# --- a watch that ends a bad job, and one that tells Prometheus how it goes


def test_the_status_is_that_of_the_condition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log := tmp_path / "job.log").write_bytes(DEGRADED)
    for condition, status in (("error", 0), ("warning", 1)):
        assert invoke("watch", str(log), "--until-end", "--exit-on", condition).return_value == status
    with pytest.raises(Exception, match="--on-exit needs --exit-on"):
        invoke("watch", "--on-exit", "true")
    watched = Watched()
    watched.watch.feed(b"".join(DEGRADED.splitlines(keepends=True)[:125]))
    assert find_alarm(watched.watch.look(), ("warning",)) is None, "what was not told ends nothing"

    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("subprocess.run", fail)
    result = invoke("watch", str(log), "--until-end", "--exit-on", "warning", "--on-exit", "true")
    assert result.return_value == 1
    assert "the command of --on-exit was not run: No such file or directory" in result.stderr
