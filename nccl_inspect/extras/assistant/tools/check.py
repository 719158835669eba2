"""The tool that checks a job against a policy."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.assistant.bounds import MAX_RESULT, Page, answer, cut_list
from nccl_inspect.extras.assistant.quotes import MAX_NAME, NOTE, Note, Quote, quote, shown
from nccl_inspect.extras.assistant.reader import JobRequest, LogReader
from nccl_inspect.extras.assistant.tools import Logs, Name, Offset, Platform, Topology, WhichJob, WhichRun, several
from nccl_inspect.extras.assistant.tools.shapes import ranks, step
from nccl_inspect.extras.gate.policy import Outcome, Policy, Worst, policy_from_values

TITLE = "Check a job against a policy"
_MAX_LINES = 2
_ROOM = MAX_RESULT - 1_000


class ExpectationResult(BaseModel):
    """One expectation of the policy, and what the log shows."""

    key: str
    wanted: str
    state: str = Field(description="broken, undecided (the log does not show it) or kept.")
    summary: str
    todo: str = Field(description="How to fix it, or which log would decide it.")
    rule: str | None
    ranks: str
    lines: list[Quote]


class CheckedPolicy(BaseModel):
    """A job checked against a policy."""

    policy: str
    is_met: bool
    state: str = Field(description="The state of the worst expectation.")
    verdict: str = Field(description="The verdict on the job, whatever the policy says.")
    broken: int
    undecided: int
    kept: int
    expectations: list[ExpectationResult] = Field(description="Broken ones first, then undecided ones.")
    page: Page
    note: Note = NOTE


def tool(reader: LogReader) -> Callable[..., Any]:
    """The function that is offered."""

    async def check(
        ctx: Context,
        logs: Logs,
        policy: Annotated[Name, Field(description="A policy file (TOML), as 'nccl-inspect check --learn' writes it.")],
        strict: Annotated[bool, Field(description="Treat undecided expectations as broken.")] = False,
        offset: Offset = 0,
        limit: Annotated[int, Field(description="Maximum number of expectations.", ge=1, le=50)] = 20,
        platform: Platform = None,
        topology: Topology = None,
        job: WhichJob = None,
        run: WhichRun = None,
    ) -> Annotated[CallToolResult, CheckedPolicy]:
        """Check a job against a policy file: what is broken, what is undecided, and how to fix it."""
        wish = JobRequest(platform, tuple(several(topology)), job, run)
        names = several(logs)
        worst = Worst(await reader.alone(lambda: _policy(reader, policy)))
        judged = await reader.job(names, wish, ctx)
        if judged.jobs:  # each of several jobs must keep it
            judged = await reader.job(names, wish, ctx, worst.take)
        checked = worst.checked(judged)
        rows = [_expectation(outcome) for outcome in checked.outcomes[offset : offset + limit]]
        part = cut_list(rows, len(checked.outcomes), offset, _ROOM)
        result = CheckedPolicy(
            policy=shown(policy),
            is_met=checked.is_met(strict),
            state=checked.state,
            verdict=checked.job.verdict,
            broken=len(checked.in_state("broken")),
            undecided=len(checked.in_state("undecided")),
            kept=len(checked.in_state("kept")),
            expectations=part.rows,
            page=part.page,
        )
        kept = "kept" if result.is_met else "not kept"
        return answer(result, f"The policy is {kept}: {result.broken} broken, {result.undecided} undecided.\n{NOTE}")

    return check


def _policy(reader: LogReader, name: str) -> Policy:
    """The policy of a file.

    Raises:
        NcclInspectError: it cannot be read or is invalid.
    """
    try:
        return policy_from_values(tomllib.loads(reader.folders.text(name)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NcclInspectError(f"{name}: not TOML: {error}", "fix the file") from None


def _expectation(outcome: Outcome) -> ExpectationResult:
    verdict = outcome.answer
    return ExpectationResult(
        key=outcome.key,
        wanted=shown(outcome.wanted, 2 * MAX_NAME),
        state=verdict.state,
        summary=shown(verdict.summary),
        todo=step(verdict.todo),
        rule=verdict.rule or None,
        ranks=ranks(verdict.ranks),
        lines=[quote(line) for line in verdict.evidence[:_MAX_LINES]],
    )
