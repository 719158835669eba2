"""A store: tables in Parquet below a folder or the prefix of a bucket, which any number of processes may add to.

``TABLE/day=YYYY-MM-DD/NAME.parquet`` holds the rows of some jobs that began on a day; equal names belong together. Each
file comes into being whole, and that of the table ``job`` comes last: a job counts once it is in there. What a killed
process leaves are files that nobody asks for. Many small files of a day are merged into one, which is written before
they are deleted: should both be there, the merged one counts.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.fleet import library
from nccl_inspect.extras.fleet.tables import SCHEMA, TABLES, Tables, schema
from nccl_inspect.ingest.sources.remote import shown

_Result = TypeVar("_Result")
_INDEX = "fleet.json"
"""States the schema of a store."""
_FILE = re.compile(r"day=(\d{4}-\d\d-\d\d)/([\w-]+)\.parquet$")
MOST_FILES = 32
"""Files of a day that are merged into one."""
_NEW, _MERGED = "new", "all"
"""What names begin with. Of a job that is in several files that one counts whose name comes first: a merged one."""
_ABANDONED = timedelta(hours=1)
"""The age at which files of a job that is not in the table of jobs are deleted: nobody is still writing it."""
_ROWS = 100_000
"""Of a group in a file: what is read at once."""
_MEMORY = "450MB"
_TRIES = 5


class Batch(NamedTuple):
    """Files of one name: some jobs of a day."""

    day: str
    name: str


class Store:
    """Reads and appends to a store.

    Raises:
        NcclInspectError: it is none, of another schema, or cannot be opened.
    """

    def __init__(self, url: str, make: bool = False) -> None:
        core = library("fsspec.core")
        self._name = shown(url)
        try:
            self._files, root = core.url_to_fs(url)
            self._root = root.rstrip("/")
            self._is_local = "file" in (self._files.protocol, *self._files.protocol)
            index = f"{self._root}/{_INDEX}"
            if make and not self._files.exists(index):
                found = self._files.ls(self._root, detail=False) if self._files.exists(self._root) else []
                others = [path for path in found if not Path(path).name.startswith(".")]  # another process begins it
                if others and not self._files.exists(index):
                    raise NcclInspectError(f"{self._name}: neither a store nor empty", "name a new folder with --store")
                self._put(index, json.dumps({"schema": SCHEMA, "tables": list(TABLES)}).encode())
            text = self._files.cat_file(index)
        except FileNotFoundError:
            raise NcclInspectError(f"{self._name}: no store", "make one with 'nccl-inspect fleet add'") from None
        except (OSError, ValueError, ImportError) as error:
            raise NcclInspectError(f"{self._name}: {error}", "check the folder or URL given with --store") from None
        try:
            found = json.loads(text)["schema"]
        except (ValueError, KeyError, TypeError):
            raise NcclInspectError(f"{self._name}: {_INDEX} names no schema", "name a store with --store") from None
        if found != SCHEMA:
            raise NcclInspectError(f"{self._name}: has the schema {found}, not {SCHEMA}", "add the logs to a new store")

    # --- what is there ---

    def batches(self) -> list[Batch]:
        """Return the batches that count, by day and name."""
        self._files.invalidate_cache()
        return sorted(Batch(*match.groups()) for path in self._find("job") if (match := _FILE.search(path)))

    def idents(self) -> set[str]:
        """Return the jobs that are there."""
        return self.retried(
            lambda: {job for batch in self.batches() for job in self._read("job", batch)["job"].to_pylist()}
        )

    def retried(self, read: Callable[[], _Result]) -> _Result:
        """Return what a function reads, which is called again where files were merged meanwhile."""
        for _ in range(_TRIES):
            try:
                return read()
            except FileNotFoundError:
                continue
            except Exception as error:
                if (type(error).__module__, type(error).__name__) != ("_duckdb", "IOException"):
                    raise
        return read()

    def connection(self, since: timedelta | None = None) -> Any:
        """Return a DuckDB connection with a view for each table."""
        duckdb = library("duckdb")
        batches = self.batches()
        if since is not None and batches:
            first = (date.fromisoformat(batches[-1].day) - since).isoformat()
            batches = [batch for batch in batches if batch.day > first]
        connection = duckdb.connect()
        connection.execute(f"SET memory_limit = '{_MEMORY}'; SET preserve_insertion_order = false")
        if not self._is_local:
            connection.register_filesystem(self._files)
        paths = {table: set(self._find(table)) for table in TABLES} if batches else {}
        rest = ""
        for table in TABLES:
            own = (self._path(table, batch) for batch in batches)
            urls = [self._url(path) for path in own if path in paths[table]]
            if not urls:
                connection.register(table, schema(table).append(pa.field("day", pa.date32())).empty_table())
                continue
            options = "hive_partitioning = true, hive_types = {'day': DATE}, filename = true"
            rows = f"(SELECT *, parse_filename(filename, true) AS file FROM read_parquet({urls!r}, {options}))"
            if table == "job":
                connection.execute(
                    f"CREATE TEMP TABLE doubles AS SELECT job, file FROM {rows} "
                    "QUALIFY row_number() OVER (PARTITION BY job ORDER BY file) > 1"
                )
                if connection.execute("SELECT count(*) FROM doubles").fetchone()[0]:
                    rest = "WHERE (job, file) NOT IN (SELECT job, file FROM doubles)"
            connection.execute(f"CREATE VIEW {table} AS SELECT * EXCLUDE (filename, file) FROM {rows} {rest}")
        return connection

    # --- what is added ---

    def append(self, day: str, jobs: Sequence[Tables]) -> None:
        """Add jobs of one day; those that are killed meanwhile are not there at all."""
        tables = {table: pa.concat_tables([job[table] for job in jobs]) for table in TABLES}
        self._write(day, _NEW, tables)

    def _write(self, day: str, kind: str, tables: Tables) -> Batch:
        idents = sorted(tables["job"]["job"].to_pylist())
        batch = Batch(day, f"{kind}-{hashlib.sha256(' '.join(idents).encode()).hexdigest()[:20]}")
        for table in reversed(TABLES):  # the jobs come last
            rows = tables[table]
            if not rows.num_rows:
                continue
            if "host" in rows.column_names:
                rows = rows.sort_by("host")
            data = io.BytesIO()
            pq.write_table(rows, data, compression="zstd", row_group_size=_ROWS)
            self._put(self._path(table, batch), data.getbuffer())
        return batch

    def tidy(self, days: Iterable[str], most: int = MOST_FILES) -> None:
        """Merge the files of some days, where there are many, and delete what killed processes left."""
        by_day = defaultdict(list)
        for batch in self.batches():
            by_day[batch.day].append(batch)
        for day in days:
            if len(by_day[day]) >= most:
                self.retried(lambda day=day, batches=by_day[day]: self._merge(day, batches))  # type: ignore[misc]

    def _merge(self, day: str, batches: Sequence[Batch]) -> None:
        there = [batch for batch in batches if self._files.exists(self._path("job", batch))]
        kept: dict[Batch, Any] = {}
        seen = pa.array([], pa.string())
        for batch in there:
            jobs = self._read("job", batch)["job"].combine_chunks()
            kept[batch] = jobs.filter(pc.invert(pc.is_in(jobs, seen)))
            seen = pa.concat_arrays([seen, kept[batch]])
        tables = {}
        for table in TABLES:
            rows = [schema(table).empty_table()]
            for batch in there:
                if table == "job" or self._files.exists(self._path(table, batch)):
                    own = self._read(table, batch)
                    rows.append(own.filter(pc.is_in(own["job"], kept[batch])))
            tables[table] = pa.concat_tables(rows)
        if not all(self._files.exists(self._path("job", batch)) for batch in there):
            raise FileNotFoundError(day)  # another process merged them, and what was read may be a part
        merged = self._write(day, _MERGED, tables)
        gone = {batch.name for batch in there if batch != merged}
        young = datetime.now(UTC) - _ABANDONED
        for table in TABLES:  # the jobs go first
            for path in self._find(f"{table}/day={day}"):
                name = Path(path).stem
                known = name in gone or (table != "job" and Batch(day, name) not in batches)
                if name != merged.name and known and (name in gone or self._files.modified(path) < young):
                    self._files.rm_file(path)

    def _read(self, table: str, batch: Batch) -> Any:
        data = pa.BufferReader(self._files.cat_file(self._path(table, batch)))
        return pq.read_table(data, schema=schema(table))

    def _find(self, below: str) -> list[str]:
        return [path for path in self._files.find(f"{self._root}/{below}") if path.endswith(".parquet")]

    def _path(self, table: str, batch: Batch) -> str:
        return f"{self._root}/{table}/day={batch.day}/{batch.name}.parquet"

    def _url(self, path: str) -> str:
        return path if self._is_local else str(self._files.unstrip_protocol(path))

    def _put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file so that it is there as a whole or not at all.

        Raises:
            NcclInspectError: it cannot be written.
        """
        try:
            if not self._is_local:
                self._files.pipe_file(path, bytes(data))
                return
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name}.{os.getpid()}.part")
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as error:
            raise NcclInspectError(
                f"{self._name}: {error.strerror or error}", "check the folder given with --store"
            ) from None
