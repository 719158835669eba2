"""The package's dataclasses: all that Python generates for each of them is written once, or made on first use.

For the classes here, generating it when their modules are loaded would take a fifth of the time of a short run. So a
class becomes a dataclass by what it inherits from: :class:`Record`, :class:`Slotted` if each object is equal to itself
only, or :class:`Frozen` if objects never change. A constructor is generated only for a class that has many objects, and
none for those that never change, whose one constructor takes eight times as long as a generated one. To declare a
``NamedTuple`` takes four times as long: they are for what is made often, or used as a tuple. What Python knows of a
dataclass is made when somebody asks for it (``fields``, ``replace``, ``asdict``, ``match``, ``inspect.signature``,
``help``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, field, make_dataclass, replace
from functools import cache
from inspect import get_annotations, signature
from typing import TYPE_CHECKING, Any, Self, cast, dataclass_transform


def column(head: str, **how: Any) -> Any:
    """Return a field that tables for people show: its metadata are the head of the column, and how it is fitted."""
    return field(metadata={"head": head, **how})


_FEW = 100  # objects of a class that take less time to make without a constructor of its own than to generate it


@dataclass_transform(field_specifiers=(field, column))
class _Kind(type):
    """The type of a dataclass: each field has a slot instead of a default in the body of the class."""

    _declared: dict[str, object]  # the names of all fields, each with its default, ``field()``, or ``MISSING``

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        """Return the class, whose constructor is generated for the objects after the first few, unless it is frozen."""
        inherited: dict[str, object] = bases[0]._declared if bases else {}  # type: ignore[attr-defined]
        own = {
            field: body.pop(field, MISSING)
            for field, annotation in body.get("__annotations__", {}).items()
            if "ClassVar[" not in str(annotation)  # a text, or what it stands for
        }
        slots = (*body.get("__slots__", ()), *(field for field in own if field not in inherited))
        made: Any = super().__new__(cls, name, bases, body | {"__slots__": slots, "_declared": inherited | own})
        left = _FEW

        def init(self: Any, *given: Any, **values: Any) -> None:
            """Do for the first few objects of a class what the generated constructor will do."""
            nonlocal left
            left -= 1
            if left < 0:
                made.__init__ = cast(Any, _make_dataclass(made)).__init__
                made.__init__(self, *given, **values)
                return
            _fill(self, given, values)
            if hasattr(made, "__post_init__"):
                self.__post_init__()

        if not issubclass(cls, _FrozenKind):
            made.__init__ = init
        return made


@dataclass_transform(frozen_default=True, field_specifiers=(field, column))
class _FrozenKind(_Kind):
    """The type of a dataclass that never changes."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, column))
class _NamedKind(_FrozenKind):  # type: ignore[misc]  # no dataclass itself
    """The type of a dataclass whose fields are given by name, as far as type checkers and ``signature`` know."""


class _OfDataclass:
    """An attribute of a dataclass that is made with all others when one of them is asked for."""

    def __set_name__(self, _kind: type, name: str) -> None:
        self._name = name

    def __get__(self, _record: object, kind: Any) -> Any:
        if kind.__module__ == __name__:
            raise AttributeError(self._name)  # the bases here are none themselves
        return getattr(_make_dataclass(kind), self._name)


class Slotted(metaclass=_Kind):
    """Base of dataclasses with slots, each of whose objects is equal to itself only."""

    __slots__ = ()
    __dataclass_fields__ = _OfDataclass()
    __dataclass_params__ = _OfDataclass()
    __signature__ = _OfDataclass()
    if not TYPE_CHECKING:  # a type checker goes by the fields
        __match_args__ = _OfDataclass()

    def with_fields(self, **changed: object) -> Self:
        """Return the same with other values of some fields, five times as fast as ``dataclasses.replace``."""
        kind: Any = type(self)
        made: Self = kind.__new__(kind)
        for name, put in slots(kind).items():
            put(made, changed.pop(name) if name in changed else getattr(self, name))
        if changed:
            raise TypeError(f"{kind.__name__} has no field '{next(iter(changed))}'")
        return made

    __replace__ = cast(Any, replace)  # what ``copy.replace`` calls from Python 3.13 on


class Record(Slotted, metaclass=_Kind):
    """Base of dataclasses: equal when all fields are, shown with all fields; but for those with ``compare=False``."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _names(self))))

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), values(self))  # a fifth of the time that pickle takes for an object with slots

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in _names(self))
        return f"{type(self).__name__}({', '.join(values)})"


class Deferring(Record, metaclass=_Kind):
    """Base of dataclasses some of whose fields are made when somebody asks for them."""

    __slots__ = ("_pending",)
    if TYPE_CHECKING:
        _pending: Any = field(init=False)

    def defer(self, **fields: Callable[[], object]) -> Self:
        """Make the values of these fields when they are first asked for."""
        return self.defer_to(fields, fields)

    def defer_to(self, made: Any, names: Iterable[str]) -> Self:
        """Make the values of some fields when they are first asked for, by functions in what acts like a dict."""
        for name in names:
            delattr(self, name)
        self._pending = made
        return self

    if not TYPE_CHECKING:  # a type checker goes by the fields

        def __getattr__(self, name: str) -> object:
            if name != "_pending" and (make := getattr(self, "_pending", {}).get(name)):
                value = make()
                setattr(self, name, value)
                self._pending.pop(name, None)  # last: what was interrupted is asked again, and threads ask at once
                return value
            return object.__getattribute__(self, name)  # by now another thread may have made it


def _names(record: Any) -> list[str]:
    own = type(record)._declared.items()
    return [name for name, default in own if not isinstance(default, Field) or default.compare]


class Frozen(Record, metaclass=_FrozenKind):
    """Base of dataclasses that never change."""

    __slots__ = ()

    def __init__(self, *given: Any, **values: Any) -> None:
        _fill(self, given, values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field '{name}'")


class Named(Frozen, metaclass=_NamedKind):
    """Base of dataclasses that never change and whose fields are given by name."""

    __slots__ = ()


@cache
def _make_dataclass(kind: type[Slotted]) -> type:
    """Return what Python makes of a dataclass with these fields: what it knows of them, and the constructor."""
    types = {name: of for base in reversed(kind.__mro__) for name, of in get_annotations(base).items()}
    own = [
        (name, types[name]) if default is MISSING else (name, types[name], default)
        for name, default in kind._declared.items()
    ]
    body = {name: getattr(kind, name) for name in ("__doc__", "__post_init__") if hasattr(kind, name)}
    is_frozen, is_named = (issubclass(kind, base) for base in (Frozen, Named))
    made: Any = make_dataclass(
        kind.__name__, own, namespace=body, eq=False, repr=False, frozen=is_frozen, kw_only=is_named
    )
    made.__signature__ = signature(made)
    return cast(type, made)


def _fill(made: Any, given: Sequence[Any], values: dict[str, Any]) -> None:
    """Give an object the values of its fields: the given ones, or their defaults."""
    kind: Any = type(made)
    places = _parameters(kind)
    for (_, _, put), value in zip(places, given, strict=False):
        put(made, value)
    for name, default, put in places[len(given) :]:
        value = values.pop(name, default)
        if value is MISSING:
            declared = kind._declared[name]
            factory: Any = declared.default_factory if isinstance(declared, Field) else MISSING
            if factory is MISSING:
                raise TypeError(f"{kind.__name__} lacks '{name}'")
            value = factory()
        put(made, value)
    if values or len(given) > len(places):
        raise TypeError(f"{kind.__name__} has no field for {given[len(places) :] or values}")


@cache
def _parameters(kind: Any) -> list[tuple[str, Any, Any]]:
    given = [(name, it) for name, it in kind._declared.items() if not isinstance(it, Field) or it.init]
    return [(name, it.default if isinstance(it, Field) else it, slots(kind)[name]) for name, it in given]


@cache
def slots(kind: Any) -> dict[str, Callable[[Any, Any], None]]:
    """Return for each field of a class what puts a value into an object, whether it may change or not."""
    return {name: getattr(kind, name).__set__ for name in kind._declared}


def values(record: Slotted) -> tuple[Any, ...]:
    """Return the values of all fields, from which :func:`restore` makes the record."""
    return tuple([getattr(record, name) for name in type(record)._declared])


def restore(kind: Any, values: Sequence[Any]) -> Any:
    """Return a record from the values of its fields: what pickle calls."""
    made = kind.__new__(kind)
    for put, value in zip(slots(kind).values(), values, strict=True):
        put(made, value)
    return made


def pick_fields(record: object, *names: str) -> dict[str, Any]:
    """Return some fields of a record with their names, as the entries of documents have them."""
    return {name: getattr(record, name) for name in names}
