"""The tool that returns the path of each pair of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from nccl_inspect.answers import selection
from nccl_inspect.extras.assistant.bounds import MAX_RESULT, Page, answer, cut_list
from nccl_inspect.extras.assistant.quotes import MAX_NAME, NOTE, Note, shown
from nccl_inspect.extras.assistant.reader import JobRequest, LogReader
from nccl_inspect.extras.assistant.tools import Logs, Offset, Platform, Topology, WhichJob, WhichRun, several
from nccl_inspect.extras.assistant.tools.shapes import KindOfPath, kind_of_path
from nccl_inspect.model.job import Job, Path
from nccl_inspect.report.tables import by_kind, gdr_word

TITLE = "The path of each pair of ranks"
_MAX_KINDS = 8
_ROOM = MAX_RESULT - 2_200
"""Bytes for the pairs; the rest is for the other fields."""


class RankPair(BaseModel):
    """The path from one rank to another."""

    src: int
    dst: int
    src_host: str | None
    dst_host: str | None
    scope: str
    path: str
    gdr: str
    nic: str | None
    channels: int
    verdict: str
    rules: list[str] = Field(description="Rules with findings about this path.")


class RankPairs(BaseModel):
    """Paths of a job."""

    rank_space: str = Field(description="global: ranks of the job; communicator: ranks of their communicators.")
    kinds: list[KindOfPath] = Field(description="All selected paths, by kind.")
    pairs: list[RankPair]
    page: Page
    note: Note = NOTE


def tool(reader: LogReader) -> Callable[..., Any]:
    """The function that is offered."""

    async def paths(
        ctx: Context,
        logs: Logs,
        rank: Annotated[str | None, Field(description="Paths from or to these ranks: 3, 0-7 or 0-56:8.")] = None,
        host: Annotated[
            str | None, Field(description="Paths from or to this host: name, glob or node-[01-16].")
        ] = None,
        scope: Annotated[
            Literal["intra", "inter", "unknown"] | None, Field(description="Within or between hosts.")
        ] = None,
        transport: Annotated[
            str | None, Field(description="Transport or prefix: NET, NET/Socket, ib, P2P/CUMEM.")
        ] = None,
        verdict: Annotated[
            Literal["ok", "fallback", "unknown"] | None,
            Field(description="fallback: a faster path should be possible."),
        ] = None,
        rule: Annotated[str | None, Field(description="Paths that findings of this rule are about.")] = None,
        slowest_first: Annotated[bool, Field(description="Sort by the usual speed of such paths.")] = False,
        offset: Offset = 0,
        limit: Annotated[
            int, Field(description="Maximum number of pairs; long ones leave room for fewer.", ge=1, le=100)
        ] = 20,
        platform: Platform = None,
        topology: Topology = None,
        job: WhichJob = None,
        run: WhichRun = None,
    ) -> Annotated[CallToolResult, RankPairs]:
        """List which path each directed pair of ranks takes: transport, NIC, GPUDirect RDMA, channels, verdict.

        Filters select pairs; start with verdict="fallback" or slowest_first. The answer counts all selected pairs by
        kind and lists some of them: 'page' says how to get the next ones.
        """
        places = selection.PlaceFilter(selection.parse_ranges("rank", (rank,) if rank else ()), (host,) if host else ())
        wanted = selection.PathFilter(
            places,
            scope,
            (transport,) if transport else (),
            (verdict,) if verdict else (),
            frozenset(selection.match_rules((rule,) if rule else ())),
        )
        judged = await reader.job(several(logs), JobRequest(platform, tuple(several(topology)), job, run), ctx)
        return await reader.alone(lambda: _answer(judged, wanted, slowest_first, range(offset, offset + limit)))

    return paths


def _answer(job: Job, wanted: selection.PathFilter, slowest_first: bool, places: range) -> CallToolResult:
    chosen = wanted.select(job)
    text = "" if chosen else selection.explain_no_path(job, wanted.verdicts)
    kinds = [kind_of_path(row) for row in by_kind(chosen)[:_MAX_KINDS]]
    if slowest_first:
        chosen = selection.sort_slowest_first(chosen, job)
    rows = [_pair(path) for path in chosen[places.start : places.stop]]
    part = cut_list(rows, len(chosen), places.start, _ROOM, "filter by rank, host, scope, transport or verdict")
    return answer(RankPairs(rank_space=job.rank_space, kinds=kinds, pairs=part.rows, page=part.page), text)


def _pair(path: Path) -> RankPair:
    return RankPair(
        src=path.src,
        dst=path.dst,
        src_host=_name(path.src_host),
        dst_host=_name(path.dst_host),
        scope=path.scope,
        path=shown(path.detail, MAX_NAME),
        gdr=gdr_word(path.gdr),
        nic=_name(path.nic),
        channels=len(path.channels),
        verdict=path.verdict,
        rules=list(path.rules),
    )


def _name(name: str | None) -> str | None:
    return None if name is None else shown(name, MAX_NAME)
