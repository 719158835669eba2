"""Logs behind URLs: what fsspec reaches is read like files, and what it cannot reach is told in one line."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_data
from click.testing import CliRunner

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import blocks, partition, remote
from nccl_inspect.pipeline import reading

fsspec = pytest.importorskip("fsspec")

(DATA,) = sample_data.contents("socket-2node-tp4-dp2")
LINES = DATA.splitlines(keepends=True)


@pytest.fixture
def store() -> Any:
    """An empty store in memory, reached as ``memory://``."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return memory


def names(*inputs: str) -> list[str]:
    return [source.name for source in blocks.find(list(inputs))]


def document(inputs: Any, **options: Any) -> str:
    return json.dumps(reading.Judge(reading.Options())(reading.fold(inputs, **options)).to_dict(), indent=1)


def test_an_object_is_read_like_a_file(store: Any, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(DATA)
    store.pipe("/bucket/job.log", DATA)
    url, path = "memory://bucket/job.log", str(tmp_path / "job.log")
    assert document(url).replace(url, path) == document(path)


def test_patterns_and_prefixes_give_objects_in_natural_order(store: Any) -> None:
    for name in ("rank10.log", "rank2.log", "sub/rank1.log", "model.bin", "notes.md", ".hidden.log", "data"):
        store.pipe(f"/job/{name}", DATA)
    ranks = ["memory:///job/rank2.log", "memory:///job/rank10.log"]
    assert names("memory://job/rank*.log") == ranks
    assert names("memory://job/*[02].log") == ranks
    assert names("memory://job/*/rank?.log") == ["memory:///job/sub/rank1.log"]
    assert names("memory://job") == names("memory://job/") == [*ranks, "memory:///job/sub/rank1.log"]
    assert names("memory://job/s*") == ["memory:///job/sub/rank1.log"]
    assert names("memory://job/data") == ["memory://job/data"]
    assert names("memory://job/r*.log", "memory:///job/rank2.log") == ranks


def test_an_object_whose_name_holds_marks_of_patterns(store: Any) -> None:
    store.pipe("/job/a[1].log", DATA)
    assert names("memory://job/a[1].log") == ["memory://job/a[1].log"]


LARGE = DATA + base64.encodebytes(random.Random(1).randbytes(remote.WHOLE + (1 << 20)))
"""More than is fetched at once, however it is packed."""


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("job.log", data)
    return file.getvalue()


def tarred(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("job.log")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "job.log.gz": gzip.compress,
    "job.zip": zipped,
    "job.tar.gz": tarred,
    "job.log": lambda data: data,
}


@pytest.mark.parametrize("data", [LARGE, DATA], ids=["in pieces", "at once"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_objects_are_unpacked(name: str, data: bytes, store: Any) -> None:
    store.pipe(f"/job/{name}", PACKED[name](data))
    assert (store.size(f"/job/{name}") > remote.WHOLE) is (data is LARGE)
    job = nccl_inspect.read(f"memory://job/{name}")
    assert [path.detail for path in job.paths] == [path.detail for path in nccl_inspect.read(DATA).paths]


def test_large_objects_are_cut_and_shared_out(store: Any) -> None:
    store.pipe("/job/job.log", LARGE)
    groups = partition.planned("memory://job/job.log", 5, 1)
    read = [p for group in groups for part in group for s in partition.read(part, lambda _: None) for p in s.open()]
    assert len(groups) == 5
    assert b"".join(read) == LARGE


def test_processes_read_urls_as_one_does(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"nccl.{number}.log").write_bytes(b"".join(LINES[number::5]))
    url = f"file://{tmp_path}/*.log"
    assert document(url, jobs=3) == document(url)


def test_a_chain_of_stores(tmp_path: Path) -> None:
    (tmp_path / "job.zip").write_bytes(zipped(DATA))
    url = f"zip://*.log::file://{tmp_path}/job.zip"
    assert names(url) == [f"zip://job.log::file://{tmp_path}/job.zip"]
    assert nccl_inspect.read(url).paths


class Faulty(fsspec.AbstractFileSystem):  # type: ignore[misc, name-defined]
    """A store that says more than one line when it cannot be reached."""

    protocol = "faulty"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if path.endswith("listed.log"):
            return {"name": path, "size": 5, "type": "file"}
        raise RuntimeError("\n  no route to the store\nsecond line\x1b[31m")

    def cat_file(self, path: str, *_: Any, **__: Any) -> bytes:
        raise PermissionError(13, "Access Denied")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://job/none.log", "memory://job/none.log: no such object; check the URL"),
        ("memory://job/*.log", "no object matches; check the pattern"),
        ("memory://empty", "no object below it has the name of a log; give a pattern, such as PREFIX/*"),
        ("smoke://job.log", "Protocol not known: smoke"),
        ("s3://bucket/job.log", "Install s3fs to access S3; pip install 'nccl-inspect[dask]' s3fs"),
        ("faulty://job.log", "no route to the store; check the URL, the network"),
        ("faulty://listed.log", "Access Denied"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(
    url: str, says: str, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    store.pipe("/empty/model.bin", b"\0")
    with pytest.raises(NcclInspectError) as caught:
        nccl_inspect.read(url)
    assert caught.value.exit_code == 3
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    done = CliRunner().invoke(cli, ["summarize", "s3://bucket/job.log"], standalone_mode=False)
    assert str(done.exception).endswith("which is not installed; pip install 'nccl-inspect[dask]'")


def test_one_that_cannot_be_read_stops_only_itself(store: Any) -> None:
    store.pipe("/job/job.log", DATA)
    job = nccl_inspect.read(["memory://job/none.log", "memory://job/job.log"])
    assert job.paths
    assert [bool(source.problem) for source in job.sources] == [True, False]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/job.log", "s3://bucket/job.log"),
        ("https://logs.example/job.log?X-Amz-Signature=0123456789#x", "https://logs.example/job.log"),
        ("https://user:hidden@logs.example/job.log", "https://user:***@logs.example/job.log"),
        ("simplecache::ftp://user:hidden@logs.example/job.log", "simplecache::ftp://user:***@logs.example/job.log"),
    ],
)
def test_secrets_in_urls_are_not_shown(url: str, shown: str) -> None:
    assert remote.shown(url) == str(remote.Remote(url)) == shown
