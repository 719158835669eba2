"""Exports of log explorers: JSON documents, tables, the newest line first; and lines that a terminal broke."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import exports
import pytest
import sample_data
from exports import Said
from few_examples import every
from hypothesis import given
from hypothesis import strategies as st
from same_jobs import capture, describe_job, read_plain

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.exports import json_documents, record_lines
from nccl_inspect.ingest.lines import terminal_wraps
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources import files, partition
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading

CAPTURES = ("peer-killed", "v2.28.9-libfabric-2node", "rank-missing-hang", "torch-watchdog-timeout")
LINE = "vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
ALL = {**exports.EXPORTS, **exports.PREFIXED}
IN_PIECES = [*exports.DOCUMENTS, *exports.TABLES]


def rows(name: str) -> list[Said]:
    return exports.make_said(capture(name))


def list_misplaced(job: Job, data: bytes) -> list[str]:
    lines = [
        line.replace('\\"', '"').replace('""', '"') for line in data.decode("utf-8", "surrogateescape").split("\n")
    ]
    cited = [one for finding in job.findings for one in finding.evidence]
    wrong = [f"{one.line}: {one.text}" for one in cited if one.text.partition(" NCCL ")[2] not in lines[one.line - 1]]
    return wrong + ([f"{job.sources[0].lines} lines"] if job.sources[0].lines != data.count(b"\n") else [])


# --- exports


@every(9)
def test_an_export_in_any_order_gives_the_same_job(step: int) -> None:
    """In order, and with the newest line first; evidence names the line where the message stands."""
    wrong, names = [], cycle(CAPTURES)
    for kind, export in [*ALL.items()][::step]:
        name = "peer-killed" if kind in IN_PIECES else next(names)
        for is_turned in (False, True):
            if is_turned and kind.startswith("one-"):
                continue
            data = export(rows(name)[:: -1 if is_turned else 1])
            job = nccl_inspect.read(data)
            if describe_job(job) != read_plain(name) or job.sources[0].newest_first != is_turned:
                wrong.append(f"{name} as {kind}, {'newest first' if is_turned else 'in order'}")
            if kind in IN_PIECES or kind in exports.PREFIXED:
                wrong += [f"{kind}: {what}" for what in list_misplaced(job, data)]
    for kind in (*exports.ROWS, *exports.TABLES, "gcloud", "insights-results", "azure-tables"):
        (event, *_) = nccl_inspect.events(exports.EXPORTS[kind](exports.make_said([LINE.encode()])))
        wrong += [] if event.where and event.where.time else [f"{kind}: its times are not kept"]
    for kind in exports.TABLES:
        head = exports.TABLES[kind]([])
        if json_documents.table_reader(head) is None or not isinstance(
            record_lines.reader_of(head), json_documents.Sheet
        ):
            wrong.append(f"{kind}: the names of its columns are not known at a glance")
    assert not wrong, "\n".join(wrong)


@every(9)
def test_an_export_that_breaks_off_gives_what_came_before(step: int) -> None:
    whole, shares = read_plain("v2.28.9-libfabric-2node")["lines"][0], cycle((0.3, 0.77))
    for kind in IN_PIECES[::step]:
        data = exports.EXPORTS[kind](rows("v2.28.9-libfabric-2node"))
        share = next(shares)
        (source,) = nccl_inspect.read(data[: int(len(data) * share)]).sources
        assert share * whole * 0.8 < source.typed_lines < whole, (kind, share)
        assert source.damaged_lines <= 1, (kind, share)


@given(st.sampled_from(IN_PIECES), st.integers(1, 5000), st.integers(0, 1000))
def test_an_export_may_come_in_any_pieces(kind: str, size: int, seed: int) -> None:
    data = exports.EXPORTS[kind](rows("rank-missing-hang"))
    choose, at = random.Random(seed), 0
    whole, cut = record_lines.reader_of(data), record_lines.reader_of(data)
    assert whole is not None
    assert cut is not None
    expected = [*whole.feed(data), *whole.finish()]
    found: list[Numbered] = []
    while at < len(data):
        step = choose.randrange(1, size + 1)
        found += cut.feed(data[at : at + step])
        at += step
    assert [*found, *cut.finish()] == expected
    assert cut.lines == whole.lines == data.count(b"\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcloud", "one-member"])
def test_records_larger_than_a_block_are_read_one_by_one(kind: str) -> None:
    data = exports.EXPORTS[kind](
        exports.make_said(line for _ in range(50) for line in capture("v2.28.9-libfabric-2node"))
    )
    assert len(data) > 1 << 20
    (source,) = nccl_inspect.read(data).sources
    assert (source.nccl_lines, source.damaged_lines) == (50 * 222, 0)


BEGINNINGS = [
    b'{"learning_rate": 0.1, "optimizer": {"name": "adam"}}\n',
    b'{\n  "learning_rate": 0.1,\n  "tags": [{"a": 1}]\n}\n',
    *(b'{"message": "starting"}\n', b'["a", "b"]\n', b'[{"x": 1}]\n', b"[rank0]: hello\n", b"Date,Host\n"),
    *(b"log\n", b"message, please\n", b'"quoted"\n', b"{", b"[", b""),
]


def test_a_log_that_begins_with_something_like_an_export_is_a_log() -> None:
    for head in BEGINNINGS:
        data = head + b"\n".join(capture("peer-killed")) + b"\n"
        job = nccl_inspect.read(data)
        assert describe_job(job)["paths"] == read_plain("peer-killed")["paths"], head
        assert not list_misplaced(job, data), head


def test_nested_json_ends() -> None:
    for data in (b"[" * 200_000, b'{"a":' * 100_000, b"[{" * 50_000, b'["' + b'\\n"' * 50_000):
        reader = json_documents.Document()
        list(reader.feed(data))
        list(reader.finish())


@given(st.binary(max_size=300), st.sampled_from([b"[", b'{"events":[', b'"', b"@timestamp,@message\n", b'[{"log":"']))
def test_no_bytes_break_the_readers_of_exports(data: bytes, head: bytes) -> None:
    for reader in (json_documents.Document(), json_documents.Sheet(["@message"], ","), terminal_wraps.Folded(80)):
        found = [*reader.feed(head + data), *reader.finish()]
        assert all(0 < one.number <= (head + data).count(b"\n") + 1 for one in found)
    nccl_inspect.read(head + data + b"\n" + LINE.encode())


def test_an_export_is_read_by_one_process(tmp_path: Path) -> None:
    for kind in ("gcloud-pretty", "insights"):
        path = tmp_path / f"{kind}.export"
        path.write_bytes(exports.EXPORTS[kind](rows("peer-killed")))
        shares = partition.planned(str(path), 4, 1)
        assert not shares or [[part.is_whole for part in share] for share in shares] == [[True]]
        assert describe_job(reading.Judge(reading.Options())(reading.fold(str(path), jobs=4))) == read_plain(
            "peer-killed"
        )


# --- newest first


def turn_lines() -> bytes:
    return exports.PREFIXED["timestamps"](rows("peer-killed")[::-1])


@sample_data.one_or_all("peer-killed", "timestamps")
def test_no_log_in_order_is_turned_or_taken_for_broken(names: tuple[str, ...]) -> None:
    wrong = []
    for name in names:
        turned = [one.name for one in nccl_inspect.read(list(sample_data.contents(name))).sources if one.newest_first]
        wrong += [f"{name} is turned: {turned}"] if turned else []
        for data in sample_data.contents(name):
            blocks = (data[at : at + (1 << 16)] for at in range(0, min(len(data), 1 << 20), 1 << 16))
            wrong += [f"{name} is taken for broken" for block in blocks if terminal_wraps.reader(block)]
    assert not wrong, "\n".join(wrong)


def test_times_that_jitter_or_begin_again_turn_nothing() -> None:
    found, choose = rows("peer-killed"), random.Random(1)
    logs = [
        [Said(row.when + timedelta(seconds=choose.random() * spread / 100), row.text) for row in found]
        for spread in (1, 5, 30)
    ]
    logs.append([*found, *(Said(row.when.replace(hour=row.when.hour - 2), row.text) for row in found)])
    kinds = exports.PREFIXED["timestamps"], exports.PREFIXED["seconds"], exports.ROWS["docker-lines"]
    for said, export in zip(logs, cycle(kinds)):
        assert not nccl_inspect.read(export(said)).sources[0].newest_first
    same = [
        Said(exports.BEGIN.replace(microsecond=0, second=at // 40), row.text) for at, row in enumerate(found)
    ]  # many lines have the same time
    assert describe_job(nccl_inspect.read(exports.PREFIXED["timestamps"](same[::-1]))) == read_plain("peer-killed")


def test_that_it_was_turned_is_told() -> None:
    assert "newest line first" in report.load("html").render(nccl_inspect.read(turn_lines()), report.Style())


@pytest.mark.slow
def test_one_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other, data = tmp_path / "job.log", tmp_path / "other.log", turn_lines()
    path.write_bytes(data + b"\n" + b"step\n" * (record_lines.MAX_TURNED // 5))
    with pytest.raises(NoInputError, match="newest line comes first") as error:
        nccl_inspect.read(path)
    assert f"tac {path} | nccl-inspect summarize" in str(error.value)
    other.write_bytes(b"\n".join(capture("rank-missing-hang")))
    job = nccl_inspect.read([str(path), str(other)])
    assert ([bool(source.problem) for source in job.sources], job.verdict) == ([True, False], "failed")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert describe_job(nccl_inspect.read("-")) == read_plain("peer-killed")
    with pytest.raises(NoInputError, match=r"newest line comes first.*tac \| nccl-inspect summarize"):
        nccl_inspect.read(io.BytesIO(data + b"\n" + b"step\n" * (files.MAX_KEPT // 5)))


def test_only_what_has_the_newest_line_first_is_turned(tmp_path: Path) -> None:
    jobs = []
    for folder in (tmp_path / "in order", tmp_path / "turned"):
        folder.mkdir()
        for node in ("0", "1"):
            mine = [row for row in rows("socket-2node-tp4-dp2") if f"node-0-{node}:" in row.text]
            is_turned = (folder.name, node) == ("turned", "1")
            data = exports.PREFIXED["timestamps"](mine[:: -1 if is_turned else 1])
            (folder / f"node-{node}.log").write_bytes(data)
        jobs.append(nccl_inspect.read(folder))
    assert [source.newest_first for source in jobs[1].sources] == [False, True]
    assert describe_job(jobs[1]) == describe_job(jobs[0])


def broken(lines: Sequence[bytes], width: int, padded: bool) -> bytes:
    pieces = [line.rstrip()[at : at + width] for line in lines for at in range(0, max(len(line.rstrip()), 1), width)]
    return b"".join((piece.ljust(width) if padded else piece.rstrip()) + b"\n" for piece in pieces)


def test_lines_that_a_terminal_broke_are_put_together() -> None:
    for name, (width, padded) in zip(cycle(CAPTURES[:2]), ((80, False), (80, True), (100, False), (132, True))):
        data = broken(capture(name), width, padded)
        job, physical = nccl_inspect.read(data), data.decode().split("\n")
        assert describe_job(job) | {"lines": 0} == read_plain(name) | {"lines": 0}, (name, width, padded)
        assert job.sources[0].lines == data.count(b"\n")
        for one in (one for finding in job.findings for one in finding.evidence):
            assert physical[one.line - 1][: width // 2] in one.text


def test_lines_of_the_same_length_with_text_between_are_not_broken() -> None:
    line = b"vm:1:%d [0] NCCL INFO ncclCommInitRank comm 0x5555%04d rank 0 nranks 8 - Init COMPLETE\ncommunicator %d\n"
    assert terminal_wraps.reader(b"".join(line % (index, index, index) for index in range(10, 60))) is None
