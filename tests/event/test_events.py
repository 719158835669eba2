"""``nccl-inspect events`` and the tables of the library."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import sample_data
from pyarrow import feather, parquet

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.errors import NoInputError
from nccl_inspect.event import arrow, writers
from nccl_inspect.event.types import KINDS, list_fields

LOG = b"""\
vm:11:11 [0] NCCL INFO cudaDriverVersion 13000
vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
vm:11:12 [0] NCCL INFO Trees [0] 2/-1/-1->0->-1 [1] -1/-1/-1->0->1
vm:11:12 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)
wm:13:14 [1] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA
wm:13:14 [1] misc/socket.cc:500 NCCL WARN Call to bind failed: Permission denied
"""
RUN = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_bytes(LOG)
    return path


def run(*words: object) -> None:
    cli.main([str(word) for word in words], standalone_mode=False)


def write_events(log: Path, name: str, *options: str) -> Path:
    target = log.with_name(name)
    run("events", log, "-o", target, *options)
    return target


SAMPLES = ("socket-2node-tp4-dp2", "torn-p2p-8gpu", "debug-file-per-process", "torch-watchdog-timeout", "timestamps")


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as opened:
            return list(csv.DictReader(opened))
    if file.suffix == ".jsonl":
        return list(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    rows: list[dict[str, Any]] = (parquet if file.suffix == ".parquet" else feather).read_table(file).to_pylist()
    return rows


@pytest.mark.slow
def test_every_format_holds_the_same(tmp_path: Path) -> None:
    for sample in SAMPLES:
        inputs = [str(file) for file in sample_data.files(sample)]
        table = nccl_inspect.events_table(inputs)
        assert table.num_rows == len(list(nccl_inspect.events(inputs)))
        for suffix in ("parquet", "arrow", "csv", "jsonl"):
            run("events", *inputs, "-o", tmp_path / f"e.{suffix}")
        filled = parquet.read_table(tmp_path / "e.parquet")
        assert filled.equals(table.select(filled.column_names))
        empty = set(table.column_names) - {*filled.column_names}
        assert all(table.column(name).null_count == len(table) for name in empty)
        assert feather.read_table(tmp_path / "e.arrow").equals(table)
        for suffix in ("csv", "jsonl"):
            found = [(int(row["line"]), row["message"]) for row in rows_of(tmp_path / f"e.{suffix}")]
            assert found == [(row["line"], row["message"]) for row in table.to_pylist()]


def test_nothing_that_an_event_states_is_lost() -> None:
    rows = nccl_inspect.events_table(LOG).to_pylist()
    for event, row in zip(nccl_inspect.events(LOG), rows, strict=True):
        assert row["kind"] == type(event).__name__
        assert (row["host"], row["line"], row["message"]) == (event.host, event.line, event.message)
        stated = {name: value for name, value in list_fields(event).items() if name != "values"}
        assert {name: row[name] for name in stated} == _with_lists(stated)
    plugin = next(row for row in rows if row["kind"] == "PluginStatus")
    assert (plugin["plugin_kind"], plugin["plugin"]) == ("NET", "Libfabric")
    schema = arrow.schema()
    assert {name for kind in KINDS for name in arrow.schema(frozenset({kind})).names} == set(schema.names)


def _with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_lists(one) for name, one in value.items()}
    return list(map(_with_lists, value)) if isinstance(value, list | tuple) else value


ODD = rb"""
{"msg":"vm:1:2 [3] NCCL INFO cudaDriverVersion 13000","rank":99999999999999999999999,"hostname":"\ud83d"}
{"msg":"vm:1:2 [3] NCCL INFO cudaDriverVersion 13000","rank":7,"hostname":"a,\"b\"\r\n,c"}
"""


def test_what_no_table_can_hold_is_left_out_or_shown(log: Path) -> None:
    log.write_bytes(ODD.lstrip())
    for suffix in ("parquet", "arrow", "csv", "jsonl"):
        rows = rows_of(write_events(log, f"e.{suffix}"))
        assert [row.get("label_rank") or None for row in rows] == [None, "7" if suffix == "csv" else 7]
        assert [row["label"] for row in rows] == ["?", 'a,"b"\r\n,c']


def test_rows_of_places_that_never_come_again_are_forgotten() -> None:
    class Nowhere(io.RawIOBase):
        def write(self, data: Any, /) -> int:
            return len(data)

    event = next(nccl_inspect.events(LOG))
    told = ((event.where._replace(label=f"{number}" * 10_000), event) for number in range(1000))
    tracemalloc.start()
    writers.FORMATS["jsonl"].write(told, frozenset(), Nowhere())  # type: ignore[arg-type]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 20 << 20


def test_the_columns_follow_from_the_kinds_and_not_from_the_log(log: Path) -> None:
    narrow = parquet.read_table(write_events(log, "e.parquet", "--kind", "channelconnect"))
    assert narrow.schema.equals(arrow.schema(frozenset({"ChannelConnect"})))
    assert set(narrow.column("kind").to_pylist()) == {"ChannelConnect"}
    assert "trees" not in narrow.schema.names
    assert narrow.equals(nccl_inspect.events_table(LOG, "ChannelConnect").set_column(1, "source", narrow["source"]))
    none = parquet.read_table(write_events(log, "none.parquet", "--kind", "Collective"))
    assert none.num_rows == 0
    assert "sendbuff" in none.schema.names


@pytest.mark.slow
def test_standard_output_takes_text_and_streams(log: Path) -> None:
    done = subprocess.run([*RUN, "events", log], capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 6
    done = subprocess.run([*RUN, "events", "--format", "arrow"], input=LOG, capture_output=True, check=True)
    assert pa.ipc.open_stream(done.stdout).read_all().num_rows == 6
    # A reader that has enough ends it in silence.
    log.write_bytes(LOG * 5000)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{' '.join(map(repr, RUN))} events {log} | head -1"], capture_output=True
    )
    assert (done.returncode, done.stderr) == (141, b""), "as SIGPIPE ends other programs"


def test_without_nccl_there_is_no_file_and_an_older_one_stays(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("hello\n")
    for suffix in ("parquet", "csv"):
        target = tmp_path / f"e.{suffix}"
        target.write_text("older")
        with pytest.raises(NoInputError, match="no NCCL line among 1 line;"):
            run("events", tmp_path / "job.log", "-o", target)
        assert target.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.parquet", "job.log"]


def test_batches_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 100)
    log = tmp_path / "job.log"
    log.write_bytes(b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" * 201)
    for name in writers.FORMATS:
        assert write_events(log, f"e.{name}", "--format", name).stat().st_size > 0
    assert parquet.ParquetFile(tmp_path / "e.parquet").num_row_groups == 3
    assert parquet.read_table(tmp_path / "e.parquet").column("line").to_pylist() == [*range(1, 202)]


def test_the_lists_of_the_document_are_tables() -> None:
    job = nccl_inspect.read(LOG)
    document: dict[str, Any] = job.to_dict()
    for name in ("paths", "findings", "communicators", "environment", "hosts", "sources", "not_judged"):
        rows = document[name] if name in document else document["job"][name]
        frame = job.to_pandas(name)
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) == len(rows)
        assert all(set(row) == set(frame.columns) for row in rows)
        assert len(frame.columns) > 1
    assert job.paths.to_pandas().equals(job.to_pandas("paths"))
    with pytest.raises(ValueError, match="there are paths"):
        job.to_pandas("rings")


def test_json_lines_need_no_pyarrow(log: Path) -> None:
    start = "import sys; sys.modules['pyarrow'] = None; from nccl_inspect.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", start, "events", log], capture_output=True, text=True, check=True)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2, 3, 4, 5, 6]
