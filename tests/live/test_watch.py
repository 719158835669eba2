"""Watching a log while it is written: with a clock of our own, and the command on pipes and terminals."""

from __future__ import annotations

import json
import lzma
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import sample_data
from command_line import invoke

from nccl_inspect import artifacts
from nccl_inspect.artifacts import NOTHING, Inventory
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine
from nccl_inspect.live.tail import Note, Piece, Splitter, Waiter, follow
from nccl_inspect.live.watch import Change, End, News, Resumed, Stall, Timing, Turn, Verdict, Watch, paired
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reading import Judge, Options

EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()", "watch"]
ENV = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"}
FAST = ["--interval", "0.04", "--settle", "0.2"]
HEALTHY = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes()
TWO_HOSTS = (sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log").read_bytes()
HANG = (sample_data.FOLDER / "rank-missing-hang" / "job.log").read_bytes()
BAD_PLUGIN = b"vm:7:7 [0] NCCL INFO Failed to initialize NET plugin IB\n"
PATIENCE = 30.0
"""Seconds that something may take before the test fails; none waits so long when all is well."""


# --- looking at a job does not change what is read


@pytest.mark.parametrize("name", sample_data.names())
def test_a_fold_may_be_resolved_again_and_again_while_it_grows(name: str) -> None:
    judge = Judge(Options())
    looked_at, left_alone = Fold(engine.shipped()), Fold(engine.shipped())
    for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True):
        lines = data.splitlines()
        step = len(lines) // 3 + 1
        for fold in (looked_at, left_alone):
            fold.start(file.name)
        for start in range(0, len(lines), step):
            for fold in (looked_at, left_alone):
                fold.feed(lines[start : start + step])
            first, second = (json.dumps(judge(looked_at).to_dict()) for _ in range(2))
            assert first == second
    assert json.dumps(judge(looked_at).to_dict()) == json.dumps(judge(left_alone).to_dict())


def test_resolving_leaves_every_part_of_the_fold_as_it_was() -> None:
    fold = sample_data.folded([("log", TWO_HOSTS.splitlines())])
    before = repr([fold.processes, fold.sources, fold.unrecognised])
    Judge(Options())(fold)
    assert repr([fold.processes, fold.sources, fold.unrecognised]) == before


def test_the_extent_of_a_fold_changes_with_every_line_that_counts_and_with_no_other() -> None:
    fold = Fold(engine.shipped())
    fold.start("log")
    judge = Judge(Options())

    def seen() -> str:
        document = judge(fold).to_dict()
        return json.dumps([document[key] for key in ("job", "communicators", "paths", "verdict")])

    extent, known = fold.extent(), seen()
    for line in HEALTHY.splitlines():
        fold.feed([line])
        now = seen()
        assert fold.extent() != extent or now == known, line
        extent, known = fold.extent(), now
    fold.feed([b"loss 0.25", b"vm:1:1 [0] NCCL INFO a line that no release prints"])
    assert fold.extent() == extent


# --- a watch with a clock of our own


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch that is fed and looked at in steps."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.clock = Clock()
        self.watch = Watch(Judge(Options()), timing or Timing(), clock=self.clock)

    def after(self, seconds: float, data: bytes = b"") -> list[News]:
        """The news after so many seconds, when this came at their end."""
        self.clock.now += seconds
        if data:
            self.watch.feed(data)
        return self.watch.look()


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


# --- bytes as they come


def test_a_line_waits_for_its_end() -> None:
    splitter = Splitter()
    assert [list(splitter.split(data)) for data in (b"on", b"e\r\ntw", b"o", b"\n\nthr")] == [
        [],
        [b"one"],
        [],
        [b"two", b""],
    ]
    (rest,) = splitter.rest()
    assert (list(rest), rest.size) == ([b"thr"], 0)
    assert list(splitter.rest()) == []


def test_each_object_of_a_file_of_docker_is_a_line_at_once() -> None:
    splitter = Splitter()
    lines = [json.dumps({"log": f"a:1:1 [0] NCCL INFO {n}\n", "stream": "stdout"}).encode() + b"\n" for n in range(3)]
    assert [len(splitter.split(line).lines) for line in lines] == [1, 1, 1]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_is_watched_as_it_is_summarized(indent: int | None, tmp_path: Path) -> None:
    lines = sample_data.contents("peer-killed")[0].decode().splitlines()
    document = {"hits": {"hits": [{"_source": {"message": line}} for line in lines]}}
    log = tmp_path / "export.json"
    log.write_text(json.dumps(document, indent=indent))
    assert invoke("watch", "--until-end", str(log)).stdout == invoke("summarize", str(log)).stdout


def following(pieces: Iterator[Piece]) -> list[Piece]:
    """What comes until nothing comes any more."""
    found: list[Piece] = []
    for piece in pieces:
        if piece is None:
            break
        found.append(piece)
    return found


def test_a_file_is_followed_from_before_it_exists_until_it_is_cut_and_replaced(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    pieces = follow(log, Waiter(0.001))
    (waiting,) = following(pieces)
    assert isinstance(waiting, Note)
    assert "not there yet" in waiting.text
    log.write_bytes(b"one\n")
    assert following(pieces) == [b"one\n"]
    with log.open("ab") as file:
        file.write(b"two\n")
    assert following(pieces) == [b"two\n"]
    log.write_bytes(b"3\n")
    cut, data = following(pieces)
    assert isinstance(cut, Note)
    assert (cut.begins, data) == (True, b"3\n")
    log.write_bytes(b"another one, and longer than what was there\n")
    anew, data = following(pieces)
    assert isinstance(anew, Note)
    assert (anew.begins, data) == (True, b"another one, and longer than what was there\n")
    log.rename(tmp_path / "job.log.1")
    assert following(pieces) == []
    with (tmp_path / "job.log.1").open("ab") as file:
        file.write(b"last words\n")
    log.write_bytes(b"4\n")
    said = following(pieces)
    assert said[0] == b"last words\n"
    assert isinstance(said[1], Note)
    assert "replaced" in said[1].text
    assert said[2:] == [b"4\n"]


# --- the command


@contextmanager
def started(
    *args: str, stderr: int = subprocess.PIPE, stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """The command with pipes; killed at the end if it still runs."""
    with subprocess.Popen(
        [*EXE, *args], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=ENV, bufsize=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, wanted: bytes, seen: bytes = b"") -> bytes:
    """What comes until a text is in it."""
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        assert ready, f"{wanted!r} did not come: {seen!r}"
        data = os.read(descriptor, 65536)
        assert data, f"{wanted!r} did not come: {seen!r}"
        seen += data
    return seen


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)


def fd(stream: object) -> int:
    return int(stream.fileno())  # type: ignore[attr-defined]


def test_on_a_pipe_status_verdict_findings_and_end_come_one_after_the_other() -> None:
    with started(*FAST, "--fail-on", "warning") as process:
        begin, rest = HEALTHY[:3000], HEALTHY[3000:]
        write(process, begin)
        assert b"\r" not in read_until(fd(process.stderr), b"nccl-inspect: ")
        write(process, rest)
        shown = read_until(fd(process.stdout), b"intra")
        assert shown.startswith(b"OK: ")
        write(process, TWO_HOSTS)
        shown = read_until(fd(process.stdout), b"the verdict is DEGRADED now (it was OK)\n")
        assert b" socket-instead-of-rdma (" in shown
        assert b"  fix   " in shown
        assert b"  evidence  <stdin>:" in shown
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        last = process.stdout.read()
        assert last.startswith(b"DEGRADED: ")
        assert process.wait(PATIENCE) == 1


def test_half_a_line_waits_and_the_whole_summary_comes_at_the_end_if_none_came() -> None:
    with started() as process:
        write(process, HANG[:-40])
        out, err = process.communicate(HANG[-40:], PATIENCE)
    summary = subprocess.run(
        [*EXE[:-1], "summarize"], input=HANG, env=ENV, capture_output=True, timeout=PATIENCE, check=True
    ).stdout
    assert (process.returncode, out, err) == (0, summary, b"")


def test_a_stall_is_told_on_the_standard_output() -> None:
    with started(*FAST, "--stall", "0.1") as process:
        write(process, HANG)
        shown = read_until(fd(process.stdout), b"last step")
    assert shown.startswith(b"STALLED: communicator world (4 ranks)")
    assert b"waiting   3 ranks: 0-1,3" in shown
    assert b"missing   1 rank: 2" in shown


def test_on_a_terminal_the_status_is_rewritten_in_place_and_the_verdict_has_colour() -> None:
    ours, theirs = pty.openpty()
    try:
        with started(*FAST, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            write(process, HEALTHY[:3000])
            shown = read_until(ours, b"ranks ")
            assert b"\n" not in shown
            assert shown.startswith(b"\r0 s, ")
            write(process, HEALTHY[3000:])
            shown = read_until(ours, b"8/8, communicators 1/1 complete", shown)
            shown = read_until(ours, b"\x1b[32mOK\x1b[0m: ", shown)
            before = shown.partition(b"\x1b[32mOK")[0]
            assert before.endswith(b" \r"), "the status line is wiped first"
    finally:
        os.close(ours)


@pytest.mark.parametrize("told", [True, False])
def test_ctrl_c_ends_with_what_is_known_and_status_130(told: bool, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(HEALTHY if told else HANG)
    with started(str(log), *FAST) as process:
        seen = read_until(fd(process.stdout), b"intra") if told else b""
        seen_err = b"" if told else read_until(fd(process.stderr), b"3/4")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in seen_err + err
    if told:
        assert (seen + out).rstrip().rpartition(b"\n")[2].startswith(b"OK: ")
    else:
        assert out.startswith(b"partial: interrupted after 36 lines\n")


def test_ctrl_c_before_the_first_line_of_nccl_is_an_interruption_too() -> None:
    with started(*FAST) as process:
        write(process, b"hello\n")
        read_until(fd(process.stderr), b"none of NCCL yet")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"nccl-inspect: interrupted\n")


def test_input_without_a_line_of_nccl_ends_with_status_3() -> None:
    for data, says in ((b"", b"<stdin>: empty; "), (b"x\ny\n", b"<stdin>: no NCCL line among 2 lines; ")):
        done = subprocess.run(EXE, input=data, capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
        assert done.stderr.startswith(b"nccl-inspect: " + says)


def test_a_closed_output_ends_in_silence_though_the_input_stays_open() -> None:
    with started(*FAST) as process:
        write(process, HEALTHY)
        read_until(fd(process.stdout), b"OK: ")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert all(line.startswith(b"nccl-inspect: ") and b" lines, " in line for line in said.splitlines())


def test_output_that_was_never_open_is_no_error() -> None:
    code = EXE[2].replace("main()", "import sys; sys.argv[1:] = ['watch']; main()")
    command = f'"{sys.executable}" -c "{code}" >&- 2>&-'
    done = subprocess.run(["bash", "-c", command], input=HEALTHY, timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_a_file_is_read_until_its_end_when_that_is_wanted(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(HEALTHY)
    done = subprocess.run([*EXE, str(log), "--until-end"], capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"OK: ")
    for path, says in ((tmp_path / "gone.log", b"gone.log: no such file; check the path"), (tmp_path, b"is a folder")):
        done = subprocess.run([*EXE, str(path), "--until-end"], capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (3, b"")
        assert says in done.stderr
