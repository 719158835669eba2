"""A store: tables in Parquet below a folder, which any number of processes may add to.

``TABLE/day=YYYY-MM-DD/NAME.parquet`` holds the rows of some jobs; equal names belong together. The day is that on which
the newest job in the same log began, or ``undated``. Each file comes into being whole, and that of the table ``job``
comes last: a job counts once it is in there. What a killed process leaves are files that nobody asks for. Many small
files of a day are merged into one, which is written before they are deleted: should both be there, the merged one
counts.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.fleet import library
from nccl_inspect.extras.fleet.tables import SCHEMA, TABLES, Tables, schema
from nccl_inspect.util import atomic_files

_Result = TypeVar("_Result")
_INDEX = "fleet.json"  # states the schema of a store
UNDATED = "undated"
_FILE = re.compile(rf"day=(\d{{4}}-\d\d-\d\d|{UNDATED})/([\w-]+)\.parquet(?![\w.])")
MOST_FILES = 32  # files of a day that are merged into one
_NEW, _MERGED = "new", "all"
"""What names begin with. Of a job that is in several files that one counts whose name comes first: a merged one."""
_ABANDONED = 3600.0
"""Seconds after which files of a job that is not in the table of jobs are deleted: nobody is still writing it."""
_ROWS = 100_000  # rows of a group in a file, which is read at once
_MEMORY = "450MB"
_TRIES = 5


class Batch(NamedTuple):
    """Files of one name: some jobs of a day."""

    day: str
    name: str


class Store:
    """Reads and appends to a store, unless it is none, or of another schema."""

    def __init__(self, folder: str, make: bool = False) -> None:
        self._name, self._root = folder, Path(folder).resolve()
        index = self._root / _INDEX
        try:
            if make and not index.exists():
                found = self._root.iterdir() if self._root.exists() else ()
                others = [path for path in found if not path.name.startswith(".")]  # another process begins it
                if others and not index.exists():
                    raise NcclInspectError(f"{self._name}: neither a store nor empty", "name a new folder with --store")
                self._put(index, json.dumps({"schema": SCHEMA, "tables": list(TABLES)}).encode())
            text = index.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NcclInspectError(f"{self._name}: no store", "make one with 'nccl-inspect fleet add'") from None
        except OSError as error:
            raise NcclInspectError(f"{self._name}: {error.strerror}", "check the folder given with --store") from None
        try:
            found = json.loads(text)["schema"]
        except (ValueError, KeyError, TypeError):
            raise NcclInspectError(f"{self._name}: {_INDEX} names no schema", "name a store with --store") from None
        if found != SCHEMA:
            raise NcclInspectError(f"{self._name}: has the schema {found}, not {SCHEMA}", "add the logs to a new store")

    # What is there

    def batches(self) -> list[Batch]:
        """Return the batches that count, by day and name."""
        paths = map(str, self._root.glob("job/*/*"))
        return sorted(Batch(*match.groups()) for path in paths if (match := _FILE.search(path)))

    def idents(self) -> set[str]:
        """Return the jobs that are there."""
        return self.retry(
            lambda: {job for (job,) in self.connect(tables=TABLES[:1]).execute("SELECT job FROM job").fetchall()}
        )

    def retry(self, read: Callable[[], _Result]) -> _Result:
        """Return what a function reads, which is called again where files were merged meanwhile."""
        errors, tries = library("duckdb").Error, 0
        while True:
            try:
                return read()
            except errors as error:
                match, tries = _FILE.search(str(error)), tries + 1
                if match and tries < _TRIES and Batch(*match.groups()) not in self.batches():
                    continue
                hint = f"delete {match[2]}.parquet from every table, and add its logs again" if match else ""
                raise NcclInspectError(f"{self._name}: {str(error).splitlines()[0]}", hint) from None

    def connect(self, since: timedelta | None = None, day: str = "", tables: Sequence[str] = TABLES) -> Any:
        """Return a DuckDB connection with a view for each table.

        Only the days before the newest job count, if some are given, but in the schema ``whole``; or one day alone.
        """
        batches = [batch for batch in self.batches() if day in ("", batch.day)]
        first = ""
        if since is not None:
            newest = max((batch.day for batch in batches if batch.day != UNDATED), default="9999-12-31")
            first = (date.fromisoformat(newest) - since + timedelta(days=1)).isoformat()
        connection = library("duckdb").connect()
        run = connection.execute
        run(f"SET memory_limit = '{_MEMORY}'; SET preserve_insertion_order = false; CREATE SCHEMA whole")
        run("SET temp_directory = ?", [str(Path(tempfile.gettempdir(), "nccl-inspect-duckdb"))])
        conditions = ["true"]
        for table in tables:
            connection.register(f"no_{table}", schema(table).append(pa.field("filename", pa.string())).empty_table())
            for scope, least in (("whole", ""), ("main", first)):
                paths = [str(self._path(table, batch)) for batch in batches if batch.day >= least]
                options = "filename = true, hive_partitioning = false"
                rows = f"read_parquet({paths!r}, {options})" if paths else f"no_{table}"
                if scope == "whole" and table == TABLES[0]:
                    run(f"CREATE TEMP TABLE doubles AS SELECT job, parse_filename(filename) AS file FROM {rows} "
                        "QUALIFY row_number() OVER (PARTITION BY job ORDER BY file) > 1")  # fmt: skip
                    if run("SELECT count(*) FROM doubles").fetchone() != (0,):
                        conditions.append("(job, parse_filename(filename)) NOT IN (FROM doubles)")
                of_days = [f"start >= '{least}'"] if least else []
                run(f"CREATE VIEW {scope}.{table} AS SELECT * EXCLUDE filename, start::DATE AS day FROM {rows} "
                    f"WHERE {' AND '.join(conditions + of_days)}")  # fmt: skip
        return connection

    # What is added

    def append(self, day: str, jobs: Sequence[Tables]) -> None:
        """Add jobs of one day; those that are killed meanwhile are not there at all."""
        self._write(day, _NEW, {table: pa.concat_tables([job[table] for job in jobs]) for table in TABLES})

    def _write(self, day: str, kind: str, tables: Tables) -> Batch:
        idents = sorted(tables["job"]["job"].to_pylist())
        batch = Batch(day, f"{kind}-{hashlib.sha256(' '.join(idents).encode()).hexdigest()[:20]}")
        for table in reversed(TABLES):  # the jobs come last
            rows = tables[table].sort_by("host") if "host" in tables[table].column_names else tables[table]
            data = io.BytesIO()
            pq.write_table(rows, data, compression="zstd", row_group_size=_ROWS)
            self._put(self._path(table, batch), data.getbuffer())
        return batch

    def tidy(self, days: Iterable[str]) -> None:
        """Merge the files of some days, where there are many, and delete what killed processes left."""
        files = Counter(batch.day for batch in self.batches())
        for day in days:
            if files[day] >= MOST_FILES:
                self.retry(partial(self._merge, day))

    def _merge(self, day: str) -> None:
        gone = {batch.name for batch in self.batches() if batch.day == day}
        connection = self.connect(day=day)
        rows = {table: connection.sql(f"SELECT * EXCLUDE day FROM {table}").to_arrow_table() for table in TABLES}
        merged = self._write(day, _MERGED, {table: rows[table].cast(schema(table)) for table in TABLES})
        kept = {batch.name for batch in self.batches() if batch.day == day} - gone | {merged.name}
        young = time.time() - _ABANDONED
        for table in TABLES:  # the jobs go first
            for path in self._root.glob(f"{table}/day={day}/*"):
                with suppress(FileNotFoundError):  # another process deletes, too
                    if path.stem not in kept and (path.stem in gone or path.stat().st_mtime < young):
                        path.unlink()

    def _path(self, table: str, batch: Batch) -> Path:
        return self._root / table / f"day={batch.day}" / f"{batch.name}.parquet"

    def _put(self, target: Path, data: bytes | memoryview) -> None:
        """Write a file so that it is there as a whole or not at all."""
        with suppress(OSError):  # writing the file says why
            target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.open_replacement(str(target), "--store") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
