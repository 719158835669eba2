"""What programs import changes only on purpose: ``tests/data/api.txt`` is the interface, to be edited by hand."""

from __future__ import annotations

import inspect
from importlib.resources import files

import pytest
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job, Paths

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


def shown(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        members = [member for member in vars(thing) if not member.startswith("_")]
        lines = [
            line for member in members for line in shown(f"{name}.{member}", inspect.getattr_static(thing, member))
        ]
        return [f"class {name}", *lines]
    if inspect.isfunction(thing):
        return [f"{name}{inspect.signature(thing)}"]
    return [name]


def test_the_interface_is_as_it_was() -> None:
    found = [line for name in sorted(nccl_inspect.__all__) for line in shown(name, getattr(nccl_inspect, name))]
    found += [line for kind in (Job, Paths) for line in shown(kind.__name__, kind)]
    wanted = (TESTS / "data" / "api.txt").read_text(encoding="utf-8").splitlines()
    assert found == wanted, "add to CHANGELOG.md what programs have to change, then edit tests/data/api.txt"


def test_one_name_is_a_name_and_not_its_characters() -> None:
    assert nccl_inspect.read(LINE, select="log-flood").rules == ["log-flood"]
    assert "log-flood" not in nccl_inspect.read(LINE, ignore="log-flood").rules
    for option in ("select", "ignore"):
        with pytest.raises(NcclInspectError, match="no rule 'nosuch'"):
            nccl_inspect.read(LINE, **{option: "nosuch"})


def test_type_checkers_find_the_types() -> None:
    assert files("nccl_inspect").joinpath("py.typed").is_file()
