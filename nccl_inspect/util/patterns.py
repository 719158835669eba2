"""Patterns that few logs need: each is compiled when it is first used, since compiling takes longer than a match."""

import re
from typing import Any, AnyStr, cast


class _Later:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        member = getattr(re.compile(*self._given), name)
        setattr(self, name, member)  # next time it is found without coming here
        return member

    def __reduce__(self) -> tuple[Any, ...]:
        return re.compile, self._given  # a copy, and what pickle makes, is the pattern


def compile_later(pattern: AnyStr, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[AnyStr]:
    """Return what ``re.compile`` gives, compiled when it is first used."""
    return cast("re.Pattern[AnyStr]", _Later(pattern, flags))
