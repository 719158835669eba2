"""Classes declared with ``record``: all objects are alike, made before or after the class has its own constructor.

And patterns that are compiled when they are first used.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from typing import Any

import pytest

from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Deferring, Named, Record

MANY = 200
"""Objects after which a class has a constructor of its own."""


class Sample(Record):
    """With all that a field can have."""

    name: str
    count: int = 3
    lines: list[int] = field(default_factory=list)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        self.words = f"{self.count} of {self.name}"


class Longer(Sample):
    """With a field more than its base."""

    more: str = ""


@pytest.mark.parametrize("kind", [Sample, Longer])
def test_all_objects_are_made_alike(kind: type[Sample]) -> None:
    samples = [kind("a", lines=[number]) for number in range(MANY)]
    for number, sample in enumerate(samples):
        assert (sample.name, sample.count, sample.lines, sample.words) == ("a", 3, [number], "3 of a")
    assert samples[0] == replace(samples[-1], lines=[0])
    assert samples[-1] == replace(samples[0], lines=[MANY - 1])
    assert kind("a").lines is not kind("a").lines


def test_some_fields_change_and_no_other_name_is_taken() -> None:
    sample = Longer("a", lines=[1], more="c")
    assert sample.with_fields(count=4) == Longer("a", 4, [1], more="c").with_fields(words=sample.words)
    with pytest.raises(TypeError, match="Longer has no field 'size'"):
        sample.with_fields(size=1)


def test_they_are_dataclasses_with_slots() -> None:
    longer = Longer("b", 4, more="c")
    assert [own.name for own in fields(longer)] == ["name", "count", "lines", "words", "more"]
    assert asdict(longer) == {"name": "b", "count": 4, "lines": [], "words": "4 of b", "more": "c"}
    assert repr(longer) == "Longer(name='b', count=4, lines=[], words='4 of b', more='c')"
    assert not hasattr(longer, "__dict__")


def test_wrong_arguments_are_refused() -> None:
    class Own(Record):
        name: str
        count: int = 0

    for before in (0, MANY):
        for _ in range(before):
            Own("a")
        for given, values in (((), {}), (("a", 1, 2), {}), (("a",), {"other": 1}), (("a",), {"name": "b"})):
            with pytest.raises(TypeError):
                Own(*given, **values)


class Plain(Record):
    """One that pickle makes again from the values of its fields."""

    name: str
    count: int = 0


def test_they_can_be_pickled() -> None:
    plain = [Plain("a", number) for number in range(MANY)]
    assert pickle.loads(pickle.dumps(plain)) == plain


class Late(Deferring):
    """One with a field that is made when it is asked for."""

    name: str
    words: str = ""


def test_fields_made_later_are_made_once_or_again_after_an_interrupt_and_what_is_none_is_named() -> None:
    made: list[str] = []

    def words() -> str:
        made.append("asked")
        if len(made) == 1:
            raise KeyboardInterrupt
        return "made"

    late = Late("a").defer(words=words)
    with pytest.raises(KeyboardInterrupt):
        _ = late.words
    assert [late.words, late.words, len(made)] == ["made", "made", 2]
    assert late == Late("a", "made")
    for late in (Late("a"), Late("a").defer(words=lambda: "made")):
        with pytest.raises(AttributeError, match="'Late' object has no attribute 'wordz'"):
            _ = late.wordz  # type: ignore[attr-defined]


class Called(Named):
    """One whose fields are given by name."""

    count: int = 0
    name: str


def test_fields_given_by_name_have_no_places() -> None:
    assert str(inspect.signature(Called)) == "(*, count: 'int' = 0, name: 'str') -> None"
    assert Called.__match_args__ == ()
    assert replace(Called(name="a"), count=1) == Called(name="a", count=1)


def test_a_pattern_compiled_later_is_that_pattern() -> None:
    copies: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
    for used in (False, True):
        for again in copies:
            late = compile_later(r"a(\d+)", re.IGNORECASE)
            assert not used or late.match("A1")
            assert again(late) == re.compile(r"a(\d+)", re.IGNORECASE)
    compiled, pattern = re.compile(rb"(?P<x>a)b", re.DOTALL), compile_later(rb"(?P<x>a)b", re.DOTALL)
    for member in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(pattern, member) == getattr(compiled, member)
    assert pattern.sub(b"c", b"abab") == b"cc"
    with pytest.raises(AttributeError):
        pattern.no_such_member  # type: ignore[attr-defined]  # noqa: B018
