"""The tool that compares two runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from nccl_inspect.extras.assistant.bounds import MAX_RESULT, Page, answer, cut_list, pop_last, shrunk
from nccl_inspect.extras.assistant.quotes import MAX_NAME, NOTE, Note, Quote, quote, shown
from nccl_inspect.extras.assistant.reader import JobRequest, LogReader
from nccl_inspect.extras.assistant.tools import Logs, Offset, Platform, several
from nccl_inspect.extras.assistant.tools.shapes import ranks, step
from nccl_inspect.extras.gate import differences
from nccl_inspect.extras.gate.differences import CausalChain, Change, Difference
from nccl_inspect.report.digest import verdict_line

TITLE = "What changed between two runs"
_MAX_CHAINS = 3
_MAX_IN_CHAIN = 4
_MAX_OPEN = 3
_ROOM = MAX_RESULT - 2_600


class ChangeEntry(BaseModel):
    """One difference."""

    area: str = Field(description="verdict, versions, network, world, environment, communicators, paths or findings.")
    what: str
    kind: str = Field(description="new (only in B), gone (only in A) or changed.")
    before: str | None
    after: str | None
    pairs: int = Field(description="Number of rank pairs whose path changed.")
    ranks: str
    rules: list[str]
    line: Quote | None = Field(description="The first log line that shows it.")


class Chain(BaseModel):
    """A change that likely explains others."""

    causes: list[str]
    findings: list[str]
    effects: list[str]
    fix: list[str] = Field(description="How to make B like A.")


class Comparison(BaseModel):
    """Two runs compared."""

    is_same: bool
    verdict_before: str
    verdict_after: str
    explanations: list[Chain]
    changes: list[ChangeEntry]
    page: Page
    not_compared: list[str]
    note: Note = NOTE


def tool(reader: LogReader) -> Callable[..., Any]:
    """The function that is offered."""

    async def diff(
        ctx: Context,
        before: Logs,
        after: Logs,
        offset: Offset = 0,
        limit: Annotated[int, Field(description="Maximum number of changes.", ge=1, le=50)] = 20,
        platform: Platform = None,
        job: Annotated[str | None, Field(description="Number or name of the job, if an input holds several.")] = None,
    ) -> Annotated[CallToolResult, Comparison]:
        """Compare two runs of a job, a good one (before) and a bad one (after): what changed, and what explains what.

        Compares versions, network, environment, communicators, paths and findings, by rank: hosts may differ.
        """
        wish = JobRequest(platform, job=job, is_one_of_two=True)
        a = await reader.job(several(before), wish, ctx)
        b = await reader.job(several(after), wish, ctx)
        difference = await reader.alone(lambda: differences.compare(a, b))
        result = _comparison(difference, offset, limit)
        text = f"before: {result.verdict_before}\nafter: {result.verdict_after}\n{NOTE}"
        return answer(shrunk(result, *map(pop_last, ("not_compared", "changes", "explanations"))), text)

    return diff


def _comparison(difference: Difference, offset: int, limit: int) -> Comparison:
    rows = [_change(change) for change in difference.changes[offset : offset + limit]]
    part = cut_list(rows, len(difference.changes), offset, _ROOM)
    return Comparison(
        is_same=not difference.changes,
        verdict_before=shown(verdict_line(difference.a)),
        verdict_after=shown(verdict_line(difference.b)),
        explanations=[_chain(chain) for chain in difference.explanations[:_MAX_CHAINS]],
        changes=part.rows,
        page=part.page,
        not_compared=[shown(words) for words in difference.open[:_MAX_OPEN]],
    )


def _change(change: Change) -> ChangeEntry:
    return ChangeEntry(
        area=change.area,
        what=shown(change.what, MAX_NAME),
        kind=change.kind,
        before=_value(change.before),
        after=_value(change.after),
        pairs=len(change.pairs),
        ranks=ranks(change.ranks),
        rules=change.rules,
        line=quote(change.evidence[0]) if change.evidence else None,
    )


def _value(text: str | None) -> str | None:
    return None if text is None else shown(text, 3 * MAX_NAME)


def _chain(chain: CausalChain) -> Chain:
    return Chain(
        causes=_one_line_each(chain.causes),
        findings=_one_line_each(chain.findings),
        effects=_one_line_each(chain.effects),
        fix=[step(text) for text in chain.fix[:_MAX_IN_CHAIN]],
    )


def _one_line_each(changes: list[Change]) -> list[str]:
    """Changes in one line each."""
    return [
        shown(
            f"{change.area}: {change.what}: {change.before or 'absent'} -> {change.after or 'absent'}",
            3 * MAX_NAME,
        )
        for change in changes[:_MAX_IN_CHAIN]
    ]
