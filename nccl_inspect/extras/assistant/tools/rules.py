"""The tool that lists the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.assistant.bounds import MAX_RESULT, Page, answer, cut_list
from nccl_inspect.extras.assistant.reader import LogReader
from nccl_inspect.extras.assistant.tools import Offset
from nccl_inspect.judging.engine import CATEGORIES, registered

TITLE = "Rules"
_ROOM = MAX_RESULT - 800


class RuleEntry(BaseModel):
    """One rule, by the defect that it detects."""

    name: str
    category: str
    severity: str = Field(description="Usual severity; that of a finding depends on its effect.")
    title: str


class RuleList(BaseModel):
    """The rules."""

    rules: list[RuleEntry]
    categories: list[str]
    page: Page


def tool(_reader: LogReader) -> Callable[..., Any]:
    """The function that is offered."""

    async def rules(
        category: Annotated[str | None, Field(description="Only rules of this category.")] = None,
        search: Annotated[str | None, Field(description="Only rules with this word in name or title.")] = None,
        offset: Offset = 0,
        limit: Annotated[int, Field(description="Maximum number of rules.", ge=1, le=200)] = 60,
    ) -> Annotated[CallToolResult, RuleList]:
        """List the rules: name, category, usual severity, and the defect that the rule detects.

        'explain' returns the page of a rule: what it means, how the log shows it, how to fix it.
        """
        if category is not None and category.lower() not in CATEGORIES:
            raise NcclInspectError(f"no category '{category}'", f"choose from {', '.join(CATEGORIES)}")
        word = (search or "").lower()
        chosen = [
            RuleEntry(name=rule.name, category=rule.category, severity=rule.severity, title=rule.title)
            for rule in (entry.rule for entry in registered())
            if category in (None, rule.category) or rule.category == str(category).lower()
            if word in rule.name or word in rule.title.lower()
        ]
        part = cut_list(chosen[offset : offset + limit], len(chosen), offset, _ROOM, "choose a category")
        return answer(RuleList(rules=part.rows, categories=list(CATEGORIES), page=part.page))

    return rules
