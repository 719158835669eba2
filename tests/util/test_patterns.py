"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from nccl_inspect.util.patterns import later


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda pattern: pickle.loads(pickle.dumps(pattern))],
    ids=["copy", "deep", "pickle"],
)
def test_a_copy_is_the_pattern(again: Callable[[Any], Any], used: bool) -> None:
    pattern = later(r"a(\d+)", re.IGNORECASE)
    if used:
        assert pattern.match("A1")
    assert again(pattern) == re.compile(r"a(\d+)", re.IGNORECASE)


def test_it_has_what_a_pattern_has() -> None:
    compiled, pattern = re.compile(rb"(?P<x>a)b", re.DOTALL), later(rb"(?P<x>a)b", re.DOTALL)
    for member in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(pattern, member) == getattr(compiled, member)
    assert pattern.sub(b"c", b"abab") == b"cc"
    with pytest.raises(AttributeError):
        pattern.no_such_member  # type: ignore[attr-defined]  # noqa: B018
