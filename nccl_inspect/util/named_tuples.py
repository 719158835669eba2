"""Named tuples as ``typing.NamedTuple`` makes them, in a sixth of its time: a short run loads more than a hundred.

Nothing is generated when a module is loaded. The constructor of a class is made with its first object; what else a
named tuple can do is inherited.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from inspect import Signature
    from typing import NamedTuple as NamedTuple
else:

    class _Declared(type):
        """Makes a plain class, a tuple, of each body that states :class:`NamedTuple` as its base."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)  # NamedTuple itself
            names = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in names if field in body}
            own = {"_fields": names, "_field_defaults": defaults, "__match_args__": names, "__slots__": ()}
            items = dict(zip(names, _ITEMS[: len(names)], strict=True))
            return type(name, (_Named, *bases[1:]), {**body, **own, **items})

    class NamedTuple(metaclass=_Declared):
        """Base of tuples whose items have names."""


class _Signature:
    """What ``inspect.signature`` and ``help`` show of the constructor, made when they ask for it."""

    def __get__(self, _named: object, kind: type[_Named]) -> Signature:
        from inspect import Parameter, Signature

        parameters = (
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=kind._field_defaults.get(name, Parameter.empty),
                annotation=kind.__annotations__.get(name, Parameter.empty),
            )
            for name in kind._fields
        )
        return Signature([*parameters])


class _Named(tuple[Any, ...]):
    """What all named tuples can do."""

    __slots__ = ()
    __signature__ = _Signature()
    if TYPE_CHECKING:  # else typing.get_type_hints would list them among the fields
        _fields: ClassVar[tuple[str, ...]]
        _field_defaults: ClassVar[dict[str, Any]]

    def __new__(cls, *given: Any, **values: Any) -> Self:
        kind: Any = next(base for base in cls.__mro__ if "_fields" in vars(base))  # cls may be a subclass with its own
        kind.__new__ = vars(namedtuple(kind.__name__, kind._fields, defaults=kind._field_defaults.values()))["__new__"]
        made: Self = kind.__new__(cls, *given, **values)
        return made

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(values)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
        return made

    def _replace(self, **changed: Any) -> Self:
        made = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(changed)}")
        return made

    __replace__ = _replace  # what copy.replace calls from Python 3.13 on

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))


_MOST = 32
"""Fields of a named tuple."""
_PLACES = [f"item_{place}" for place in range(_MOST)]
_MADE = vars(namedtuple("_Made", _PLACES))
_ITEMS = [_MADE[name] for name in _PLACES]
"""What gives the value of the first field of a named tuple, of the second and so on: what Python makes for each."""
