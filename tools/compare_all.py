"""Compares the log messages of all releases of NCCL, RCCL and the plugins with what the grammar recognises.

::

    python tools/compare_all.py --repos ~/sources

Below the folder it looks for clones by their names (``nccl``, ``owner/nccl``, ``nccl.git``, bare or not) and reads the
tags. Of each series of releases only the last one is compared, unless ``--every`` asks for all. ``--write`` makes the
page of the documentation anew.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from compare_source import collect, judge
from tabulate import tabulate


@dataclass(frozen=True)
class Source:
    """Holds where the source of a dialect is, and which of its tags are releases."""

    dialect: str
    owner: str
    repository: str
    tags: str = ""
    """A pattern whose groups are the numbers of a release; empty where there are no releases: the newest commit."""
    series: int = 2
    """How many of the numbers make a series, of which the last release is shown."""
    since: tuple[int, ...] = (0,)
    """The first release that the grammar is made for."""
    folder: str = ""
    """Where the source is in a repository of several programs."""
    commits: tuple[tuple[str, str], ...] = ()
    """The last commit of each release, and its name, where there are no tags."""


SOURCES = (
    Source("nccl", "NVIDIA", "nccl", r"v(\d+)\.(\d+)\.(\d+)-(\d+)", since=(2, 4)),
    Source("aws-ofi-nccl", "aws", "aws-ofi-nccl", r"v(\d+)\.(\d+)\.(\d+)(?:-?aws)?", since=(1, 1)),
    Source("tcpxo", "google", "nccl-plugin-gpudirect-tcpxo", r"v(\d+)\.(\d+)\.(\d+)(?:-\d+)?", series=3),
    Source("rccl", "ROCm", "rccl", r"rocm-(\d+)\.(\d+)\.(\d+)", since=(5, 5)),
    Source(
        "rccl",
        "ROCm",
        "rocm-systems",
        folder="projects/rccl",
        commits=(
            ("f336ad51334d26b1988c1a68dc7ebf6285406f8d", "2.27.7"),
            ("77a7f7c88bc46571c2fb95267c074827e9c8d39a", "2.28.9"),
            ("9b76663986aaeeeda6d5c00b0e1cceb5f0c80586", "2.29.7"),
            ("bda93247ab59ead959f5536d528ee1e700690142", "2.30.4"),
        ),
    ),
    Source("hpcx", "Mellanox", "nccl-rdma-sharp-plugins"),
    Source("fastsocket", "google", "nccl-fastsocket"),
)


@dataclass(frozen=True)
class Row:
    """Holds how much of one release is recognised."""

    source: Source
    release: str
    date: str
    info: tuple[int, int]
    """Messages at INFO, and those of them that are recognised."""
    warn: tuple[int, int]

    def cells(self) -> tuple[str, ...]:
        """Return what the table shows of it."""
        return (self.release, self.date, *_share(self.info), *_share(self.warn))


HEADERS = ("release", "date", "INFO", "%", "WARN", "%")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; the exit status is 1 where a release is below ``--check``, 2 where nothing can be compared."""
    options = _options(arguments)
    sources = [source for source in SOURCES if options.dialect in (None, source.dialect)]
    rows = []
    for source in sources:
        tree = find(options.repos, source.repository)
        if tree is None:
            print(f"{source.dialect}: no clone of {source.owner}/{source.repository} there", file=sys.stderr)
            continue
        rows += [row(source, tree, revision, name) for revision, name in releases(source, tree, options.every)]
    if not rows:
        return 2
    print(_text(rows))
    if options.write:
        options.write.write_text(page(rows), encoding="utf-8")
    shares = [100 * known / total for one in rows for total, known in (one.info, one.warn) if total]
    return int(options.check is not None and min(shares, default=100.0) < options.check)


def find(folder: Path, name: str) -> Path | None:
    """Return a git repository of that name, up to three folders deep: ``nccl``, ``NVIDIA/nccl``, ``NVIDIA+nccl``."""
    wanted = re.compile(rf"(?:.*[/+])?{re.escape(name)}(?:\.git)?(?:/[^/]+)?")
    for depth in ("*", "*/*", "*/*/*"):
        for tree in sorted(folder.glob(depth)):
            if wanted.fullmatch(tree.relative_to(folder).as_posix()) and _is_repository(tree):
                return tree
    return None


def _is_repository(tree: Path) -> bool:
    return (tree / ".git").exists() or ((tree / "HEAD").is_file() and (tree / "objects").is_dir())


def releases(source: Source, tree: Path, every: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the revisions to compare, with names: the last of each series; without releases, the newest commit."""
    if source.commits:
        yield from source.commits
        return
    found = []
    for tag in _git(tree, "tag", "--list").split() if source.tags else []:
        if match := re.fullmatch(source.tags, tag):
            numbers = tuple(map(int, match.groups()))
            if numbers >= source.since:
                found.append((numbers, tag))
    last = {numbers if every else numbers[: source.series]: tag for numbers, tag in sorted(found)}
    yield from ((tag, tag) for tag in last.values())
    if not last:
        yield "HEAD", _git(tree, "rev-parse", "--short=7", "HEAD").strip()


def row(source: Source, tree: Path, revision: str, name: str) -> Row:
    """Return what the grammar makes of one release."""
    total: Counter[str] = Counter()
    known: Counter[str] = Counter()
    where = f"{revision}:{source.folder}" if source.folder else revision
    for result in judge(collect(tree, where, source.dialect), source.dialect):
        if result.verdict in ("recognised", "unrecognised"):
            level = "INFO" if result.call.level == "INFO" else "WARN"  # VERSION is always shown, too
            total[level] += 1
            known[level] += result.verdict == "recognised"
    date = _git(tree, "log", "-1", "--format=%cs", revision).strip()
    return Row(source, name, date, (total["INFO"], known["INFO"]), (total["WARN"], known["WARN"]))


def _git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True, text=True).stdout


def _share(counts: tuple[int, int]) -> tuple[str, str]:
    total, known = counts
    return str(total), f"{100 * known / total:.1f}" if total else "-"


def _text(rows: Iterable[Row]) -> str:
    cells = [(one.source.dialect, *one.cells()) for one in rows]
    return tabulate(cells, headers=("dialect", *HEADERS), disable_numparse=True)


def page(rows: Sequence[Row]) -> str:
    """Return the page of the documentation."""
    today = datetime.now(UTC).date().isoformat()
    parts = [_HEAD.format(today=today)]
    for source in SOURCES:
        mine = [one for one in rows if one.source == source]
        if mine:
            where = f"{source.owner}/{source.repository}"
            table = tabulate([one.cells() for one in mine], headers=HEADERS, tablefmt="pipe", disable_numparse=True)
            title = f"{source.dialect} in {source.repository}" if source.folder else source.dialect
            parts.append(f"## {title}\n\nSource: <https://github.com/{where}>.\n\n{table}")
    return "\n\n".join(parts) + "\n"


_HEAD = """<!-- Written by tools/compare_all.py; run it again instead of editing. -->

# What is recognised of each release

How many of the messages in the source code of a release the grammar recognises, counted on {today} with
`python tools/compare_all.py --repos ~/sources --write docs/explanation/coverage.md`. Each format string is filled with
plausible values, and counts where one of the messages is recognised by its own words: see
[tools/README.md](../../tools/README.md#what-recognised-means). INFO are the messages that `NCCL_DEBUG=INFO` shows, with
all subsystems; WARN are warnings and what is always shown. Formats without words (`%s`) are not
counted. Shown is the last release of each series.

The libraries of NCCL 2.31 and 2.32 are read as well, without source: see [what differs between releases](versions.md).
Messages of programs without public source (UCX's logger, gIB, the tuner and the guest config checker of Google) can
only be known from logs."""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repos", type=Path, required=True, metavar="DIR", help="folder with clones and their tags")
    parser.add_argument(
        "--dialect", choices=list(dict.fromkeys(source.dialect for source in SOURCES)), help="only this one"
    )
    parser.add_argument("--every", action="store_true", help="every release, not the last one of each series only")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page of the documentation, too")
    parser.add_argument("--check", type=float, metavar="PERCENT", help="fail when a release is below")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
