"""``nccl-inspect mcp``: serves assistants over the Model Context Protocol."""

from __future__ import annotations

import os

import click

from nccl_inspect.cli import shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import compression
from nccl_inspect.pipeline import reading

_MAX_UNPACKED = "8G"
_EXAMPLES = """
Examples:
  nccl-inspect mcp                      logs below the working folder, over standard input and output
  nccl-inspect mcp --root /shared/logs --root ~/policies

Exit status: 0 the client disconnected; 2 usage error, or the extra is not installed; 130 Ctrl-C.
"""


@click.command(epilog=_EXAMPLES, short_help="Serve assistants over the Model Context Protocol (MCP).")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    type=shared.FILE,
    help="Only read files below this folder. May be repeated. Default: the working folder.",
)
@shared.platform_options
def command(roots: tuple[str, ...], options: reading.Options) -> None:
    """Serve assistants over the Model Context Protocol: a client starts this command and queries it.

    Tools: summarize, paths, explain, diff, check, rules, evidence. Requires the SDK: pip install mcp.

    Nothing is written, run or sent. Files outside the folders are refused, even through links. What an assistant asks
    for goes to wherever that assistant runs: remove names from a log with 'nccl-inspect anonymize' first.
    """
    try:
        import anyio

        from nccl_inspect.extras.assistant import reader, server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "pydantic"):
            raise
        raise NcclInspectError("the MCP SDK is missing or too old", "pip install -U mcp") from None
    os.environ[compression.VARIABLE] = compression.given_limit() or _MAX_UNPACKED
    reads = reader.LogReader(reader.Folders(roots or (".",)), shared.with_settings_file(options))
    reading.Judge(shared.with_settings_file(options))  # errors in the options are reported before a client asks
    anyio.run(server.make_server(reads).run_stdio_async)
