"""The option --format, and the formats that file suffixes imply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from nccl_inspect.util.atomic_files import uncompressed

_Command = TypeVar("_Command", bound=Callable[..., Any])
_TELLING = frozenset(
    (
        *("csv", "tsv", "xls", "xlsx", "ods", "parquet"),
        *("htm", "html", "md", "pdf", "svg", "png", "dot", "gv"),
        *("json", "jsonl", "ndjson", "yaml", "yml", "xml", "sarif", "prom"),
    )
)
"""Suffixes that state a file's format: plain text under such a name is a mistake."""


def formats(names: Iterable[str], load: Callable[[str], object] | None = None) -> Callable[[_Command], _Command]:
    """Add --format; the default is the format of the suffix of FILE, else the first name.

    Args:
        names: of the formats.
        load: gives the module of a format, whose ``SUFFIXES`` are those that differ from its name.
    """
    choices = tuple(names)

    def named(ctx: click.Context, option: click.Parameter, value: str) -> str:
        if ctx.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            return value
        output = ctx.params.get("output", "-")
        suffix = PurePath(uncompressed(output)).suffix.lower().removeprefix(".")
        name = suffix if suffix in choices else _named_by(suffix, choices, load)
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


def _named_by(suffix: str, names: Iterable[str], load: Callable[[str], object] | None) -> str:
    """The format that a suffix belongs to; the suffix itself if it belongs to none."""
    own = (name for name in names if load and suffix in getattr(load(name), "SUFFIXES", ()))
    return next(own, suffix) if suffix else suffix
