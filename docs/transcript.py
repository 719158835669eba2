"""Asks ``nccl-inspect mcp`` with the client of the SDK and prints what goes to and fro, for the how-to page."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import click
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import TextContent

_FOLDER = "sample_logs"
_LOG = "peer-killed/job.log"
_WIDTH = 118


async def main() -> None:
    """Ask for a verdict, the finding behind it, the log around one line, and a path that leads out."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "nccl_inspect", "mcp"], cwd=_FOLDER)
    async with Client(stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        click.echo(f"tools: {', '.join(sorted(tool.name for tool in tools))}\n")
        _show(await _call(client, "summarize", {"logs": _LOG}))
        found = await _call(
            client, "evidence", {"logs": _LOG, "rule": "peer-death", "around": "job.log:139", "about": 1}
        )
        (finding,) = found.structured_content["findings"]
        _lines({name: finding[name] for name in ("rule", "confidence", "cause", "fix")})
        _lines({"around": found.structured_content["around"]})
        _show(await _call(client, "summarize", {"logs": "../README.md"}))


async def _call(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    click.echo(f"> {tool} {json.dumps(arguments)}\n")
    return await client.call_tool(tool, arguments)


def _show(result: Any) -> None:
    """Print the first text of an answer: what an assistant reads first."""
    first = result.content[0]
    assert isinstance(first, TextContent)
    text = first.text.replace(str(Path(_FOLDER).resolve()), "/logs")
    click.echo("".join(f"{line}\n" for line in text.splitlines()))


def _lines(values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=1, ensure_ascii=False)
    for line in text.splitlines()[1:-1]:
        click.echo("\n".join(textwrap.wrap(line, _WIDTH, subsequent_indent="    ", drop_whitespace=False)))
    click.echo()


if __name__ == "__main__":
    anyio.run(main)
