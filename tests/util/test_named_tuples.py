"""Named tuples of the package: the same as those of ``typing``, for what they are used for."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing

import pytest

from nccl_inspect.util.named_tuples import NamedTuple


class Own(NamedTuple):
    """With a default and a method."""

    name: str
    number: int = 3
    lines: tuple[int, ...] = ()

    def doubled(self) -> Own:
        return self._replace(number=self.number * 2)


class Theirs(typing.NamedTuple):
    """The same as ``typing`` makes it."""

    name: str
    number: int = 3
    lines: tuple[int, ...] = ()


def test_they_are_tuples_with_names() -> None:
    kinds: tuple[typing.Any, typing.Any] = (Own, Theirs)
    for own, theirs in (tuple(kind("a") for kind in kinds), tuple(kind("b", lines=(1,)) for kind in kinds)):
        assert own == theirs and hash(own) == hash(theirs)
        assert (own.name, own.number, own.lines) == (theirs.name, theirs.number, theirs.lines)
        assert repr(own).removeprefix("Own") == repr(theirs).removeprefix("Theirs")
        assert own._asdict() == theirs._asdict()
        assert own.doubled() == (own.name, 6, own.lines)
    assert (Own._fields, Own._field_defaults) == (Theirs._fields, Theirs._field_defaults)
    assert Own._make(["a", 1, ()]) == Own("a", 1)
    assert issubclass(Own, tuple) and not hasattr(Own("a"), "__dict__") and type(Own) is type


def test_they_match_patterns() -> None:
    match Own("a", 4):
        case Own(name, number):
            assert (name, number) == ("a", 4)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_they_can_be_copied_and_pickled(copied: typing.Callable[[Own], Own]) -> None:
    own = copied(Own("a", lines=(1, 2)))
    assert own == Own("a", lines=(1, 2)) and type(own) is Own


@pytest.mark.parametrize("before", [0, 1], ids=["first", "later"])
def test_wrong_arguments_are_refused(before: int) -> None:
    class Fresh(NamedTuple):
        name: str
        number: int = 0

    for _ in range(before):
        Fresh("a")
    for given, values in (((), {}), (("a", 1, 2), {}), (("a",), {"other": 1}), (("a",), {"name": "b"})):
        with pytest.raises(TypeError):
            Fresh(*given, **values)
    with pytest.raises(TypeError):
        Fresh._make(["a"])
    with pytest.raises(ValueError, match="other"):
        Fresh("a")._replace(**typing.cast(typing.Any, {"other": 1}))
    with pytest.raises(AttributeError):
        Fresh("a").name = "b"  # type: ignore[misc]


def test_their_signature_is_shown() -> None:
    class Fresh(NamedTuple):
        name: str
        number: int = 0

    for _ in range(2):
        assert str(inspect.signature(Fresh)) == "(name: 'str', number: 'int' = 0)"
        Fresh("a")
    assert typing.get_type_hints(Fresh) == {"name": str, "number": int}


def test_a_subclass_keeps_its_constructor() -> None:
    class Fresh(NamedTuple):
        name: str
        number: int = 0

    class Doubled(Fresh):
        __slots__ = ()

        def __new__(cls, name: str) -> Doubled:
            return super().__new__(cls, name * 2)

    assert [Doubled("a"), Doubled("b"), Fresh("c")] == [("aa", 0), ("bb", 0), ("c", 0)]
    assert type(Doubled("a")) is Doubled and type(Fresh("a")) is Fresh


_Kind = typing.TypeVar("_Kind")


def test_they_may_be_generic() -> None:
    class Pair(NamedTuple, typing.Generic[_Kind]):
        first: _Kind
        second: _Kind

    assert Pair[int](1, 2) == (1, 2)
    assert typing.get_origin(Pair[int]) is Pair
