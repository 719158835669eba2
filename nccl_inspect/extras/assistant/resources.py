"""Resources: the rule pages and the message reference, which comes from the grammar."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from nccl_inspect import explain as explaining
from nccl_inspect.errors import suggestion
from nccl_inspect.grammar import files
from nccl_inspect.grammar.production import Production
from nccl_inspect.judging.engine import CATEGORIES, registered
from nccl_inspect.report.words import with_proofs
from nccl_inspect.scanning import meaning

SCHEME = "nccl-inspect"
_RULE = f"{SCHEME}://rules/{{name}}"
_FAMILY = f"{SCHEME}://messages/{{dialect}}/{{family}}"
_MARKDOWN = "text/markdown"
_MAX_COMPLETIONS = 100


def add(server: MCPServer) -> None:
    """Add the resources to a server."""
    server.resource(
        f"{SCHEME}://rules",
        name="rules",
        title="Rules",
        description=f"All rules and the defects that they detect; each has a page at {_RULE}.",
        mime_type=_MARKDOWN,
    )(_rules)
    server.resource(
        _RULE,
        name="rule",
        title="Rule page",
        description="What a defect is, how the log shows it, what it costs, how to fix it, with log excerpts.",
        mime_type=_MARKDOWN,
    )(_rule)
    server.resource(
        f"{SCHEME}://messages",
        name="messages",
        title="Message reference: families",
        description=f"The families of recognized messages; each has a page at {_FAMILY}.",
        mime_type=_MARKDOWN,
    )(_messages)
    server.resource(
        _FAMILY,
        name="message family",
        title="Message reference: one family",
        description="Each message of a family: its shape, what it means, which releases print it, and a sample.",
        mime_type=_MARKDOWN,
    )(_family)
    server.completion()(_completed)  # type: ignore[no-untyped-call]


def _rules() -> str:
    return "\n".join(_of_rules()) + "\n"


def _of_rules() -> Iterator[str]:
    yield "# Rules"
    for category in CATEGORIES:
        yield f"\n## {category}\n"
        for rule in (entry.rule for entry in registered() if entry.rule.category == category):
            yield f"- `{rule.name}` ({rule.severity}): {rule.title}"


def _rule(name: str) -> str:
    page = explaining.rule_page(name)
    if page is None:
        hint = suggestion(name, [entry.rule.name for entry in registered()])
        raise ResourceNotFoundError(f"no rule '{name[:80]}'; {hint or f'{SCHEME}://rules lists them'}")
    return with_proofs(page)


def _messages() -> str:
    lines = ["# Recognized messages\n"]
    lines += [
        f"- {SCHEME}://messages/{dialect}/{family}: {len(productions)}"
        for (dialect, family), productions in _families().items()
    ]
    return "\n".join(lines) + "\n"


def _family(dialect: str, family: str) -> str:
    productions = _families().get((dialect, family))
    if productions is None:
        raise ResourceNotFoundError(f"no messages '{dialect}/{family}'"[:200] + f"; {SCHEME}://messages lists them")
    return (
        "\n".join([f"# {dialect}: {family}", *(line for production in productions for line in _of_message(production))])
        + "\n"
    )


def _of_message(production: Production) -> Iterator[str]:
    yield f"\n## {production.name}\n"
    yield f"    {production.line}\n"
    yield production.says
    rule = f"; see the rule {production.rule}" if production.rule else ""
    yield f"\n{meaning.releases(production)}; {meaning.subsystems(production)}; event {production.event}{rule}"
    yield from (f"\n```text\n{sample}\n```" for sample in list(production.samples)[:1])


@cache
def _families() -> dict[tuple[str, str], list[Production]]:
    """The messages by dialect and family."""
    families: dict[tuple[str, str], list[Production]] = {}
    for file in files.shipped():
        for production in files.read(file.read_text(encoding="utf-8"), file.name):
            families.setdefault((production.dialect, production.family), []).append(production)
    return dict(sorted(families.items(), key=lambda entry: (entry[0][0] != "nccl", entry[0])))


async def _completed(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion:
    """Completions for an argument of a resource address."""
    dialect = (context.arguments or {}).get("dialect") if context else None
    choices = {
        "name": [entry.rule.name for entry in registered()],
        "dialect": list(dict.fromkeys(dialect for dialect, _ in _families())),
        "family": [family for of, family in _families() if dialect in (None, of)],
    }
    names = choices.get(argument.name, []) if isinstance(ref, ResourceTemplateReference) else []
    values = [name for name in names if name.startswith(argument.value.lower())]
    return Completion(values=values[:_MAX_COMPLETIONS], total=len(values), has_more=len(values) > _MAX_COMPLETIONS)
