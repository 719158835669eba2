"""Short sources that are read together: the same as one after the other."""

import gzip
import io
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from math import inf
from typing import Any

import fuzz_columns
import pytest
import sample_data

from nccl_inspect.ingest.exports import record_lines
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.streams import pieces
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reader import Group, Piece, Reader
from nccl_inspect.pipeline.short_sources import grouped

pytest.importorskip("numpy")


def _opened(data: bytes) -> Iterator[bytes]:
    return pieces(io.BytesIO(data))


def _pieces(contents: Sequence[bytes]) -> Iterator[Piece]:
    files = [File(f"{number}.log", partial(_opened, data)) for number, data in enumerate(contents)]
    for source in blocks.find(files):
        yield source
        yield from record_lines.pieces_of(source)


def _together(contents: Sequence[bytes]) -> Fold:
    reader = Reader(large=0)
    for piece in grouped(_pieces(contents)):
        reader.add(piece)
    return reader.fold


def _separately(contents: Sequence[bytes]) -> Fold:
    reader = Reader(large=inf)
    for piece in _pieces(contents):
        reader.add(piece)
    return reader.fold


def _sources(fold: Fold) -> list[Any]:
    return [
        [getattr(source, own.name) for own in fields(source) if own.name != "counts"]
        + [getattr(source.counts, own.name) for own in fields(source.counts)]
        for source in fold.sources
    ]


def _by_process(lines: Sequence[bytes]) -> list[bytes]:
    files: dict[bytes, list[bytes]] = {}
    for line in lines:
        printer = re.match(rb"[\w.-]+:\d+:", line)
        files.setdefault(printer[0] if printer else b"", []).append(line)
    return [b"\n".join(some) + b"\n" for some in files.values()]


def _is_the_same(contents: Sequence[bytes]) -> None:
    together, separately = _together(contents), _separately(contents)
    assert _sources(together) == _sources(separately)
    assert fuzz_columns.state(together)[:2] == fuzz_columns.state(separately)[:2]
    assert (together.productions, together.known) == (separately.productions, separately.known)
    assert fuzz_columns.document(together) == fuzz_columns.document(separately)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_what_happens_to_files_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    contents = _by_process([line for block in fuzz_columns.log(chance) for line in block])
    contents += _by_process([line for block in fuzz_columns.log(chance) for line in block])[:20]
    contents = contents[:60]
    changes = (
        lambda data: b"",
        lambda data: data[: chance.randrange(len(data) + 1)],
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.decode("utf-8", "replace").encode("utf-16"),
        gzip.compress,
        lambda data: gzip.compress(data)[:-20],
        lambda _: chance.choice(contents),
        lambda data: b"\n".join(b"[pod/llama-7] " + line for line in data.split(b"\n")),
    )
    for place in chance.sample(range(len(contents)), min(len(contents), 4)):
        contents[place] = chance.choice(changes)(contents[place])
    _is_the_same(contents)


def test_each_finding_names_its_file() -> None:
    contents = _by_process(b"\n".join(sample_data.contents("efa-provider-missing-socket-fallback")).split(b"\n"))
    _is_the_same(contents)


def test_sources_are_grouped_until_one_is_long() -> None:
    line = b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\n"
    found = list(grouped(_pieces([line, line, line * (blocks.BLOCK // len(line) * 3), line, b""])))
    first, *long, last = found
    assert isinstance(first, Group)
    assert isinstance(last, Group)
    assert [source.name for source, _ in first.sources] == ["0.log", "1.log"]
    assert [piece.name for piece in long if isinstance(piece, blocks.Source)] == ["2.log"]
    assert [source.name for source, _ in last.sources] == ["3.log", "4.log"]


def test_an_interrupted_reading_gives_what_was_read() -> None:
    def interrupted() -> Iterator[Piece]:
        yield from _pieces([b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\n"])
        raise KeyboardInterrupt

    read = grouped(interrupted())
    group = next(read)
    assert isinstance(group, Group)
    assert len(group.sources) == 1
    with pytest.raises(KeyboardInterrupt):
        next(read)
