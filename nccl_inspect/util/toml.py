"""TOML files that users write: every key must be known, and an error says where it stands and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.util.discovery import suggest_path
from nccl_inspect.util.wording import read_range

_MAX_RANK = 10**6
_LIMIT = 10**9  # no count of anything here is as large


class Table:
    """A table, within a file or the file itself, of which each key is asked for; what nobody asked for is unknown."""

    def __init__(self, file: str, values: dict[str, Any], where: str = "") -> None:
        self.file = file
        self._values = values
        self._where = where
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return a string, one of some choices if there are any."""
        value = self._get(key, str, f'{key} = "…"')
        if value is not None and choices and value not in choices:
            hint = suggestion(value, choices) or f"known are {', '.join(choices)}"
            raise self.error(f"{key} is '{value}'", hint)
        return None if value is None else str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; a single string is a list of one."""
        value = self._get(key, (str, list), f'{key} = ["…", "…"]')
        words = [value] if isinstance(value, str) else value or []
        if not all(isinstance(word, str) for word in words):
            raise self.error(f"{key} holds something else than strings", f'write {key} = ["…", "…"]')
        return tuple(words)

    def number(self, key: str) -> int | None:
        """Return a whole number that is not negative."""
        value = self._get(key, int, f"{key} = 8")
        if value is not None and (isinstance(value, bool) or not 0 <= value < _LIMIT):
            raise self.error(f"{key} is not a count", f"write {key} = 8")
        return None if value is None else int(value)

    def flag(self, key: str) -> bool:
        """Return a switch, off when it is not there."""
        return bool(self._get(key, bool, f"{key} = true"))

    def ranks(self, key: str) -> frozenset[int] | None:
        """Return ranks as a list, or as a string such as ``0-3,7`` or ``0-56:8``."""
        example = f'write {key} = "0-3,7" or {key} = [0, 1]'
        value = self._get(key, (str, list, int), f'{key} = "0-3,7"')
        if value is None:
            return None
        words = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        ranks: set[int] = set()
        for word in words:
            if isinstance(word, int) and abs(word) >= _LIMIT:
                raise self.error(f"{key} has a number that is not a rank", example)
            some = read_range(str(word).strip())
            if some is None or some[-1] >= _MAX_RANK:
                raise self.error(f"{key} has '{word}', which is not a rank", example)
            ranks.update(some)
        return frozenset(ranks)

    def table(self, key: str) -> Table:
        """Return a table within this one, empty when it is not there."""
        value = self._get(key, dict, f"a table: [{self._path(key)}]")
        return Table(self.file, value or {}, self._path(key))

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables: ``[[key]]``."""
        value = self._get(key, list, f"[[{key}]] for each of them") or []
        if not all(isinstance(entry, dict) for entry in value):
            raise self.error(f"{key} is not a list of tables", f"write [[{key}]] for each of them")
        return [Table(self.file, entry, f"{key} {number}") for number, entry in enumerate(value, 1)]

    def names(self) -> list[str]:
        """Return the keys of a table in which they are free, such as names of rules."""
        return list(self._values)

    def close(self) -> None:
        """Make sure that every key was asked for: an error about another one suggests what may be meant."""
        for key in self._values:
            if key not in self._known:
                hint = suggestion(key, self._known) or f"known are {', '.join(self._known)}"
                raise self.error(f"unknown key '{key}'", hint)

    def error(self, what: str, hint: str) -> NcclInspectError:
        """Return an error about something in this table."""
        return NcclInspectError(f"{self.file}: {f'[{self._where}] ' if self._where else ''}{what}", hint)

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _get(self, key: str, kind: type | tuple[type, ...], example: str) -> Any:
        self._known.append(key)
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.error(f"{key} is of the wrong kind", f"write {example}")
        return value


def load(path: Path, option: str) -> Table:
    """Return the tables of a file, which users name with an option."""
    import tomllib  # takes time that a run without such a file does not have to spend

    try:
        return Table(str(path), tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise NcclInspectError(
            f"{path}: {error.strerror}", suggest_path(path, f"check the path given with {option}")
        ) from None
    except UnicodeDecodeError:
        raise NcclInspectError(f"{path}: not UTF-8", "save it as UTF-8 text") from None
    except RecursionError:
        raise NcclInspectError(f"{path}: too many brackets within each other", "no key needs more than two") from None
    except ValueError as error:  # of tomllib, or an absurdly long number
        raise NcclInspectError(f"{path}: {error}", 'mend that line; texts need quotes: key = "text"') from None
