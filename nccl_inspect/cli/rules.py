"""``nccl-inspect rules``: what is looked for."""

from __future__ import annotations

import json
import shutil

import click
from tabulate import tabulate

from nccl_inspect.rules.engine import registered


@click.command(short_help="What is looked for.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def command(form: str) -> None:
    """The list of rules: name, category, usual severity and what is wrong when one finds something."""
    rules = [entry.rule for entry in registered()]
    if form == "json":
        names = ("name", "category", "severity", "title")
        click.echo(json.dumps([{name: getattr(rule, name) for name in names} for rule in rules], indent=1))
        return
    width = max(shutil.get_terminal_size((100, 24)).columns - 56, 20)
    table = [[rule.name, rule.category, rule.severity, rule.title] for rule in rules]
    head = ["rule", "category", "severity", "what is wrong"]
    click.echo(tabulate(table, head, tablefmt="simple", maxcolwidths=[None, None, None, width]))
