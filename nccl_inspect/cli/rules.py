"""``nccl-inspect rules``: the list of rules."""

from __future__ import annotations

import json

import click
from tabulate import tabulate

from nccl_inspect.cli import shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.engine import CATEGORIES, Rule, registered
from nccl_inspect.report import Style
from nccl_inspect.report.columns import UNBOUNDED
from nccl_inspect.report.words import block
from nccl_inspect.util.records import picked

_EXAMPLES = """
Examples:
  nccl-inspect rules
  nccl-inspect rules --category gpudirect
  nccl-inspect rules --search 'efa tcp'
  nccl-inspect rules --format json -o rules.json
"""
_NAMES = ("name", "category", "severity", "title")
_BESIDE = 56
"""Columns that name, category and severity take beside the title."""
_MIN_TITLE = 20


@click.command(epilog=_EXAMPLES, short_help="List the rules.")
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
@formats(("table", "json"))
@shared.output_options
def command(categories: tuple[str, ...], search: str, form: str, out: writing.Output) -> None:
    """List the rules: name, category, usual severity and what is wrong when a rule finds something."""
    words = search.lower().split()
    rules = [entry.rule for entry in registered() if not categories or entry.rule.category in categories]
    rules = [rule for rule in rules if not words or _has_all(rule, words)]
    if not rules:
        raise NcclInspectError("no such rule", "use fewer words, or 'nccl-inspect rules' without options")
    if form == "json":
        text = json.dumps([picked(rule, *_NAMES) for rule in rules], indent=1)
    else:
        text = _table(rules, out.style, writing.columns(out.target, UNBOUNDED))
    out.write(text)


def _has_all(rule: Rule, words: list[str]) -> bool:
    text = f"{rule.name} {rule.title} {rule.page}".lower()
    return all(word in text for word in words)


def _table(rules: list[Rule], style: Style, whole: int) -> str:
    """One row for each rule; in a narrow terminal one paragraph."""
    width = whole - _BESIDE
    if width < _MIN_TITLE:
        lines = []
        for rule in rules:
            lines += block("", f"{rule.name} ({rule.category}, {rule.severity})", style, indent=0, hang=0)
            lines += block("", rule.title, style, indent=2, hang=0)
        return "\n".join(lines)
    rows = [[getattr(rule, name) for name in _NAMES] for rule in rules]
    head = ["rule", "category", "severity", "what is wrong"]
    return tabulate(rows, head, tablefmt="simple", maxcolwidths=[None, None, None, width])
