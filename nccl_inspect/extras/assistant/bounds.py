"""The size of answers: assistants pay for each byte, and cut long answers where nobody notices."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

MAX_ANSWER = 20_000
"""Bytes of a whole answer: a text for people, the typed result, and the same as text for clients without types."""
MAX_RESULT = 7_000
"""Bytes of a typed result."""
MAX_BRIEF = 3_000
_Row = TypeVar("_Row", bound=BaseModel)
_Result = TypeVar("_Result", bound=BaseModel)


class Page(BaseModel):
    """Holds which part of a list an answer holds."""

    total: int = Field(description="Number of all entries.")
    offset: int = Field(default=0, description="Entries skipped before the first one returned.")
    returned: int = Field(description="Entries returned.")
    truncated: bool = Field(description="Whether more entries follow.")
    more: str = Field(default="", description="How to get the rest, if any.")


class Cut(NamedTuple, Generic[_Row]):
    """A part of a list."""

    rows: list[_Row]
    page: Page


def cut_list(rows: Sequence[_Row], total: int, offset: int, room: int, narrower: str = "") -> Cut[_Row]:
    """As many rows as fit.

    Args:
        rows: from the offset on, as many as were asked for.
        total: how many there are.
        offset: how many are left out before them.
        room: bytes that they may take.
        narrower: how to get fewer, better ones.
    """
    kept: list[_Row] = []
    for row in rows:
        room -= size(row) + 1
        if room < 0 and kept:
            break
        kept.append(row)
    after = offset + len(kept)
    is_cut = after < total
    more = f"call again with offset={after}" + (f", or {narrower}" if narrower else "") if is_cut else ""
    return Cut(kept, Page(total=total, offset=offset, returned=len(kept), truncated=is_cut, more=more))


def size(value: BaseModel) -> int:
    """Bytes of a model as JSON."""
    return len(value.model_dump_json().encode())


def shrunk(result: _Result, *shorter: Callable[[_Result], bool]) -> _Result:
    """A result that fits: its parts are shortened in turn until it does.

    Args:
        result: is changed.
        shorter: each takes something away and says whether there is more to take.
    """
    for step in shorter:
        while size(result) > MAX_RESULT and step(result):
            pass
    return result


def pop_last(name: str) -> Callable[[Any], bool]:
    """A step of :func:`shrunk`: takes the last entry of a list away."""

    def step(result: Any) -> bool:
        rows = getattr(result, name)
        if rows:
            rows.pop()
        return bool(rows)

    return step


def answer(result: BaseModel, text: str = "") -> CallToolResult:
    """A typed result, after a text for people, and again as JSON text for clients without types.

    Args:
        result: within :data:`MAX_RESULT`.
        text: for people; may be empty.
    """
    values = result.model_dump(mode="json")
    content = [TextContent(type="text", text=text[:MAX_BRIEF])] if text else []
    plain = TextContent(type="text", text=json.dumps(values, ensure_ascii=False, separators=(",", ":")))
    return CallToolResult(content=[*content, plain], structured_content=values)
