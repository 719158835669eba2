"""The tool that lists what is looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from nccl_inspect.assistant.bounds import MAX_RESULT, Page, answer, cut_list
from nccl_inspect.assistant.reader import Reader
from nccl_inspect.assistant.tools import Offset
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.engine import CATEGORIES, registered

TITLE = "What is looked for"
_ROOM = MAX_RESULT - 800


class Rule(BaseModel):
    """One defect that is looked for."""

    name: str
    category: str
    severity: str = Field(description="The usual one; a finding may have another, by its effect.")
    title: str


class Rules(BaseModel):
    """What is looked for."""

    rules: list[Rule]
    categories: list[str]
    page: Page


def tool(_reader: Reader) -> Callable[..., Any]:
    """The function that is offered."""

    async def rules(
        category: Annotated[str | None, Field(description="Only rules of this category.")] = None,
        search: Annotated[str | None, Field(description="Only rules with this word in name or title.")] = None,
        offset: Offset = 0,
        limit: Annotated[int, Field(description="Rules to give at most.", ge=1, le=200)] = 60,
    ) -> Annotated[CallToolResult, Rules]:
        """List the defects that are looked for in a log: name, category, usual severity, and what is wrong.

        'explain' gives the page of one: what it means, how it is recognised, how it is mended.
        """
        if category is not None and category.lower() not in CATEGORIES:
            raise NcclInspectError(f"no category '{category}'", f"there are {', '.join(CATEGORIES)}")
        word = (search or "").lower()
        chosen = [
            Rule(name=rule.name, category=rule.category, severity=rule.severity, title=rule.title)
            for rule in (entry.rule for entry in registered())
            if category in (None, rule.category) or rule.category == str(category).lower()
            if word in rule.name or word in rule.title.lower()
        ]
        part = cut_list(chosen[offset : offset + limit], len(chosen), offset, _ROOM, "choose a category")
        return answer(Rules(rules=part.rows, categories=list(CATEGORIES), page=part.page))

    return rules
