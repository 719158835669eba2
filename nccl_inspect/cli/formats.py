"""The option --format, and the formats that file suffixes imply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, TypeVar

import click
from click.core import ParameterSource

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SUFFIXES = {"md": "markdown", "prom": "prometheus", "xml": "junit", "gv": "dot", "htm": "html"}
"""Suffixes that differ from the name of the format."""
_TELLING = frozenset(
    (
        *("csv", "tsv", "xls", "xlsx", "ods", "parquet"),
        *("htm", "html", "md", "pdf", "svg", "png", "dot", "gv"),
        *("json", "jsonl", "ndjson", "yaml", "yml", "xml", "sarif", "prom"),
    )
)
"""Suffixes that state a file's format: plain text under such a name is a mistake."""


def formats(names: Iterable[str]) -> Callable[[_Command], _Command]:
    """Add --format; the default is the format of the suffix of FILE, else the first name."""
    choices = tuple(names)

    def named(ctx: click.Context, option: click.Parameter, value: str) -> str:
        if ctx.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            return value
        output = ctx.params.get("output", "-")
        suffix = PurePath(output).suffix.lower().removeprefix(".")
        name = _SUFFIXES.get(suffix, suffix)
        if suffix in _TELLING and name not in choices and not ctx.resilient_parsing:
            raise click.UsageError(
                f"{output}: {ctx.info_name} cannot write {suffix}, only {', '.join(choices)}; "
                "change the suffix, or choose one of these with --format"
            )
        return name if name in choices else value

    return click.option(
        "--format",
        "form",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        metavar="FORMAT",
        callback=named,
        help=f"Output format: {', '.join(choices)}. Without it, the suffix of FILE decides.",
    )
