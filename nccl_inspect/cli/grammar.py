"""``nccl-inspect grammar``: the known messages, and the grammar for other programs."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

import click
from tabulate import tabulate

from nccl_inspect import grammar_exports
from nccl_inspect.cli import print_stderr, shared, writing
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import files
from nccl_inspect.grammar.production import Production
from nccl_inspect.scanning import meaning
from nccl_inspect.util import atomic_files
from nccl_inspect.util.grouping import grouped

_EXAMPLES = """
Examples:
  nccl-inspect grammar
  nccl-inspect grammar --dialect tcpxo
  nccl-inspect grammar --export lnav --out nccl_log.json && lnav -i nccl_log.json
  nccl-inspect grammar --export textmate --out build/nccl-log
  nccl-inspect grammar --export grok > patterns/nccl
  nccl-inspect grammar --export json | jq '.messages[].name'
"""


@click.command(epilog=_EXAMPLES, short_help="List known messages; export the grammar for lnav, editors and collectors.")
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
    help="Write to this file, or to this folder if there are several files, instead of standard output.",
)
def command(dialects: tuple[str, ...], export: str | None, out: str | None) -> None:
    """Count the recognized messages by dialect and family, list those of a dialect, or export them.

    lnav: a format with fields and SQL tables. textmate: a Visual Studio Code extension. grok: patterns for Logstash and
    Elasticsearch. vector: a remap program. json: every message with patterns, fields, releases and samples.
    """
    productions = _chosen(dialects)
    if export is None:
        if out is not None:
            raise click.UsageError("--out needs --export; name the format, such as --export lnav")
        listed = _messages(productions) if dialects else _families(productions)
        writing.write_lines(listed.split("\n"), "-")
        return
    format_ = grammar_exports.load(export)
    written = format_.export(productions)
    if out is None or out in atomic_files.STDOUT:
        main, *others = written
        writing.write_lines(written[main].removesuffix("\n").split("\n"), "-")
        if others and sys.stdout.isatty():
            print_stderr(f"this is {main}; --out DIR writes {', '.join(others)} as well")
        return
    target = _write(written, Path(out))
    print_stderr(f"{target}: {format_.USE.format(out=target)}")


def _chosen(dialects: tuple[str, ...]) -> list[Production]:
    """All productions, or those of some dialects."""
    productions = [
        production for file in files.shipped() for production in files.read(file.read_text(encoding="utf-8"), file.name)
    ]
    dialect_names = sorted({production.dialect for production in productions})
    for wanted in dialects:
        if not any(fnmatchcase(name, wanted) for name in dialect_names):
            raise NcclInspectError(f"no dialect '{wanted}'", f"choose from {', '.join(dialect_names)}")
    return [
        entry for entry in productions if not dialects or any(fnmatchcase(entry.dialect, wanted) for wanted in dialects)
    ]


def _families(productions: list[Production]) -> str:
    counts = grouped(((production.dialect, production.family), production) for production in productions)
    rows = [(*key, len(own), len({entry.event for entry in own})) for key, own in counts.items()]
    rows.append(("all", "", len(productions), len({entry.event for entry in productions})))
    return tabulate(rows, ("dialect", "family", "messages", "events"), tablefmt="simple")


def _messages(productions: list[Production]) -> str:
    rows = [
        (production.name, production.event, meaning.releases(production), production.line) for production in productions
    ]
    return tabulate(rows, ("message", "event", "releases", "shape"), tablefmt="simple", disable_numparse=True)


def _write(written: dict[str, str], out: Path) -> Path:
    """Write one file under the given name, several into a folder; return the path written."""
    if len(written) == 1 and not out.is_dir():
        _replace(out, next(iter(written.values())))
        return out
    if out.exists() and not out.is_dir():
        raise NcclInspectError(f"{out}: {len(written)} files do not fit into one file", "name a folder with --out")
    for name, text in written.items():
        path = out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NcclInspectError(f"{path.parent}: {error.strerror}", "check the folder given with --out") from None
        _replace(path, text)
    return out / next(iter(written)) if len(written) == 1 else out


def _replace(path: Path, text: str) -> None:
    with atomic_files.replacing(str(path), "--out") as file:
        file.write(text.encode())
