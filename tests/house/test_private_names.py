"""Tests reach into nothing: what they change of the package has a public name, or is an argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

FILES = sorted((ROOT / "tests").rglob("*.py"))
_PATCHES = {"setattr", "delattr", "object", "patch"}


def patched(text: str) -> Iterator[str]:
    """The names that a test module patches, with those of modules and classes in front where they stand there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _PATCHES:
            yield from (
                one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_private_name_is_patched(file: Path) -> None:
    names = [name for name in patched(file.read_text(encoding="utf-8")) if name.rpartition(".")[2].startswith("_")]
    assert not names, "make it an argument with a default, or a public constant"
