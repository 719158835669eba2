"""Options that select parts of a log; unknown names are errors that list the known ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from nccl_inspect.answers import selection
from nccl_inspect.cli import shared

_Command = TypeVar("_Command", bound=Callable[..., Any])


def communicator_option(default: str = "") -> Callable[[_Command], _Command]:
    """Add --communicator."""
    words = f"Only these communicators: name or glob. May be repeated. {default}".rstrip()
    return click.option("--communicator", "names", multiple=True, metavar="NAME", help=words)


def finding_option(words: str) -> Callable[[_Command], _Command]:
    """Add --finding; it becomes the argument ``rules``, the names of all rules that match."""

    def known(ctx: click.Context, _option: click.Parameter, patterns: tuple[str, ...]) -> frozenset[str]:
        return frozenset(() if ctx.resilient_parsing else selection.rules_known(patterns))

    return shared.rules_option("--finding", "rules", callback=known, help=f"{words}: name or glob.")


def place_options(of_ranks: str, on_hosts: str) -> Callable[[_Command], _Command]:
    """Add --rank and --host; they become the argument ``places``.

    Args:
        of_ranks: help of --rank: ``Only paths from or to these ranks``.
        on_hosts: help of --host.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def packed(wanted_ranks: tuple[str, ...], wanted_hosts: tuple[str, ...], **options: Any) -> object:
            return command(
                **options, places=selection.PlaceFilter(selection.ranges_of("rank", wanted_ranks), wanted_hosts)
            )

        named = f"{on_hosts}: name, glob or node-[01-16]."
        host = click.option("--host", "wanted_hosts", multiple=True, metavar="NAME", help=named)
        rank = click.option("--rank", "wanted_ranks", multiple=True, metavar="R", help=f"{of_ranks}: 3, 0-7 or 0-56:8.")
        return rank(host(cast(_Command, packed)))

    return decorate
