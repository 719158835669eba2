"""The report for people, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate

from nccl_inspect.extras.fleet.report import drained
from nccl_inspect.report import Style
from nccl_inspect.report.words import block, paint
from nccl_inspect.util.text import cut, printable
from nccl_inspect.util.wording import count

_MOST_DAYS, _MOST_CLEARED, _MOST_ROWS = 14, 4, 40
_MIN_TEXT = 40
_LEAST_CHANCE = 1e-9
"""The least probability that is worth a number."""


def render(document: dict[str, Any], style: Style) -> str:
    """The report: who is suspected, what to drain, causes, what is new, and the last days."""
    return "\n".join(_lines(document, style)) + "\n"


def _lines(document: dict[str, Any], style: Style) -> Iterator[str]:
    verdicts = ", ".join(f"{n:,} {name}" for name, n in reversed(document["verdicts"].items()) if n)
    head = paint("FLEET:", "bold", style)
    if not document["jobs"]:
        yield f"{head} no job"
        return
    span = f"{document['first'][:10]} to {document['last'][:10]}"
    yield f"{head} {document['jobs']:,} jobs on {document['hosts']:,} hosts, {span}"
    yield f"  {verdicts}; {rate(document['bad'])} are bad"
    yield from ("", paint(f"suspects ({len(document['suspects'])})", "bold", style))
    if not document["suspects"]:
        yield from block(
            "", "none: no host, NIC, GPU, image, release or setting has more bad jobs than chance explains", style
        )
    for suspect in document["suspects"]:
        yield from _suspect(suspect, style)
    if hosts := drained(document):
        yield from ("", paint("nodes to drain", "bold", style))
        for suspect in hosts:
            part = "" if suspect["kind"] == "host" else f"   (only its {suspect['kind']}: {suspect['name']})"
            yield f"  {printable(suspect['host'])}{part}"
    if document["changes"]:
        yield from ("", paint("worse after a change", "bold", style))
        rows = [
            (
                one["kind"],
                one["name"],
                one["since"][:10],
                rate(one),
                one["before"]["name"],
                rate(one["before"]),
                one["rule"],
            )
            for one in document["changes"]
        ]
        yield from _table(("", "now", "since", "bad", "before", "bad", "most by"), rows)
    yield from ("", paint("most frequent causes of bad jobs", "bold", style))
    causes = [(one["rule"], one["bad"], rate(one), one["first"][:10], one["last"][:10]) for one in document["causes"]]
    yield from _table(("rule", "jobs", "of all jobs", "first", "last"), causes)
    if document["new"]:
        yield from ("", paint("new in the last week", "bold", style))
        new = [(one["kind"], one["name"], one["first"][:10], f"{one['bad']}/{one['jobs']}") for one in document["new"]]
        yield from _table(("", "name", "first", "bad/jobs"), new)
    days = document["days"][-_MOST_DAYS:]
    yield from ("", paint(f"last {count(len(days), 'day')}", "bold", style))
    names = [name for name in document["verdicts"] if document["verdicts"][name]]
    yield from _table(("day", *names, "bad"), [(day["day"], *(day[name] for name in names), rate(day)) for day in days])
    if document["by"]:
        shown = document["by"]["rows"][:_MOST_ROWS]
        yield from ("", paint(f"by {document['by']['kind']}, worst first", "bold", style))
        table = [
            (one["name"], f"{one['bad']}/{one['jobs']}", rate(one), one["named"], "SUSPECT" * one["suspect"])
            for one in shown
        ]
        yield from _table(("name", "bad/jobs", "rate", "named", ""), table)


def _suspect(suspect: dict[str, Any], style: Style) -> Iterator[str]:
    numbers = f"{suspect['bad']:,} of {suspect['jobs']:,} jobs bad, {rate(suspect)}"
    yield f"  {paint(suspect['kind'], 'warning', style)} {printable(suspect['name'])}: {numbers}"
    others = f"{suspect['others']:.1%} without it; {suspect['expected']:g} expected by size and day"
    yield from block("", f"{others}; by chance: {chance(suspect)}", style, 4, 8)
    if suspect["named"]:
        yield from block("named", f"by findings of {count(suspect['named'], 'bad job')}", style, 4, 8)
    if suspect["rules"]:
        yield from block(
            "most by", ", ".join(f"{one['rule']} ({one['jobs']:,})" for one in suspect["rules"]), style, 4, 8
        )
    if suspect["together"]:
        yield from block(
            "or", f"{', '.join(map(printable, suspect['together']))}: always in the same jobs", style, 4, 8
        )
    if cleared := [printable(one["name"]) for one in suspect["cleared"]]:
        more = f" and {len(cleared) - _MOST_CLEARED} more" if len(cleared) > _MOST_CLEARED else ""
        names = ", ".join(cleared[:_MOST_CLEARED]) + more
        yield from block("cleared", f"{names}: bad only in jobs that they shared with it", style, 4, 8)
    for proof in suspect["evidence"]:
        where = f"{proof['source']}:{proof['line']}" if proof["source"] else "no line"
        words = (
            f"{proof['start'][:16]} job {proof['job']} ({proof['name']}): {proof['rule'] or proof['verdict']}, {where}"
        )
        yield from block("proof", printable(words), style, 4, 8)
        if proof["text"]:
            yield " " * 12 + cut(printable(proof["text"]), max(style.width - 12, _MIN_TEXT))


def chance(suspect: dict[str, Any]) -> str:
    """The probability that chance did it, in words."""
    return f"{suspect['chance']:.1g}" if suspect["chance"] > _LEAST_CHANCE else f"below {_LEAST_CHANCE:g}"


def rate(counted: dict[str, Any]) -> str:
    """A rate with its interval, in words."""
    return f"{counted['rate']:.1%} ({counted['low']:.1%}-{counted['high']:.1%})"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    cells = [[printable(str(value if value is not None else "-")) for value in row] for row in rows]
    table = tabulate(cells, head, tablefmt="plain", disable_numparse=True)
    yield from (f"  {line}".rstrip() for line in table.splitlines())
