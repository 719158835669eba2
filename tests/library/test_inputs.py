"""What Python programs hand over: each works, or raises one error that says what to give."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nccl_inspect
from nccl_inspect.errors import NcclInspectError

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
ODD = b"caf\xe9\n" + LINE


class ReadsNumbers:
    """Looks like a file and gives what no file gives."""

    def read(self, size: int) -> object:
        return size


def as_text(path: Path) -> Any:
    path.write_bytes(ODD)
    return path.open(encoding="utf-8")


def as_temporary(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the test
    file.write(LINE.decode())
    file.seek(0)
    return file


def closed(path: Path) -> Any:
    path.write_bytes(LINE)
    file = path.open("rb")
    file.close()
    return file


WORKS: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda path: LINE,
    "bytearray": lambda path: bytearray(LINE),
    "memoryview": lambda path: memoryview(LINE),
    "text file with bytes that are not UTF-8": as_text,
    "temporary text file": as_temporary,
    "StringIO": lambda path: io.StringIO(LINE.decode()),
    "BytesIO": lambda path: io.BytesIO(LINE),
    "tuple": lambda path: (LINE, bytearray(LINE)),
}
FAILS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda path: None, "NoneType cannot be read as a log; give a path, bytes, an open file"),
    "number": (lambda path: 5, "int cannot be read"),
    "class": (lambda path: io.BytesIO, "type cannot be read"),
    "nothing in a list": (lambda path: [LINE, None], "NoneType cannot be read"),
    "empty list": (lambda path: [], "no input: the list is empty; give a path"),
    "empty bytes": (lambda path: b"", "<bytes>: empty"),
    "empty text": (lambda path: io.StringIO(), "<stream>: empty"),
    "text": (lambda path: LINE.decode() * 2, r"'vm:1:1 .*: not a path; to pass text itself, give text.encode"),
    "zero byte": (lambda path: "a\0b", "not a path"),
    "long name": (lambda path: "a" * 5000, "name too long"),
    "closed file": (closed, "job.log: the file is closed; open it again"),
    "odd file": (lambda path: ReadsNumbers(), "<stream>: reading it gives int; open it as a binary file"),
}


@pytest.mark.parametrize("name", WORKS)
def test_this_can_be_read(name: str, tmp_path: Path) -> None:
    job = nccl_inspect.read(WORKS[name](tmp_path / "job.log"))
    assert job.paths.between(0, 1).detail == "P2P/CUMEM"


@pytest.mark.parametrize("name", FAILS)
@pytest.mark.parametrize("reader", [nccl_inspect.read, lambda inputs: list(nccl_inspect.events(inputs))])
def test_this_raises_one_clear_error(name: str, reader: Callable[[Any], object], tmp_path: Path) -> None:
    make, says = FAILS[name]
    if name.startswith("empty ") and name != "empty list" and reader is not nccl_inspect.read:
        pytest.skip("no event is a result")
    with pytest.raises(NcclInspectError, match=says) as caught:
        reader(make(tmp_path / "job.log"))
    assert "\n" not in str(caught.value)
