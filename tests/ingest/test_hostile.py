"""What no honest job writes does no harm: absurd sizes and numbers, bombs, strange files, text for the terminal."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fuzz_targets
import pytest
import zstandard
from command_line import invoke

import nccl_inspect
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.torn import Rejoiner
from nccl_inspect.ingest.sources import blocks, compression
from nccl_inspect.ingest.sources.blocks import Source
from nccl_inspect.model import fold as folds
from nccl_inspect.model.communicators import attribution
from nccl_inspect.model.fold import MAX_RANKS, Fold
from nccl_inspect.pipeline import reading
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.report import tables
from nccl_inspect.scanning.found import Counts
from nccl_inspect.scanning.scanner import MAX_PENDING, MAX_REMEMBERED, Scanner

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
COMPLETE = (
    "vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x{0:x} rank {1} nranks {2} cudaDev 0 nvmlDev 0 busId 1000 commId "
)
COMPLETE += "0x{0:x} - Init COMPLETE\n"


# --- sizes


def test_a_torn_line_and_parts_that_never_end_stay_bounded() -> None:
    rejoiner, counts = Rejoiner(), Counts()
    lines = [*rejoiner.feed(b"vm:1:1 [0] NCCL INFO " + b"a" * (3 << 20)), *rejoiner.finish()]
    assert max(len(line.line) for line in lines) <= (1 << 20)
    part = b"[pod/p%d/c] 2026-11-20T23:13:07.071868123Z stdout P vm:1:1 [0] NCCL INFO aa"
    Scanner(engine.load_grammar()).scan([part % n for n in range(MAX_PENDING + 10)], counts, lambda *_: None)
    assert len(counts.pending) == MAX_PENDING


def test_the_lines_of_too_many_processes_are_left_out_and_that_is_told() -> None:
    reader = Reader(Fold(most_processes=10))
    reader.fold.start("job.log")
    reader.feed(b"host%d:%d:1 [0] NCCL INFO cudaDriverVersion 13000" % (n, n) for n in range(100))
    job = Judge(Options())(reader.fold)
    assert (job.processes, job.sources[0].nccl_lines) == (10, 100)
    assert "those of others were left out" in str(job.sources[0].problem)


def test_what_is_kept_of_hostile_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "MAX_LONG", 10)
    lines = [b"vm:1:1 [0] x.cc:1 NCCL WARN %d %s\n" % (n, b"b" * 6000) for n in range(folds.MAX_LONG * 3)]
    job = nccl_inspect.read(b"".join(lines))
    assert sum(notice.count for notice in job.notices) == len(lines)
    assert len(job.notices) <= folds.MAX_LONG + 1
    one, text = Scanner(engine.load_grammar()), b"c" * (MAX_REMEMBERED // 20)
    for n in range(60):
        one.scan([b"vm:%d:1 [0] NCCL INFO %d %s" % (n, n, text)], Counts(), lambda *_: None)
    assert MAX_REMEMBERED < sum(map(len, (*one._texts.young, *one._texts._old))) <= 2 * MAX_REMEMBERED


# --- numbers


def test_ranks_beyond_sense_are_damage() -> None:
    for number in (b"2000000000[0] -> 1[1]", b"-5[0] -> 1[1]"):
        assert not nccl_inspect.read(LINE.replace(b"0[0] -> 1[1]", number)).paths


def test_communicators_fragments_and_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(COMPLETE.format(n, 0, MAX_RANKS // 8 - 1) for n in range(1, 5))
    listed = [len(comm.ranks) for comm in nccl_inspect.read(text.encode()).communicators]
    assert listed == [MAX_RANKS // 8 - 1] * 2
    job = nccl_inspect.read(b"".join(LINE.replace(b"vm:1:", b"h%d:%d:" % (n, n)) for n in range(300)))
    assert (len({name for path in job.paths for name in path.communicators}), job.unplaced_lines) == (256, 44)
    monkeypatch.setattr(attribution, "MAX_QUESTIONS", 10)
    text = "".join(COMPLETE.format(n, 0, 8) for n in range(1, 20))
    lines = (b"vm:1:%d [0] NCCL INFO Channel 00/0 : 0[0] -> 3[1] [send] via NET/IB/0\n" % n for n in range(50))
    assert nccl_inspect.read(text.encode() + b"".join(lines)).unplaced_lines > 0


def test_envelopes_may_be_nested_to_any_depth_without_harm() -> None:
    deep = b'{"log":' + b"[" * 100_000 + b"\n" + b'{"a":' * 20_000 + b'{"log":"x"}' + b"}" * 20_000 + b"\n"
    assert len(nccl_inspect.read(deep + LINE).paths) == 1
    line = LINE.decode().strip()
    for _ in range(10):
        line = json.dumps({"log": line, "stream": "stdout"})
    assert len(nccl_inspect.read(line.encode() + b"\n" + LINE).paths) == 1
    assert nccl_inspect.read(LINE + b'msg="x" ' + b"a=" * 400_000 + b'" NCCL INFO nothing').paths


def problems(data: object) -> list[str]:
    return [source.problem for source in nccl_inspect.read(data).sources if source.problem]  # type: ignore[arg-type]


def test_a_bomb_is_read_to_the_limit_and_that_is_told() -> None:
    text = LINE + b"a" * (6 << 20)
    xz = lzma.compress(text, preset=0)
    for bomb in (gzip.compress(text), bz2.compress(text), xz, zstandard.compress(text)):
        allowance = compression.Allowance(free=1 << 20, ratio=200)
        source = Source("job.log", lambda bomb=bomb: iter([bomb]), allowance=allowance)  # type: ignore[misc]
        first, *_, problem = blocks.records_of(source, as_it_is=True)
        assert isinstance(first, blocks.Lines)
        assert LINE.rstrip() in first
        assert "more than 200 times its size, unlike any log" in str(problem)
        assert "--max-unpacked" in str(problem)


def test_the_limit_is_that_of_the_user_and_the_members_of_an_archive_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(LINE * 40_000))
    told = invoke("summarize", "--max-unpacked", "1M", str(path)).stderr
    assert "it decompresses to more than 1M; reading stopped there; use --max-unpacked 64G to read on" in told
    for text in ("", "x", "2Q", "-1"):
        with pytest.raises(NcclInspectError, match="invalid size"):
            compression.parse_size(text)
    monkeypatch.setenv(compression.VARIABLE, "10M")
    assert not problems(str(path))
    monkeypatch.setenv(compression.VARIABLE, "1M")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for number in range(5):
            zipped.writestr(f"rank{number}.log", LINE * 5000)
    assert any("more than 1M" in problem for problem in problems(archive.getvalue()))
    with pytest.raises(NoInputError):
        nccl_inspect.read(gzip.compress(gzip.compress(b"a" * (4 << 20))))


# --- files


def test_a_fifo_is_read_and_a_socket_or_a_device_is_an_error_that_says_so(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.log"
    os.mkfifo(fifo)
    (tmp_path / "job.log").write_bytes(LINE)
    assert len(nccl_inspect.read(str(tmp_path)).sources) == 1, "in a folder it is left alone"
    writer = threading.Thread(target=fifo.write_bytes, args=(LINE,))
    writer.start()
    assert len(nccl_inspect.read(str(fifo)).paths) == 1
    writer.join()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.log"))
        with pytest.raises(NoInputError, match=r"s\.log: "):
            nccl_inspect.read(str(tmp_path / "s.log"))
    with pytest.raises(NoInputError, match="/dev/null: empty"):
        nccl_inspect.read("/dev/null")


@pytest.mark.parametrize("change", ["grow", "shrink", "vanish"])
def test_a_file_may_change_while_it_is_read(change: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    done: list[bool] = []
    path.write_bytes(LINE * 50_000)

    def progress(_size: int, _total: int | None) -> None:
        if done:
            return
        if change == "vanish":
            path.unlink()
        else:
            os.truncate(path, 100 if change == "shrink" else path.stat().st_size + 1000)
        done.append(True)

    assert reading.fold([str(path)], progress).sources[0].counts.nccl_lines > 0


def test_holes_other_bytes_and_mixed_line_ends_do_no_harm() -> None:
    mixed = b"\r\n".join([LINE.strip()] * 2) + b"\n"
    for data in (b"\0" * 5000 + b"\n" + LINE, mixed, b"\xff\xfe\xfa\n" * 3 + LINE + LINE):
        assert len(nccl_inspect.read(data).paths) == 1


# --- output


def controls() -> Iterator[bytes]:
    evil = b"\x1b[31m\x1b]0;x\x07\x9b\xe2\x80\xae\x00"
    yield b"vm:1:1 [0] x.cc:1 NCCL WARN %b\n" % evil
    yield b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to %b\n" % evil
    yield b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/I%bB/0\n" % evil
    yield b"vm:1:1 [0] NCCL INFO a line that nobody knows %b\n" % evil
    yield b"%b vm:1:1 [0] NCCL INFO Using network %b\n" % (evil, evil)


COMMANDS = "summarize -v,paths,paths --matrix,paths --format csv,annotate,topology,traffic,check --learn,diff,explain"


def test_nothing_of_a_log_drives_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil\x1b[31m.log"
    path.write_bytes(LINE + b"".join(controls()))
    line = [*controls()][1].replace(b"\0", b"").decode("utf-8", "surrogateescape")
    arguments = {"diff": [str(path)] * 2, "explain": [line]}
    for command in map(str.split, [*COMMANDS.split(","), "watch --until-end", "explain"]):
        done = invoke(*command, *arguments.get(command[0], [str(path)]), data=path.read_bytes())
        assert done.stdout + done.stderr, command
        assert fuzz_targets.is_safe(done.stdout + done.stderr), command


def test_a_cell_is_no_formula() -> None:
    assert tables.write_csv([["host", "=cmd"], ["+x", -3]]) == "host,'=cmd\n'+x,-3\n"
