"""The MCP server: its tools, resources (the rule pages, and the message reference from the grammar) and prompts."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Awaitable, Callable
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.types import CallToolResult, ToolAnnotations
from pydantic import Field

from nccl_inspect import explain as explaining
from nccl_inspect._version import __version__
from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.extras.assistant.reader import LogReader
from nccl_inspect.extras.assistant.results import NOTE, cut_text
from nccl_inspect.extras.assistant.tools import Tools
from nccl_inspect.grammar import files
from nccl_inspect.grammar.production import Production
from nccl_inspect.judging.engine import CATEGORIES, list_rules
from nccl_inspect.report.words import add_proofs
from nccl_inspect.scanning import meaning
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.text import read_parts

# --- resources ----------------------------------------------------------------------------------------------------


_SCHEME = "nccl-inspect"


def _rules() -> str:
    lines = ["# Rules"]
    for category in CATEGORIES:
        rules = [entry.rule for entry in list_rules() if entry.rule.category == category]
        lines += [f"\n## {category}\n", *(f"- `{rule.name}` ({rule.severity}): {rule.title}" for rule in rules)]
    return "\n".join(lines) + "\n"


def _rule(name: str) -> str:
    page = explaining.rule_page(name)
    if page is None:
        hint = suggestion(name, [entry.rule.name for entry in list_rules()], 0.6)
        raise ResourceNotFoundError(f"no rule '{name[:80]}'; {hint or f'{_SCHEME}://rules lists them'}")
    return add_proofs(page)


def _messages() -> str:
    listed = (f"- {_SCHEME}://messages/{'/'.join(names)}: {len(own)}" for names, own in _families().items())
    return "\n".join(["# Recognized messages\n", *listed]) + "\n"


def _family(dialect: str, family: str) -> str:
    productions = _families().get((dialect, family))
    if productions is None:
        raise ResourceNotFoundError(f"no messages '{dialect}/{family}'"[:200] + f"; {_SCHEME}://messages lists them")
    lines = [f"# {dialect}: {family}"]
    for production in productions:
        rule = f"; see the rule {production.rule}" if production.rule else ""
        printed = f"{meaning.releases(production)}; {meaning.subsystems(production)}; event {production.event}{rule}"
        lines += [f"\n## {production.name}\n", f"    {production.line}\n", production.says, f"\n{printed}"]
        lines += [f"\n```text\n{sample}\n```" for sample in list(production.samples)[:1]]
    return "\n".join(lines) + "\n"


@cache
def _families() -> dict[tuple[str, str], list[Production]]:
    texts = ((file.read_text(encoding="utf-8"), file.name) for file in files.list_files())
    productions = (production for text in texts for production in files.read(*text))
    families = group_values(((production.dialect, production.family), production) for production in productions)
    return dict(sorted(families.items(), key=lambda entry: (entry[0][0] != "nccl", entry[0])))


# --- prompts ------------------------------------------------------------------------------------------------------


TEXTS = {name: text.strip() for name, text in read_parts(__file__, "prompts.txt").items()}
"""The parts of ``prompts.txt``, by their names."""


def skill() -> str:
    """Return the skill for agents that run commands (``SKILL.md``), which says what the prompts say."""
    text = (Path(__file__).parent / "skill.md").read_text(encoding="utf-8")
    return text.replace("{wording}", TEXTS["wording"]).replace("{note}", NOTE)


_LOG = "The log of the job: a file, a folder or a glob."


def _hang(log: Annotated[str, Field(description=_LOG)]) -> str:
    return "\n\n".join((TEXTS["hang"].format(log=cut_text(log)), TEXTS["wording"], NOTE))


def _slow(
    log: Annotated[str, Field(description=_LOG)],
    good_log: Annotated[str, Field(description="The log of a run that was fast, if there is one.")] = "",
) -> str:
    good = f"A run that was fast: {cut_text(good_log)}\n" if good_log else ""
    return "\n\n".join((TEXTS["slow"].format(log=cut_text(log), good=good), TEXTS["wording"], NOTE))


# --- the server ---------------------------------------------------------------------------------------------------


_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_MAX_ERROR = 1_000


def make_server(reader: LogReader) -> MCPServer:
    """Make a server for the logs of a reader."""
    server = MCPServer(
        "nccl-inspect",
        title="nccl-inspect",
        description="Find out from its log why an NCCL job hangs, fails or is slow.",
        instructions=TEXTS["instructions"].format(folders=", ".join(reader.folders.names)),
        version=__version__,
        log_level="ERROR",
    )
    tools, says = Tools(reader), tomllib.loads((Path(__file__).parent / "server.toml").read_text(encoding="utf-8"))
    for name, title in says["titles"].items():
        function = _turn_errors(getattr(tools, name), says["parameters"])
        server.add_tool(function, name=name, title=title, description=inspect.getdoc(function), annotations=_READS)
    for kind, page in (("rules", _rules), ("rule", _rule), ("messages", _messages), ("family", _family)):
        about = says["resources"][kind]
        server.resource(about.pop("address"), mime_type="text/markdown", **about)(page)
    server.add_prompt(Prompt.from_function(_hang, **says["prompts"]["hang"]))
    server.add_prompt(Prompt.from_function(_slow, **says["prompts"]["slow"]))
    return server


def _turn_errors(function: Callable[..., Awaitable[CallToolResult]], says: dict[str, str]) -> Callable[..., Any]:
    """Return a tool whose parameters are described, and whose errors say what happened, and what to do."""

    @wraps(function)
    async def wrapper(*args: Any, **values: Any) -> CallToolResult:
        try:
            return await function(*args, **values)
        except NcclInspectError as error:
            raise ToolError(cut_text(str(error), _MAX_ERROR)) from None

    signature = inspect.signature(function, eval_str=True)
    described = [
        one.replace(annotation=Annotated[one.annotation, Field(description=text)]) if text else one
        for one in signature.parameters.values()
        for text in [says.get(f"{function.__name__}.{one.name}", says.get(one.name))]
    ]
    vars(wrapper)["__signature__"] = signature.replace(parameters=described)
    return wrapper
