"""Exports of log explorers: JSON documents, tables, the newest line first; and lines that a terminal broke."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sample_data
from few_examples import every
from hypothesis import given
from hypothesis import strategies as st
from same_jobs import capture, describe_job, read_plain

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines import torn
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources import blocks as source_blocks
from nccl_inspect.ingest.sources import exports, files
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading, workers

# --- exports, after the documentation of the tools and their real output; names are made up

BEGIN = datetime(2026, 11, 20, 23, 13, 7, 71_868, tzinfo=UTC)


class Said(NamedTuple):
    """A line, and when it was printed."""

    when: datetime
    text: str

    @property
    def iso(self) -> str:
        return self.when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def plain_line(self) -> str:
        return self.when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    @property
    def thousandths(self) -> int:
        return int(self.when.timestamp() * 1000)

    @property
    def milliardths(self) -> str:
        return f"{self.thousandths}071868"


Export = Callable[[Sequence[Said]], bytes]


def make_said(lines: Iterable[bytes], step: float = 0.0013) -> list[Said]:
    """Return lines with times, ``step`` seconds apart."""
    return [
        Said(BEGIN + timedelta(seconds=step * index), line.decode("utf-8", "surrogateescape"))
        for index, line in enumerate(lines)
    ]


def dump(document: Any, **how: Any) -> bytes:
    return json.dumps(document, **how).encode() + b"\n"


def json_lines(record: Callable[[Said], Any]) -> Export:
    """Return JSON, one record in each line."""
    return lambda rows: b"".join(dump(record(row)) for row in rows)


def json_document(
    name: str, record: Callable[[Said], Any], around: Callable[[list[Any]], Any] = list
) -> dict[str, Export]:
    """Return a JSON document, in one line and over many, by their names."""
    return {
        name: lambda rows: dump(around([record(row) for row in rows])),
        f"{name}-pretty": lambda rows: dump(around([record(row) for row in rows]), indent=2),
    }


def csv_table(names: Sequence[str], row: Callable[[Said], Sequence[object]], **how: Any) -> Export:
    """Return CSV with a line of names."""

    def export(rows: Sequence[Said]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, **how)
        writer.writerow(names)
        writer.writerows(map(row, rows))
        return text.getvalue().encode("utf-8", "surrogateescape")

    return export


def add_prefixes(front: Callable[[Said], str]) -> Export:
    return lambda rows: b"".join(f"{front(row)}{row.text}\n".encode("utf-8", "surrogateescape") for row in rows)


def gcp(row: Said) -> dict[str, Any]:
    return {
        "insertId": "1k2j3",
        "labels": {"k8s-pod/app": "llama"},
        "logName": "projects/p/logs/stdout",
        "receiveTimestamp": row.iso,
        "resource": {"labels": {"cluster_name": "c", "pod_name": "llama-0"}, "type": "k8s_container"},
        "severity": "INFO",
        "textPayload": row.text + "\n",
        "timestamp": row.iso,
    }


def cloudwatch(row: Said) -> dict[str, Any]:
    return {"logStreamName": "train/main/4f1c", "timestamp": row.thousandths, "message": row.text, "eventId": "3" * 56}


def insights(row: Said) -> list[dict[str, str]]:
    return [{"field": "@timestamp", "value": row.plain_line}, {"field": "@message", "value": row.text}]


def elastic(row: Said) -> dict[str, Any]:
    source = {"@timestamp": row.iso, "message": row.text, "kubernetes": {"pod": {"name": "llama-0"}}}
    return {"_index": "logs", "_id": "1", "_score": None, "_source": source, "sort": [1, 2]}


def hits(found: list[Any]) -> dict[str, Any]:
    return {"took": 3, "_shards": {"total": 1, "failures": []}, "hits": {"total": {"value": 9}, "hits": found}}


def loki(found: list[Any]) -> dict[str, Any]:
    stream = {"stream": {"pod": "llama-0", "container": "trainer"}, "values": found}
    return {"status": "success", "data": {"resultType": "streams", "result": [stream], "stats": {"ingester": {}}}}


def azure(found: list[Any]) -> dict[str, Any]:
    names = [{"name": name, "type": "string"} for name in ("TimeGenerated", "PodName", "LogMessage")]
    return {"tables": [{"name": "PrimaryResult", "columns": names, "rows": found}]}


def datadog(row: Said) -> dict[str, Any]:
    return {"id": "A1", "type": "log", "attributes": {"timestamp": row.iso, "host": "gpu-1", "message": row.text}}


def unknown(row: Said) -> dict[str, Any]:
    return {"meta": {"seq": 1, "at": row.iso}, "entry": {"what": row.text}}


DOCUMENTS: dict[str, Export] = {
    **json_document("gcloud", gcp),
    **json_document("cloudwatch-events", cloudwatch, lambda found: {"events": found, "searchedLogStreams": []}),
    **json_document("insights-results", insights, lambda found: {"results": found, "status": "Complete"}),
    **json_document("insights-json", lambda row: {"@timestamp": row.plain_line, "@message": row.text}),
    **json_document("elastic-search", elastic, hits),
    **json_document("loki-api", lambda row: [row.milliardths, row.text], loki),
    **json_document("loki", lambda row: {"labels": {"pod": "a"}, "line": row.text, "timestamp": row.iso}),
    **json_document("azure-tables", lambda row: [row.iso, "llama-0", row.text], azure),
    **json_document("azure-cli", lambda row: {"LogMessage": row.text, "PodName": "a", "TimeGenerated": row.iso}),
    **json_document("datadog-api", datadog, lambda found: {"data": found, "meta": {"elapsed": 1}}),
    **json_document("docker", lambda row: {"log": row.text + "\n", "stream": "stdout", "time": row.iso}),
    **json_document("unknown", unknown),
    "jq": lambda rows: b"".join(dump(gcp(row), indent=2) for row in rows),
    "one-string": lambda rows: dump("\n".join(row.text for row in rows)),
    "one-member": lambda rows: dump({"status": "ok", "logs": "\n".join(row.text for row in rows)}),
}
"""JSON that is more, or less, than one object for each line."""
ROWS: dict[str, Export] = {
    "gcloud-lines": json_lines(gcp),
    "docker-lines": json_lines(lambda row: {"log": row.text + "\n", "stream": "stdout", "time": row.iso}),
    "loki-lines": json_lines(lambda row: {"labels": {"pod": "a"}, "line": row.text, "timestamp": row.iso}),
    "elastic-lines": json_lines(elastic),
    "splunk-lines": json_lines(lambda row: {"preview": False, "result": {"_raw": row.text, "_time": row.iso}}),
    "slog-lines": json_lines(lambda row: {"time": row.iso, "msg": row.text, "line": "train.go:12"}),
    "docker-message-lines": json_lines(lambda row: {"message": "stdout", "log": row.text + "\n", "time": row.iso}),
    "blank-message-lines": json_lines(lambda row: {"log": row.text + "\n", "message": " ", "time": row.iso}),
    "datadog-message-lines": json_lines(
        lambda row: {"attributes": {"message": row.text, "timestamp": row.iso}, "message": "m"}
    ),
    "unknown-lines": json_lines(unknown),
}
"""JSON with one object in each line."""
TABLES: dict[str, Export] = {
    "insights": csv_table(["@timestamp", "@message"], lambda row: [row.plain_line, row.text]),
    "insights-columns": csv_table(
        ["@logStream", "@message", "@log", "@timestamp"],
        lambda row: ["train/main", row.text, "1:train", row.plain_line],
    ),
    "console": csv_table(["timestamp", "message"], lambda row: [row.thousandths, row.text]),
    "gcp": csv_table(
        ["insertId", 'labels."k8s-pod/app"', "resource.labels.pod_name", "textPayload", "timestamp"],
        lambda row: ["1k2j3", "llama", "llama-0", row.text + "\n", row.iso],
    ),
    "azure": csv_table(
        ["TimeGenerated [UTC]", "Computer", "LogMessage"],
        lambda row: [row.when.strftime("%m/%d/%Y, %I:%M:%S.%f %p"), "aks-1", row.text],
    ),
    "datadog": csv_table(
        ["Date", "Host", "Service", "Content"], lambda row: [row.iso, "gpu-1", "train", row.text], quoting=csv.QUOTE_ALL
    ),
    "kibana": csv_table(
        ["@timestamp", "kubernetes.pod.name", "message"],
        lambda row: [row.when.strftime("%b %d, %Y @ %H:%M:%S.%f"), "llama-0", row.text],
    ),
    "splunk": csv_table(["_raw", "_time", "host"], lambda row: [row.text, row.iso, "gpu-1"], quoting=csv.QUOTE_ALL),
    "grafana": csv_table(
        ["Time", "Line", "tsNs"], lambda row: [row.iso, row.text, row.milliardths], quoting=csv.QUOTE_ALL
    ),
    "semicolons": csv_table(["@timestamp", "@message"], lambda row: [row.iso, row.text], delimiter=";"),
    "tabs": csv_table(["TimeGenerated", "LogEntry"], lambda row: [row.iso, row.text], delimiter="\t"),
}
"""CSV."""
PREFIXED: dict[str, Export] = {
    "timestamps": add_prefixes(lambda row: f"{row.iso} "),
    "pods": add_prefixes(lambda row: f"[pod/llama-0/trainer] {row.iso} "),
    "logcli": add_prefixes(lambda row: f'{row.iso} {{app="llama", pod="llama-0"}} '),
    "aws-tail": add_prefixes(lambda row: f"{row.iso[:-1]}+00:00 train/main/4f1c "),
    "seconds": add_prefixes(lambda row: row.when.strftime("%b %d %H:%M:%S node-1 train[7]: ")),
    "": add_prefixes(lambda row: ""),
}
"""Text; the last one has no times of its own."""
EXPORTS = {**DOCUMENTS, **ROWS, **TABLES}


# --- the logs and the kinds that tests take

CAPTURES = ("peer-killed", "v2.28.9-libfabric-2node", "rank-missing-hang", "torch-watchdog-timeout")
LINE = "vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
ALL = {**EXPORTS, **PREFIXED}
IN_PIECES = [*DOCUMENTS, *TABLES]


def rows(name: str) -> list[Said]:
    return make_said(capture(name))


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
            if kind in IN_PIECES or kind in PREFIXED:
                wrong += [f"{kind}: {what}" for what in list_misplaced(job, data)]
    for kind in (*ROWS, *TABLES, "gcloud", "insights-results", "azure-tables"):
        (event, *_) = nccl_inspect.events(EXPORTS[kind](make_said([LINE.encode()])))
        wrong += [] if event.where and event.where.time else [f"{kind}: its times are not kept"]
    for kind in TABLES:
        head = TABLES[kind]([])
        if exports.table_reader(head) is None or not isinstance(source_blocks.reader_of(head), exports.Sheet):
            wrong.append(f"{kind}: the names of its columns are not known at a glance")
    assert not wrong, "\n".join(wrong)


@every(9)
def test_an_export_that_breaks_off_gives_what_came_before(step: int) -> None:
    whole, shares = read_plain("v2.28.9-libfabric-2node")["lines"][0], cycle((0.3, 0.77))
    for kind in IN_PIECES[::step]:
        data = EXPORTS[kind](rows("v2.28.9-libfabric-2node"))
        share = next(shares)
        (source,) = nccl_inspect.read(data[: int(len(data) * share)]).sources
        assert share * whole * 0.8 < source.typed_lines < whole, (kind, share)
        assert source.damaged_lines <= 1, (kind, share)


@given(st.sampled_from(IN_PIECES), st.integers(1, 5000), st.integers(0, 1000))
def test_an_export_may_come_in_any_pieces(kind: str, size: int, seed: int) -> None:
    data = EXPORTS[kind](rows("rank-missing-hang"))
    choose, at = random.Random(seed), 0
    whole, cut = source_blocks.reader_of(data), source_blocks.reader_of(data)
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
    data = EXPORTS[kind](make_said(line for _ in range(50) for line in capture("v2.28.9-libfabric-2node")))
    assert len(data) > 1 << 20
    (source,) = nccl_inspect.read(data).sources
    assert (source.nccl_lines, source.damaged_lines) == (50 * 222, 0)


def test_nested_json_ends() -> None:
    for data in (b"[" * 200_000, b'{"a":' * 100_000, b"[{" * 50_000, b'["' + b'\\n"' * 50_000):
        reader = exports.Document()
        list(reader.feed(data))
        list(reader.finish())


@given(st.binary(max_size=300), st.sampled_from([b"[", b'{"events":[', b'"', b"@timestamp,@message\n", b'[{"log":"']))
def test_no_bytes_break_the_readers_of_exports(data: bytes, head: bytes) -> None:
    for reader in (exports.Document(), exports.Sheet(["@message"], ","), torn.Folded(80)):
        found = [*reader.feed(head + data), *reader.finish()]
        assert all(0 < one.number <= (head + data).count(b"\n") + 1 for one in found)
    nccl_inspect.read(head + data + b"\n" + LINE.encode())


def test_an_export_is_read_by_one_process(tmp_path: Path) -> None:
    for kind in ("gcloud-pretty", "insights"):
        path = tmp_path / f"{kind}.export"
        path.write_bytes(EXPORTS[kind](rows("peer-killed")))
        shares = workers.plan_parts(str(path), 4, 1)
        assert not shares or [[(part.start, part.end) for part in share] for share in shares] == [[(0, None)]]
        job = reading.Judge(reading.Options())(reading.fold(str(path), jobs=4))
        assert describe_job(job) == read_plain("peer-killed")


# --- newest first


def turn_lines() -> bytes:
    return PREFIXED["timestamps"](rows("peer-killed")[::-1])


@sample_data.one_or_all("peer-killed", "timestamps")
def test_no_log_in_order_is_turned_or_taken_for_broken(names: tuple[str, ...]) -> None:
    wrong = []
    for name in names:
        turned = [one.name for one in nccl_inspect.read(list(sample_data.contents(name))).sources if one.newest_first]
        wrong += [f"{name} is turned: {turned}"] if turned else []
        for data in sample_data.contents(name):
            blocks = (data[at : at + (1 << 16)] for at in range(0, min(len(data), 1 << 20), 1 << 16))
            wrong += [f"{name} is taken for broken" for block in blocks if torn.wrap_reader(block)]
    assert not wrong, "\n".join(wrong)


def test_times_that_jitter_or_begin_again_turn_nothing() -> None:
    found, choose = rows("peer-killed"), random.Random(1)
    logs = [
        [Said(row.when + timedelta(seconds=choose.random() * spread / 100), row.text) for row in found]
        for spread in (1, 5, 30)
    ]
    logs.append([*found, *(Said(row.when.replace(hour=row.when.hour - 2), row.text) for row in found)])
    kinds = PREFIXED["timestamps"], PREFIXED["seconds"], ROWS["docker-lines"]
    for said, export in zip(logs, cycle(kinds)):
        assert not nccl_inspect.read(export(said)).sources[0].newest_first
    # many lines have the same time
    same = [Said(BEGIN.replace(microsecond=0, second=at // 40), row.text) for at, row in enumerate(found)]
    assert describe_job(nccl_inspect.read(PREFIXED["timestamps"](same[::-1]))) == read_plain("peer-killed")


def test_that_it_was_turned_is_told() -> None:
    assert "newest line first" in report.load("html").render(nccl_inspect.read(turn_lines()), report.Style())


@pytest.mark.slow
def test_one_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other, data = tmp_path / "job.log", tmp_path / "other.log", turn_lines()
    path.write_bytes(data + b"\n" + b"step\n" * (source_blocks.MAX_TURNED // 5))
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
            data = PREFIXED["timestamps"](mine[:: -1 if is_turned else 1])
            (folder / f"node-{node}.log").write_bytes(data)
        jobs.append(nccl_inspect.read(folder))
    assert [source.newest_first for source in jobs[1].sources] == [False, True]
    assert describe_job(jobs[1]) == describe_job(jobs[0])


def test_a_table_has_its_lines_in_the_column_that_holds_those_of_nccl() -> None:
    said = rows("peer-killed")
    tables = [
        TABLES["console"],
        csv_table(["timestamp", "message", "log"], lambda row: [row.iso, "ok", row.text]),
        csv_table(["timestamp", "message", "log"], lambda row: [row.iso, row.text, "stdout"]),
    ]
    first, *others = [nccl_inspect.read(table(said)).sources[0].nccl_lines for table in tables]
    assert first and others == [first, first]


def test_a_document_of_one_line_has_one_and_epochs_are_shown_as_dates() -> None:
    data = json_document("", cloudwatch)[""](rows("peer-killed"))
    for export in (data, data.removesuffix(b"\n")):
        job = nccl_inspect.read(export)
        assert job.head
        assert (job.sources[0].lines, job.head.since.count("2026-11-20 23:13:0")) == (1, 2)


def test_the_parts_of_a_line_that_docker_cut_are_one_line_in_any_export() -> None:
    line = f"vm:11:12 [0] x.cc:1 NCCL WARN {'a' * 20_000} ends here\n"
    parts = [{"log": part, "stream": "stdout"} for part in (line[: 1 << 14], line[1 << 14 :])]
    for records in (parts, [{"_source": part} for part in parts]):
        for export in (dump(records), dump(records, indent=1), b"".join(map(dump, records))):
            assert [notice.message[-9:] for notice in nccl_inspect.read(export).notices] == ["ends here"]


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
    assert torn.wrap_reader(b"".join(line % (index, index, index) for index in range(10, 60))) is None
