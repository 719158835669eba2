"""What all events have in common, and the two events that keep their values by name."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from nccl_inspect.util import secrets as masking
from nccl_inspect.util.records import Named

if TYPE_CHECKING:
    from collections.abc import Mapping


class Maker(Protocol):
    """Holds what an event needs to know of the production that recognised its message."""

    name: str
    dialect: str

    @property
    def constants(self) -> Mapping[str, str]:
        """Return fields that the shape itself decides."""


NO_HOST = "?"
"""The beginning of the made-up host of a process whose lines name none, or the whole of it where they name no rank."""


def is_named(host: str | None) -> bool:
    """Return whether a log names a host: of two that it does not name nobody knows whether they are one."""
    return host is not None and not host.startswith(NO_HOST)


class Process(NamedTuple):
    """Holds what identifies a process in a log."""

    host: str
    pid: int
    apart: str = ""
    """What else keeps it apart from others: what its collector calls it (pods that share host name and pid numbers), or
    which of its lives this is (a container that was started again)."""

    @property
    def teller(self) -> int | None:
        """Return the rank whose exception passes on what a process printed of which nothing else is known."""
        return -1 - self.pid if not self.host and self.pid < 0 else None


class Where(NamedTuple):
    """Holds where a line stood and who printed it."""

    source: str = ""
    line: int = 0
    time: str | None = None
    host: str | None = None
    pid: int | None = None
    tid: int | None = None
    device: int | None = None
    level: str = "INFO"
    location: str | None = None
    label: str | None = None
    """What a launcher or collector calls the printer: pod, container, node or worker."""
    label_rank: int | None = None
    """The rank that a launcher states."""


_NOWHERE = Where()


def _where_field(name: str) -> Any:
    return property(attrgetter(f"where.{name}"))


class Event(Named):
    """Holds what every event has: the message, the production that recognised it, and where it stood."""

    kept: ClassVar[bool] = True
    """Whether the model wants it; what is only recognised and counted says False."""

    where: Where = _NOWHERE
    dialect: str = ""
    production: str = ""
    message: str = ""

    source: ClassVar[str] = _where_field("source")
    """The name of the input."""
    line: ClassVar[int] = _where_field("line")
    """The number of the line in its source, from 1."""
    time: ClassVar[str | None] = _where_field("time")
    """The time stamp as printed, by NCCL or by what collected the log."""
    host: ClassVar[str | None] = _where_field("host")
    """The host that the prefix names: under Kubernetes the pod; None for a bare line."""
    pid: ClassVar[int | None] = _where_field("pid")
    """The process."""
    tid: ClassVar[int | None] = _where_field("tid")
    """The kernel's id of the thread; equal to pid for the main thread."""
    device: ClassVar[int | None] = _where_field("device")
    """The current CUDA device of the calling thread; not always that of the rank."""
    level: ClassVar[str] = _where_field("level")
    """INFO, WARN, TRACE, CALL, ABORT or VERSION; OTHER for a line of another program."""
    location: ClassVar[str | None] = _where_field("location")
    """``file:line`` (or whatever a plugin gave) of a WARN."""

    def __hash__(self) -> int:
        return hash((type(self), self.where, self.message))

    @property
    def qualified_name(self) -> str:
        """Return the production with its dialect, ``nccl/channel-p2p``, as rules name it."""
        return f"{self.dialect}/{self.production}"

    @classmethod
    def build(cls, production: Maker, values: Mapping[str, Any], message: str) -> Event:
        """Return the event of a parsed message: its values, and the constants that the production states."""
        constants: dict[str, Any] = {
            name: int(text) if text.isdecimal() else _FLAGS.get(text, text)
            for name, text in production.constants.items()
        }
        of, name = production.dialect, production.name
        return cls(dialect=of, production=name, message=message, **cls.arrange(values), **constants)

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of the class made of the values read; names that begin with ``_`` are left out."""
        return {name: value for name, value in values.items() if name[0] != "_"}


PlacedEvent: TypeAlias = tuple[Where, Event]
"""Where a line stood, and the event that it states: the same object wherever a line says the same."""

_FLAGS: dict[str, object] = {"true": True, "false": False}


class Message(Event):
    """Recognised, and nothing that the model needs."""

    kept: ClassVar[bool] = False

    values: tuple[tuple[str, Any], ...] = ()
    """Field names and values, as the production names them."""
    cut: bool = False
    """NCCL cut the message, so that it has no values."""

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return all values in one tuple; names that begin with ``__`` are left out."""
        return {"values": tuple(item for item in values.items() if item[0][:2] != "__")}


class Notice(Message):
    """A statement that rules look for by the name of its production."""

    kept: ClassVar[bool] = True

    tone: str = "info"
    """``info``, ``error`` (something failed here), ``echo`` (something failed elsewhere and is passed on) or ``loose``
    (somebody's exception, which may have been caught)."""

    def value(self, name: str) -> Any:
        """Return the value of one field, None when the message left it out.

        A KeyError says that the production has none.
        """
        return dict(self.values)[name]


def hide_secrets(event: Event) -> Event:
    """Return the event with its secrets hidden, in the message and in all values."""
    secrets = masking.find_secrets(event.message)
    if not secrets:
        return event
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    return replace(event, **{name: _hide(value, secrets) for name, value in values.items() if name != "where"})


def _hide(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return masking.remove_secrets(value, secrets)
    return tuple(_hide(item, secrets) for item in value) if isinstance(value, tuple) else value
