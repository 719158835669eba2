"""Exports of log explorers: JSON documents, tables, the newest line first; and lines that a terminal broke."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import exports
import pytest
import sample_data
from exports import Export, Said
from hypothesis import given, settings
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.exports import csv_tables, json_documents, record_lines
from nccl_inspect.ingest.lines import terminal_wraps
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources import files, partition
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading

CAPTURES = ("v2.28.9-libfabric-2node", "peer-killed", "rank-missing-hang", "torch-watchdog-timeout")
LINE = "vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


@cache
def capture(name: str) -> tuple[bytes, ...]:
    (data,) = sample_data.contents(name)
    return tuple(data.rstrip(b"\n").split(b"\n"))


@cache
def plain(name: str) -> dict[str, Any]:
    return told(nccl_inspect.read(b"\n".join(capture(name)) + b"\n"))


def told(job: Job) -> dict[str, Any]:
    """What must not depend on how a log was handed over."""
    first = job.first_failure
    return {
        "verdict": job.verdict,
        "paths": [(path.src, path.dst, path.src_host, path.detail, path.gdr, path.channels) for path in job.paths],
        "findings": sorted((one.rule, one.severity, one.confidence, tuple(one.ranks)) for one in job.findings),
        "communicators": [(one.id, one.nranks, one.ranks, one.state, one.rings) for one in job.communicators],
        "environment": sorted((one.name, one.value) for one in job.environment),
        "first failure": first.ranks if first else None,
        "lines": (job.sources[0].nccl_lines, job.sources[0].typed_lines, job.sources[0].damaged_lines),
    }


def rows(name: str) -> list[Said]:
    return exports.said(capture(name))


def text_at(data: bytes, line: int) -> str:
    return data.decode("utf-8", "surrogateescape").split("\n")[line - 1]


def cited(job: Job) -> list[tuple[int, str]]:
    return [(one.line, one.text) for finding in job.findings for one in finding.evidence]


# --- exports


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("kind", exports.EXPORTS)
def test_an_export_gives_the_same_job(kind: str, name: str) -> None:
    assert told(nccl_inspect.read(exports.EXPORTS[kind](rows(name)))) == plain(name)


@pytest.mark.parametrize("kind", [*exports.DOCUMENTS, *exports.TABLES])
def test_evidence_names_the_line_of_the_export_in_which_the_message_stands(kind: str) -> None:
    data = exports.EXPORTS[kind](rows("peer-killed"))
    job = nccl_inspect.read(data)
    assert job.sources[0].lines == data.count(b"\n")
    lines = cited(job)
    assert lines
    for line, text in lines:
        assert text.partition(" NCCL ")[2] in text_at(data, line).replace('\\"', '"').replace('""', '"')


@pytest.mark.parametrize("kind", [*exports.ROWS, *exports.TABLES, "gcloud", "insights-results", "azure-tables"])
def test_times_and_labels_of_an_export_are_kept(kind: str) -> None:
    (event, *_) = nccl_inspect.events(exports.EXPORTS[kind](exports.said([LINE.encode()])))
    assert event.where is not None
    assert event.where.time


@pytest.mark.parametrize("kind", [*exports.DOCUMENTS, *exports.TABLES])
@pytest.mark.parametrize("share", [0.3, 0.77])
def test_an_export_that_breaks_off_gives_what_came_before(kind: str, share: float) -> None:
    found = rows("v2.28.9-libfabric-2node")
    data = exports.EXPORTS[kind](found)
    job = nccl_inspect.read(data[: int(len(data) * share)])
    whole = plain("v2.28.9-libfabric-2node")["lines"][0]
    assert share * whole * 0.8 < job.sources[0].typed_lines < whole
    assert job.sources[0].damaged_lines <= 1


@pytest.mark.parametrize("kind", [*exports.DOCUMENTS, *exports.TABLES])
@given(st.integers(1, 5000), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_an_export_may_come_in_any_pieces(kind: str, size: int, seed: int) -> None:
    data = exports.EXPORTS[kind](rows("rank-missing-hang"))
    choose = random.Random(seed)
    whole, cut = record_lines.reader_of(data), record_lines.reader_of(data)
    assert whole is not None
    assert cut is not None
    expected = [*whole.feed(data), *whole.finish()]
    found: list[Numbered] = []
    at = 0
    while at < len(data):
        step = choose.randrange(1, size + 1)
        found += cut.feed(data[at : at + step])
        at += step
    assert [*found, *cut.finish()] == expected
    assert cut.lines == whole.lines == data.count(b"\n")


def test_records_larger_than_a_block_are_read_one_by_one() -> None:
    found = exports.said(line for _ in range(50) for line in capture("v2.28.9-libfabric-2node"))
    for kind in ("gcloud", "azure-tables", "loki-api", "elastic-search", "one-member"):
        data = exports.EXPORTS[kind](found)
        assert len(data) > 1 << 20
        job = nccl_inspect.read(data)
        assert (job.sources[0].nccl_lines, job.sources[0].damaged_lines) == (50 * 222, 0), kind


def test_a_message_of_several_lines_is_several_lines() -> None:
    text = "\n".join([LINE, LINE.replace("00/0", "01/0"), "Traceback"])
    for data in (exports.dumped([{"message": text}]), exports.TABLES["insights"]([Said(exports.BEGIN, text)])):
        (path,) = nccl_inspect.read(data).paths
        assert path.channels == [0, 1]


@pytest.mark.parametrize(
    "head",
    [
        b'{"learning_rate": 0.1, "optimizer": {"name": "adam"}}\n',
        b'{\n  "learning_rate": 0.1,\n  "tags": [{"a": 1}]\n}\n',
        b'{"message": "starting"}\n',
        b'["a", "b"]\n',
        b'[{"x": 1}]\n',
        b"[rank0]: hello\n",
        b"Date,Host\n",
        b"log\n",
        b"message, please\n",
        b'"quoted"\n',
        b"{",
        b"[",
        b"",
    ],
)
def test_a_log_that_begins_with_something_like_an_export_is_a_log(head: bytes) -> None:
    log = b"\n".join(capture("peer-killed")) + b"\n"
    job = nccl_inspect.read(head + log)
    assert told(job)["paths"] == plain("peer-killed")["paths"]
    assert job.sources[0].lines == (head + log).count(b"\n")
    lines = (head + log).decode().split("\n")
    assert all(text in lines[line - 1] for line, text in cited(job))


def test_a_row_that_does_not_fit_its_table_is_a_line() -> None:
    data = b'@timestamp,@message\n2026-11-20 23:13:07.071,"%b"\nx\n"no end\n%b\n' % (LINE.encode(), LINE.encode())
    job = nccl_inspect.read(data)
    assert job.sources[0].typed_lines == 2
    assert job.sources[0].lines == data.count(b"\n")


@pytest.mark.parametrize("kind", exports.TABLES)
def test_the_names_of_columns_are_known_at_a_glance(kind: str) -> None:
    head = exports.TABLES[kind]([])
    reader = csv_tables.reader(head)
    assert reader is not None
    assert isinstance(record_lines.reader_of(head), csv_tables.Sheet)


def test_nested_json_ends() -> None:
    for data in (b"[" * 200_000, b'{"a":' * 100_000, b"[{" * 50_000, b'["' + b'\\n"' * 50_000):
        reader = json_documents.Document()
        list(reader.feed(data))
        list(reader.finish())


@given(st.binary(max_size=300), st.sampled_from([b"[", b'{"events":[', b'"', b"@timestamp,@message\n", b'[{"log":"']))
@settings(deadline=None)
def test_no_bytes_break_the_readers_of_exports(data: bytes, head: bytes) -> None:
    for reader in (json_documents.Document(), csv_tables.Sheet(["@message"], ","), terminal_wraps.Folded(80)):
        found = [*reader.feed(head + data), *reader.finish()]
        assert all(0 < one.number <= (head + data).count(b"\n") + 1 for one in found)
    nccl_inspect.read(head + data + b"\n" + LINE.encode())


def test_an_export_is_read_by_one_process(tmp_path: Path) -> None:
    for kind in ("gcloud-pretty", "insights"):
        path = tmp_path / f"{kind}.export"
        path.write_bytes(exports.EXPORTS[kind](rows("peer-killed")))
        shares = partition.planned(str(path), 4, 1)
        assert not shares or [[part.is_whole for part in share] for share in shares] == [[True]]
        assert told(reading.Judge(reading.Options())(reading.fold(str(path), jobs=4))) == plain("peer-killed")


# --- newest first


def turned(kind: str, name: str) -> bytes:
    return {**exports.EXPORTS, **exports.PREFIXED}[kind](rows(name)[::-1])


NEWEST_FIRST = [kind for kind in {**exports.EXPORTS, **exports.PREFIXED} if not kind.startswith("one-")]


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("kind", NEWEST_FIRST)
def test_a_log_with_the_newest_line_first_gives_the_same_job(kind: str, name: str) -> None:
    job = nccl_inspect.read(turned(kind, name))
    assert job.sources[0].newest_first
    assert told(job) == plain(name)


@pytest.mark.parametrize("kind", ["timestamps", "gcloud-pretty", "insights", ""])
def test_evidence_of_a_log_that_was_turned_names_the_line_where_it_stands(kind: str) -> None:
    data = turned(kind, "peer-killed")
    job = nccl_inspect.read(data)
    assert job.sources[0].lines == data.count(b"\n")
    for line, text in cited(job):
        assert text.partition(" NCCL ")[2] in text_at(data, line).replace('\\"', '"').replace('""', '"')


@pytest.mark.parametrize("name", sample_data.names())
def test_no_log_in_order_is_turned(name: str) -> None:
    job = nccl_inspect.read(list(sample_data.contents(name)))
    assert not any(source.newest_first for source in job.sources)


@pytest.mark.parametrize("kind", [*exports.EXPORTS, *exports.PREFIXED])
def test_no_export_in_order_is_turned(kind: str) -> None:
    export: Export = {**exports.EXPORTS, **exports.PREFIXED}[kind]
    for name in CAPTURES[:3]:
        assert not nccl_inspect.read(export(rows(name))).sources[0].newest_first


def test_times_that_jitter_turn_nothing() -> None:
    choose = random.Random(1)
    for spread in (1, 5, 30):
        found = [
            Said(row.when + timedelta(seconds=choose.random() * spread / 100), row.text) for row in rows("peer-killed")
        ]
        assert not nccl_inspect.read(exports.PREFIXED["timestamps"](found)).sources[0].newest_first


def test_a_container_that_was_started_again_turns_nothing() -> None:
    later = [Said(row.when.replace(hour=row.when.hour - 2), row.text) for row in rows("peer-killed")]
    for export in (exports.PREFIXED["timestamps"], exports.PREFIXED["seconds"], exports.ROWS["docker-lines"]):
        assert not nccl_inspect.read(export([*rows("peer-killed"), *later])).sources[0].newest_first


def test_lines_of_the_same_time_are_turned_too() -> None:
    found = [
        Said(exports.BEGIN.replace(microsecond=0, second=index // 40), row.text)
        for index, row in enumerate(rows("peer-killed"))
    ]
    assert told(nccl_inspect.read(exports.PREFIXED["timestamps"](found[::-1]))) == plain("peer-killed")


def test_that_it_was_turned_is_told() -> None:
    job = nccl_inspect.read(turned("timestamps", "peer-killed"))
    assert json.loads(json.dumps(job.to_dict()))["sources"][0]["newest_first"] is True
    assert "newest first: read from the end" in " ".join(report.load("text").render(job, report.Style()).split())
    assert "newest line first" in report.load("html").render(job, report.Style())


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(turned("timestamps", "peer-killed") + b"\n" + b"step\n" * (record_lines.MAX_TURNED // 5))
    with pytest.raises(NoInputError, match="newest line comes first") as error:
        nccl_inspect.read(path)
    assert f"tac {path} | nccl-inspect summarize" in str(error.value)
    other = tmp_path / "other.log"
    other.write_bytes(b"\n".join(capture("rank-missing-hang")))
    job = nccl_inspect.read([str(path), str(other)])
    assert [bool(source.problem) for source in job.sources] == [True, False]
    assert job.verdict == "failed"


def test_a_stream_is_turned_as_long_as_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    data = turned("timestamps", "peer-killed")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert told(nccl_inspect.read("-")) == plain("peer-killed")
    with pytest.raises(NoInputError, match=r"newest line comes first.*tac \| nccl-inspect summarize"):
        nccl_inspect.read(io.BytesIO(data + b"\n" + b"step\n" * (files.MAX_KEPT // 5)))


def test_only_what_has_the_newest_line_first_is_turned(tmp_path: Path) -> None:
    found = rows("socket-2node-tp4-dp2")
    jobs = []
    for kind in ("in order", "turned"):
        (tmp_path / kind).mkdir()
        for node in ("0", "1"):
            mine = [row for row in found if f"node-0-{node}:" in row.text]
            data = exports.PREFIXED["timestamps"](mine[::-1] if (kind, node) == ("turned", "1") else mine)
            (tmp_path / kind / f"node-{node}.log").write_bytes(data)
        jobs.append(nccl_inspect.read(tmp_path / kind))
    assert [source.newest_first for source in jobs[1].sources] == [False, True]
    assert told(jobs[1]) == told(jobs[0])


# --- lines that a terminal broke


def broken(lines: Sequence[bytes], width: int, padded: bool = False) -> bytes:
    pieces = [line.rstrip()[at : at + width] for line in lines for at in range(0, max(len(line.rstrip()), 1), width)]
    return b"".join((piece.ljust(width) if padded else piece.rstrip()) + b"\n" for piece in pieces)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("width", [80, 100, 132])
@pytest.mark.parametrize("name", ["v2.28.9-libfabric-2node", "peer-killed", "torch-watchdog-timeout"])
def test_lines_that_a_terminal_broke_are_put_together(name: str, width: int, padded: bool) -> None:
    data = broken(capture(name), width, padded)
    job = nccl_inspect.read(data)
    expected = plain(name)
    assert {key: value for key, value in told(job).items() if key != "lines"} == {
        key: value for key, value in expected.items() if key != "lines"
    }
    assert job.sources[0].lines == data.count(b"\n")
    for line, text in cited(job):
        assert text_at(data, line)[: width // 2] in text


@pytest.mark.parametrize("name", sample_data.names())
def test_no_log_as_it_was_written_is_taken_for_broken(name: str) -> None:
    for data in sample_data.contents(name):
        assert all(
            terminal_wraps.reader(data[at : at + (1 << 16)]) is None
            for at in range(0, min(len(data), 1 << 20), 1 << 16)
        )


def test_lines_of_the_same_length_with_text_between_are_not_broken() -> None:
    lines = [
        b"vm:1:%d [0] NCCL INFO ncclCommInitRank comm 0x5555%04d rank 0 nranks 8 - Init COMPLETE\ncommunicator %d\n"
        % (index, index, index)
        for index in range(10, 60)
    ]
    assert terminal_wraps.reader(b"".join(lines)) is None


def test_json_of_one_line_is_json() -> None:
    job = nccl_inspect.read(json.dumps({"events": [{"message": LINE, "timestamp": 1}]}).encode())
    assert [path.detail for path in job.paths] == ["P2P/CUMEM"]
