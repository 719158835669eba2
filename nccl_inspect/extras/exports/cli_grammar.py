"""``nccl-inspect grammar``: the known messages, and the grammar for other programs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import click
from tabulate import tabulate

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras import exports as grammar_exports
from nccl_inspect.grammar import files
from nccl_inspect.scanning import meaning
from nccl_inspect.util import atomic_files
from nccl_inspect.util.grouping import group_values


@click.command(short_help="List known messages; export the grammar for lnav and as JSON.")
@click.option(
    "--dialect", "dialects", multiple=True, metavar="NAME", help="Only these dialects: name or glob, such as tcpxo."
)
@click.option(
    "--export",
    "export",
    type=click.Choice(grammar_exports.names()),
    metavar="FORMAT",
    help=f"Export the grammar for another program: {', '.join(grammar_exports.names())}.",
)
@click.option(
    "--out",
    metavar="PATH",
    type=shared.FILE,
    help="Write to this file, or into this folder, instead of standard output.",
)
def command(dialects: tuple[str, ...], export: str | None, out: str | None) -> None:
    """Count the recognized messages by dialect and family, list those of a dialect, or export them.

    lnav: a format with fields and SQL tables. json: every message with patterns, fields, releases and samples.

    Examples:
      nccl-inspect grammar
      nccl-inspect grammar --dialect tcpxo
      nccl-inspect grammar --export lnav --out nccl_log.json && lnav -i nccl_log.json
      nccl-inspect grammar --export json | jq '.messages[].name'
    """
    texts = ((file.read_text(encoding="utf-8"), file.name) for file in files.list_files())
    productions = [production for text in texts for production in files.read(*text)]
    dialect_names = sorted({production.dialect for production in productions})
    for wanted in dialects:
        if not any(fnmatchcase(name, wanted) for name in dialect_names):
            raise NcclInspectError(f"no dialect '{wanted}'", f"choose from {', '.join(dialect_names)}")
    if dialects:
        productions = [one for one in productions if any(fnmatchcase(one.dialect, wanted) for wanted in dialects)]
    if export is None:
        if out is not None:
            raise click.UsageError("--out needs --export; name the format, such as --export lnav")
        if dialects:
            head: tuple[str, ...] = ("message", "event", "releases", "shape")
            rows: list[tuple[object, ...]] = [
                (entry.name, entry.event, meaning.releases(entry), entry.line) for entry in productions
            ]
        else:
            head = ("dialect", "family", "messages", "events")
            families = group_values(((entry.dialect, entry.family), entry) for entry in productions)
            counts = {**families, ("all", ""): productions}
            rows = [(*key, len(own), len({entry.event for entry in own})) for key, own in counts.items()]
        listed = tabulate(rows, head, tablefmt="simple", disable_numparse=bool(dialects))
        shared.Output().write(listed)
        return
    format_ = grammar_exports.load(export)
    written = format_.export(productions)
    if out is None or out in atomic_files.STDOUT:
        shared.Output().write(written)
        return
    target = Path(out) / format_.FILE if Path(out).is_dir() else Path(out)
    with atomic_files.open_replacement(str(target), "--out") as file:
        file.write(written.encode())
    print_stderr(f"{target}: {format_.USE.format(out=target)}")
