"""Compares the log messages in the source code of NCCL, or of a plugin, with what the grammar recognises.

::

    python tools/compare_source.py ~/nccl --rev v2.30.7-1 --list

Each format string is filled with plausible values; a format counts as recognised when the grammar knows one of the
messages. Formats without a word of their own (``%s``) are dynamic: what they print stands elsewhere. In the place of
the tree a shipped library will do.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from library_calls import library_calls
from source_calls import DIALECTS, Call, Dialect, calls, sources
from source_fill import Recogniser
from source_streams import stream_calls
from tabulate import tabulate

_EXCLUSIONS = Path(__file__).with_name("not_messages.txt")


@dataclass(frozen=True)
class Result:
    """Holds what became of one format."""

    call: Call
    verdict: str
    """``recognised``, ``unrecognised``, ``dynamic`` or ``excluded``."""
    reason: str = ""
    message: str = ""

    @property
    def group(self) -> tuple[str, str]:
        """Return the row of the table."""
        if self.call.level != "INFO":
            return self.call.level, "always"
        return "INFO", "default (INIT, ENV, BOOTSTRAP)" if self.call.is_default else "other"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status is 1 when less than ``--check`` per cent are recognised."""
    options = _options(arguments)
    found = collect(options.tree, options.rev, options.dialect)
    if not found:
        where = f"{options.tree} at {options.rev}" if options.rev else str(options.tree)
        sys.exit(f"compare_source: no log call of {options.dialect} in {where}; is --dialect right?")
    if options.new_since:
        old = {call.format for call in collect(options.tree, options.new_since, options.dialect)}
        found = [call for call in found if call.format not in old]
    if options.level:
        found = [call for call in found if call.level == options.level]
    if options.subsys:
        found = [call for call in found if options.subsys in call.subsystems]
    results = judge(found, options.dialect)
    shown = results if options.new_since else [result for result in results if result.verdict != "recognised"]
    print(_make_json(results) if options.format == "json" else _make_table(results, shown if options.list else []))
    worst = min((share for *_, share in _rows(results)), default=100.0)
    return int(options.check is not None and worst < options.check)


def collect(tree: Path, rev: str | None, dialect: str) -> list[Call]:
    """Return the distinct formats of a tree, each with the first place where it stands."""
    found: dict[tuple[str, bool, str], Call] = {}
    for call in _read(tree, rev, DIALECTS[dialect]):
        found.setdefault((call.level, call.is_default, call.format), call)
    return list(found.values())


def _read(tree: Path, rev: str | None, dialect: Dialect) -> Iterable[Call]:
    if tree.is_file():
        return library_calls(tree)
    return (calls if dialect.macros else stream_calls)(sources(tree, rev, dialect), dialect)


def judge(found: Sequence[Call], dialect: str) -> list[Result]:
    """Return what the grammar makes of each format."""
    recogniser = Recogniser([call.format for call in found if not call.is_dynamic], {dialect, "nccl"})
    excluded = exclusions(dialect)
    return [_judge(call, recogniser, excluded) for call in found]


def _judge(call: Call, recogniser: Recogniser, excluded: dict[str, str]) -> Result:
    if call.is_dynamic:
        return Result(call, "dynamic")
    for pattern, reason in excluded.items():
        if re.fullmatch(pattern, call.format, re.DOTALL):
            return Result(call, "excluded", reason)
    message = recogniser.message(call.format)
    return Result(call, "unrecognised" if message is None else "recognised", message=message or "")


def exclusions(dialect: str) -> dict[str, str]:
    """Return formats that are no messages, each with the reason: lines of ``dialect␉pattern␉reason``."""
    lines = _EXCLUSIONS.read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {pattern: reason for whose, pattern, reason in fields if whose in (dialect, "*")}


def _rows(results: Sequence[Result]) -> list[tuple[str, str, int, int, float]]:
    total = Counter(result.group for result in results if result.verdict in ("recognised", "unrecognised"))
    known = Counter(result.group for result in results if result.verdict == "recognised")
    return [(*group, total[group], known[group], 100 * known[group] / total[group]) for group in sorted(total)]


def _make_table(results: Sequence[Result], listed: Sequence[Result]) -> str:
    rows = [(*row[:4], f"{row[4]:.1f}") for row in _rows(results)]
    parts = [tabulate(rows, headers=["level", "subsystems", "messages", "recognised", "%"], disable_numparse=True)]
    apart = Counter(result.verdict for result in results)
    parts.append(f"{apart['dynamic']} dynamic formats, {apart['excluded']} excluded ones are not counted.")
    for verdict in ("unrecognised", "recognised", "dynamic", "excluded"):
        lines = [_describe_result(result) for result in listed if result.verdict == verdict]
        if lines:
            parts.append("\n".join([f"{verdict}:", *sorted(lines)]))
    return "\n\n".join(parts)


def _describe_result(result: Result) -> str:
    call = result.call
    text = json.dumps(call.format, ensure_ascii=False)
    reason = f"  ({result.reason})" if result.reason else ""
    return f"  {call.file}:{call.line} {call.level} {'|'.join(call.subsystems)} {text}{reason}".replace('  "', ' "')


def _make_json(results: Sequence[Result]) -> str:
    rows = [
        dict(zip(("level", "subsystems", "messages", "recognised", "percent"), row, strict=True))
        for row in _rows(results)
    ]
    formats = [
        {
            "verdict": result.verdict,
            "level": result.call.level,
            "subsystems": result.call.subsystems,
            "format": result.call.format,
            "file": result.call.file,
            "line": result.call.line,
            "message": result.message,
        }
        for result in results
    ]
    return json.dumps({"groups": rows, "formats": formats}, indent=2, ensure_ascii=False)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tree", type=Path, help="source tree, with --rev a git repository, or a libnccl.so.2")
    parser.add_argument("--rev", help="tag or commit to read from the repository instead of its files")
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="nccl", help="whose source it is")
    parser.add_argument("--level", choices=("INFO", "WARN", "VERSION"), help="only this level")
    parser.add_argument("--subsys", help="only this subsystem, such as NET")
    parser.add_argument("--list", action="store_true", help="name the formats that are not recognised")
    parser.add_argument("--new-since", metavar="TAG", help="only formats that this older tag of the repository has not")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--check", type=float, metavar="PERCENT", help="fail when a row of the table is below")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it in silence
    sys.exit(main())
