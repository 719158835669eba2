"""``nccl-inspect rules``, ``completion`` and ``help``: the program about itself."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class
from tabulate import tabulate

from nccl_inspect.cli import COMPLETE_VARIABLE, cli, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.engine import CATEGORIES, list_rules
from nccl_inspect.report.tables import UNBOUNDED
from nccl_inspect.report.words import block
from nccl_inspect.util.records import pick_fields

_NAMES = ("name", "category", "severity", "title")
_BESIDE = 56  # columns that name, category and severity take beside the title
_MIN_TITLE = 20


@click.command(short_help="List the rules.")
@click.option(
    "--category",
    "categories",
    type=click.Choice(CATEGORIES, case_sensitive=False),
    multiple=True,
    metavar="NAME",
    help=f"Only rules of this category: {', '.join(CATEGORIES)}. May be repeated.",
)
@click.option(
    "--search", metavar="TEXT", default="", help="Only rules whose page has all words of TEXT, such as 'efa tcp'."
)
@shared.format_option(("table", "json"))
@shared.output_options
def rules(categories: tuple[str, ...], search: str, form: str, out: shared.Output) -> None:
    """List the rules: name, category, usual severity and what is wrong when a rule finds something.

    Examples:
      nccl-inspect rules
      nccl-inspect rules --category gpudirect
      nccl-inspect rules --search 'efa tcp'
      nccl-inspect rules --format json -o rules.json
    """
    words = search.lower().split()
    listed = [entry.rule for entry in list_rules() if not categories or entry.rule.category in categories]
    texts = {rule.name: f"{rule.name} {rule.title} {rule.page}".lower() for rule in listed} if words else {}
    listed = [rule for rule in listed if all(word in texts[rule.name] for word in words)]
    if not listed:
        raise NcclInspectError("no such rule", "use fewer words, or 'nccl-inspect rules' without options")
    rows = [pick_fields(rule, *_NAMES) for rule in listed]
    width = shared.output_width(out.target, UNBOUNDED) - _BESIDE
    if form == "json":
        text = json.dumps(rows, indent=1)
    elif width < _MIN_TITLE:
        lines = []
        for rule in listed:
            lines += block("", f"{rule.name} ({rule.category}, {rule.severity})", out.style, indent=0, hang=0)
            lines += block("", rule.title, out.style, indent=2, hang=0)
        text = "\n".join(lines)
    else:
        cells, head = [list(row.values()) for row in rows], ["rule", "category", "severity", "what is wrong"]
        text = tabulate(cells, head, tablefmt="simple", maxcolwidths=[None, None, None, width])
    out.write(text)


_SPLIT, _SPLIT_ONCE = 'string split ","', 'string split --max 1 ","'
"""How Click's script for fish splits a kind and its value: descriptions contain commas."""


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="bash|zsh|fish")
@shared.output_options
def completion(shell: str, out: shared.Output) -> None:
    """Print a script that makes the shell complete commands, options, rules, formats, platforms and files.

    Load it when the shell starts: from ~/.bashrc or ~/.zshrc, or as a file in ~/.config/fish/completions.

    Examples:
      nccl-inspect completion bash > ~/.nccl-inspect.bash
      eval "$(nccl-inspect completion zsh)"
    """
    out.write(completion_script(shell))


def completion_script(shell: str) -> str:
    """Return the script for a shell; it queries the installed program, so it stays valid when names are added."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(cli, {}, "nccl-inspect", COMPLETE_VARIABLE)
    return (source.source_template % source.source_vars()).replace(_SPLIT, _SPLIT_ONCE).strip()


@click.command(short_help="Print the help of a command.")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def help(ctx: click.Context, name: str | None) -> None:
    """Print the help of a command, like --help; without COMMAND, the list of commands.

    Examples:
      nccl-inspect help
      nccl-inspect help paths
    """
    program = ctx.find_root()
    assert isinstance(program.command, click.Group)
    if name is None:
        click.echo(program.get_help())
        return
    wanted = program.command.get_command(program, name)
    assert wanted is not None  # the group raises an error for unknown names
    click.echo(wanted.context_class(wanted, program, name).get_help())
