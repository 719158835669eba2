"""Where the log says what is stated. Plain data; notices, paths and findings hold it."""

from __future__ import annotations

from dataclasses import dataclass

from nccl_inspect.util.records import Record
from nccl_inspect.util.secrets import masked


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evidence(Record):
    """One line of the log that supports a statement; secrets in it are hidden from the beginning."""

    source: str
    line: int
    text: str
    order: int = 0
    """Orders the lines of a source as they were printed: the number of the line, where the log does not begin with the
    newest one and is not an export in one line."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", masked(self.text))
        object.__setattr__(self, "order", self.order or self.line)
