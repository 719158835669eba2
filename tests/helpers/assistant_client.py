"""Asks a server for assistants with the client of the SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent

from nccl_inspect.extras.assistant.reader import Folders, LogReader
from nccl_inspect.extras.assistant.server import make_server
from nccl_inspect.pipeline import reading

_Result = TypeVar("_Result")


def reader(*roots: Path, **limits: int) -> LogReader:
    """Return what reads logs below some folders, and tells of all progress."""
    return LogReader(Folders([str(root) for root in roots], **limits), reading.Options(), interval=0.0)


def ask_server(root: Path | LogReader, question: Callable[[Client], Awaitable[_Result]]) -> _Result:
    """Return what a client hears from a server in this process."""

    async def ask() -> _Result:
        async with Client(_server(root)) as client:
            return await question(client)

    return anyio.run(ask)


@cache
def _server(root: Path | LogReader) -> MCPServer:
    return make_server(root if isinstance(root, LogReader) else reader(root))


def call(root: Path | LogReader, tool: str, **arguments: Any) -> CallToolResult:
    return ask_server(root, lambda client: client.call_tool(tool, arguments))


def values(result: CallToolResult) -> dict[str, Any]:
    """Return the typed values of an answer that is no error."""
    assert not result.is_error, texts(result)
    assert result.structured_content is not None
    return dict(result.structured_content)


def texts(result: CallToolResult) -> list[str]:
    return [part.text for part in result.content if isinstance(part, TextContent)]


def problem(result: CallToolResult) -> str:
    assert result.is_error
    return texts(result)[0]
