"""Named tuples as ``typing.NamedTuple`` makes them, in a sixth of its time: a short run loads more than a hundred.

Nothing is generated when a module is loaded. The constructor of a class is made with its first object; what else a
named tuple can do is inherited.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
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
            return type(name, (_Named,), {**body, **own, **dict(zip(names, _ITEMS[: len(names)], strict=True))})

    class NamedTuple(metaclass=_Declared):
        """Base of tuples whose items have names."""


class _Named(tuple[Any, ...]):
    """What all named tuples can do."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}

    def __new__(cls, *given: Any, **values: Any) -> Self:
        defaults = [cls._field_defaults[name] for name in cls._fields if name in cls._field_defaults]
        made = vars(namedtuple(cls.__name__, cls._fields, defaults=defaults))["__new__"]
        cls.__new__ = made  # type: ignore[method-assign]
        result: Self = cls.__new__(cls, *given, **values)
        return result

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

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))


_MOST = 32
"""Fields of a named tuple."""
_PLACES = [f"item_{place}" for place in range(_MOST)]
_MADE = vars(namedtuple("_Made", _PLACES))
_ITEMS = [_MADE[name] for name in _PLACES]
"""What gives the value of the first field of a named tuple, of the second and so on: what Python makes for each."""
