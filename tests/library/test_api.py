"""What programs import changes only on purpose; what they hand over works, or raises one error that says what to do."""

from __future__ import annotations

import inspect
import io
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job, Paths

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def show_paths(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        members = [member for member in vars(thing) if not member.startswith("_")]
        lines = [
            line for member in members for line in show_paths(f"{name}.{member}", inspect.getattr_static(thing, member))
        ]
        return [f"class {name}", *lines]
    if inspect.isfunction(thing):
        return [f"{name}{inspect.signature(thing)}"]
    return [name]


def test_the_interface_is_as_it_was() -> None:
    """``tests/data/api.txt`` is the interface, to be edited by hand."""
    found = [line for name in sorted(nccl_inspect.__all__) for line in show_paths(name, getattr(nccl_inspect, name))]
    found += [line for kind in (Job, Paths) for line in show_paths(kind.__name__, kind)]
    wanted = (TESTS / "data" / "api.txt").read_text(encoding="utf-8").splitlines()
    assert found == wanted, "add to CHANGELOG.md what programs have to change, then edit tests/data/api.txt"
    assert files("nccl_inspect").joinpath("py.typed").is_file(), "type checkers look for it"


def test_one_name_is_a_name_and_not_its_characters() -> None:
    assert nccl_inspect.read(LINE, select="log-flood").rules == ["log-flood"]
    assert "log-flood" not in nccl_inspect.read(LINE, ignore="log-flood").rules
    for option in ("select", "ignore"):
        with pytest.raises(NcclInspectError, match="no rule 'nosuch'"):
            nccl_inspect.read(LINE, **{option: "nosuch"})


class ReadsNumbers:
    def read(self, size: int) -> object:
        return size


def as_text(path: Path) -> Any:
    path.write_bytes(b"caf\xe9\n" + LINE)
    return path.open(encoding="utf-8")


def as_temporary(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the test
    file.write(LINE.decode())
    file.seek(0)
    return file


def closed_file(path: Path) -> Any:
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
    "closed file": (closed_file, "job.log: the file is closed; open it again"),
    "odd file": (lambda path: ReadsNumbers(), "<stream>: reading it gives int; open it as a binary file"),
}


def test_what_can_be_read(tmp_path: Path) -> None:
    for name, make in WORKS.items():
        job = nccl_inspect.read(make(tmp_path / "job.log"))
        assert job.paths.between(0, 1).detail == "P2P/CUMEM", name


def test_what_cannot_be_read_raises_one_clear_error(tmp_path: Path) -> None:
    for name, (make, says) in FAILS.items():
        for reader in (nccl_inspect.read, lambda inputs: list(nccl_inspect.events(inputs))):
            if reader is not nccl_inspect.read and name in ("empty bytes", "empty text"):
                continue  # no event is a result
            with pytest.raises(NcclInspectError, match=says) as caught:
                reader(make(tmp_path / "job.log"))
            assert "\n" not in str(caught.value)
