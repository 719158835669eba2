"""Comparison and representation for the package's dataclasses, written once.

Python generates both anew for each dataclass when a module is loaded, and a constructor; for the classes here that
would take a sixth of the time of a short run. So they inherit from :class:`Record` and are declared with
:func:`record`, which generates a constructor only for a class that has many objects; those that never change are
declared with :func:`frozen` and inherit from :class:`Frozen`, which has what Python would generate for them, in eight
times the time of other dataclasses.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, dataclass_transform

_Kind = TypeVar("_Kind")

_FEW = 30
"""Objects of a class that take less time to make without a constructor of its own than to generate it."""


class Record:
    """Base of dataclasses: equal when all fields are, shown with all fields; but for those with ``compare=False``."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _names(self))))

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew from all fields: a fifth of what pickle takes for an object with slots.
        kind: Any = type(self)
        return kind, _values(kind)(self)

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in _names(self))
        return f"{type(self).__name__}({', '.join(values)})"


class Deferring(Record):
    """Base of dataclasses some of whose fields are made when somebody asks for them."""

    __slots__ = ("_pending",)
    _pending: dict[str, Callable[[], object]]

    def defer(self, **fields: Callable[[], object]) -> Self:
        """Make the values of these fields when they are first asked for."""
        for name in fields:
            delattr(self, name)
        self._pending = fields
        return self

    def make_fields(self) -> None:
        """Make the values now that were left for later: what they are made from is about to change."""
        kind: Any = type(self)
        _values(kind)(self)

    if not TYPE_CHECKING:  # a type checker goes by the fields

        def __getattr__(self, name: str) -> object:
            if name != "_pending" and (make := getattr(self, "_pending", {}).get(name)):
                value = make()
                setattr(self, name, value)
                self._pending.pop(name, None)  # last: what was interrupted is asked again, and threads ask at once
                return value
            return object.__getattribute__(self, name)  # by now another thread may have made it


def _names(record: Any) -> list[str]:
    return [field.name for field in fields(record) if field.compare]


class Frozen(Record):
    """Base of dataclasses that never change."""

    __slots__ = ()

    def __init__(self, *given: Any, **values: Any) -> None:
        kind: Any = type(self)
        _fill(self, slots(kind), given, values)

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return again, (kind, _values(kind)(self))

    def with_fields(self, **changed: object) -> Self:
        """The same with other values of some fields, in a fifth of the time that ``dataclasses.replace`` takes."""
        kind: Any = type(self)
        made: Self = kind.__new__(kind)
        for (name, _, put), own in zip(slots(kind), _values(kind)(self), strict=True):
            put(made, changed.get(name, own))
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field '{name}'")


@dataclass_transform(field_specifiers=(field,))
def record(kind: type[_Kind]) -> type[_Kind]:
    """Declare a dataclass with slots; its constructor is generated for the objects after the first few."""
    made: Any = dataclass(init=False, slots=True, eq=False, repr=False)(kind)
    made.__init__ = _first_ones()
    return cast("type[_Kind]", made)


def _first_ones() -> Callable[..., None]:
    """A constructor for the first few objects of a class, which does what the generated one will do."""
    left = _FEW

    def init(self: Any, *given: Any, **values: Any) -> None:
        nonlocal left
        left -= 1
        kind: Any = type(self)
        if left < 0:
            kind.__init__ = _constructor(kind)
            kind.__init__(self, *given, **values)
            return
        _fill(self, [slot for slot in slots(kind) if kind.__dataclass_fields__[slot[0]].init], given, values)
        if hasattr(kind, "__post_init__"):
            self.__post_init__()

    return init


def _constructor(kind: Any) -> Any:
    """What Python generates for such a dataclass."""
    own = [
        (own.name, Any, field(default=own.default, default_factory=own.default_factory, init=own.init))
        for own in fields(kind)
    ]
    after = {name: getattr(kind, name) for name in ("__post_init__",) if hasattr(kind, name)}
    return cast(Any, make_dataclass(kind.__name__, own, namespace=after, eq=False, repr=False)).__init__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_Kind]) -> type[_Kind]:
    """Declare a dataclass that inherits from :class:`Frozen`."""
    return dataclass(init=False, slots=True, eq=False, repr=False)(kind)


def _fill(made: Any, places: Sequence[tuple[str, Any, Any]], given: Sequence[Any], values: dict[str, Any]) -> None:
    """Give an object the values of its fields: the given ones, or their defaults."""
    kind = type(made)
    if len(given) > len(places):
        raise TypeError(f"{kind.__name__} has {len(places)} fields, not {len(given)}")
    for (name, _, _), value in zip(places, given, strict=False):
        if name in values:
            raise TypeError(f"{kind.__name__} has two values for '{name}'")
        values[name] = value
    for name, default, put in places:
        value = values.pop(name, default)
        put(made, _made(kind, name) if value is MISSING else value)
    if values:
        raise TypeError(f"{kind.__name__} has no field '{next(iter(values))}'")


def _made(kind: Any, name: str) -> Any:
    """What a field is if no value is given for it."""
    factory = kind.__dataclass_fields__[name].default_factory
    if factory is MISSING:
        raise TypeError(f"{kind.__name__} lacks '{name}'")
    return factory()


@cache
def slots(kind: Any) -> list[tuple[str, Any, Any]]:
    """For each field of a class its name, its default, and what puts a value in its place."""
    return [(field.name, field.default, getattr(kind, field.name).__set__) for field in fields(kind)]


def values(record: Frozen) -> tuple[object, ...]:
    """The values of all fields, from which :func:`again` makes the record."""
    kind: Any = type(record)
    return _values(kind)(record)


@cache
def _values(kind: Any) -> Callable[[object], tuple[object, ...]]:
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda record: tuple(getattr(record, name) for name in names)


def again(kind: Any, values: tuple[object, ...]) -> Any:
    """An object from the values of its fields: what pickle calls."""
    made = kind.__new__(kind)
    for (_, _, put), value in zip(slots(kind), values, strict=True):
        put(made, value)
    return made


def columns_of(records: Sequence[Frozen]) -> list[list[Any]]:
    """The values of records of one kind by fields, from which :func:`made_of` makes them: pickle takes few lists."""
    kind: Any = type(records[0])
    return [list(map(attrgetter(name), records)) for name, _, _ in slots(kind)]


def made_of(kind: Any, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Records of one kind from the values of their fields."""
    records = [kind.__new__(kind) for _ in columns[0]]
    for (_, _, put), column in zip(slots(kind), columns, strict=True):
        deque(map(put, records, column), maxlen=0)
    return records


def picked(record: object, *names: str) -> dict[str, Any]:
    """Some fields of a record with their names, as the entries of documents have them."""
    return {name: getattr(record, name) for name in names}
