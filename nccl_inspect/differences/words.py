"""Two compared runs for people: what likely explains what, then all changes by area."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.differences import AREAS, Change, Difference, Explanation
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.report.words import block, paint, shortened, verdict_color
from nccl_inspect.rules.facts import count, listed
from nccl_inspect.text import printable

_SIGNS = {"new": "+", "gone": "-", "changed": "~"}
_COLORS = {"new": "warning", "gone": "info", "changed": "bold"}
_MAX_HOSTS = 3


def render(difference: Difference, style: Style) -> str:
    """The comparison; it fits any width from 40 columns."""
    parts = [
        _head(difference, style),
        _why(difference, style),
        *(_area(area, difference, style) for area in AREAS),
        _open(difference, style),
    ]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def _head(difference: Difference, style: Style) -> Iterator[str]:
    changes = len(difference.changes)
    if changes:
        yield from block("", f"DIFFERENT: {count(changes, 'change')}", style, indent=0, hang=0)
    else:
        limits = " as far as they can be compared" if difference.open else ""
        what = "versions, network, world, environment, communicators, paths and findings"
        yield from block("", f"SAME: no difference in {what}{limits}", style, indent=0, hang=0)
    for label, job in (("A", difference.a), ("B", difference.b)):
        first, *rest = block(label, printable(_run(job)), style, indent=0, hang=3)
        word = job.verdict.upper()
        yield first.replace(word, paint(word, verdict_color(job.verdict), style), 1)
        yield from rest
    if difference.renamed:
        names = shortened((f"{name} is {other}" for name, other in difference.renamed.items()), _MAX_HOSTS)
        text = f"hosts have other names in B and are compared by their ranks: {names}"
        yield from block("", printable(text), style, indent=0, hang=0)


def _run(job: Job) -> str:
    names = shortened([source.name for source in job.sources], 2)
    size = count(job.world_size, "rank") if job.world_size else "world size not in the log"
    hosts = count(len(job.hosts), "host")
    return f"{job.verdict.upper()}: {names}: {size} on {hosts}, NCCL {', '.join(job.nccl_versions) or 'unknown'}"


def _why(difference: Difference, style: Style) -> Iterator[str]:
    if difference.explanations:
        yield paint("what likely explains what", "bold", style)
    for chain in difference.explanations:
        steps = [list(map(_step, chain.causes)), *_waves(chain.findings), list(map(_step, chain.effects))]
        text = " -> ".join(_together(step) for step in steps if step)
        yield from block("", printable(text), style, indent=2, hang=0)
        for line in _proof(chain):
            for text in block("", printable(line), style, indent=4, hang=0):
                yield paint(text, "dim", style)


def _waves(findings: list[Change]) -> Iterator[list[str]]:
    """The findings of a chain: what follows from the same stands together, what follows from that behind it."""
    wave: list[Change] = []
    for change in findings:
        if any(cause.what in change.rules for cause in wave):
            yield list(map(_finding, wave))
            wave = []
        wave.append(change)
    yield list(map(_finding, wave))


def _together(words: list[str]) -> str:
    """Words that stand beside each other: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _step(change: Change) -> str:
    """A change within a chain."""
    what = f"{_pairs(change)} " if change.pairs else f"{change.what} "
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={change.before or change.after} is {change.kind}"
    if change.kind == "changed":
        return f"{what}{change.before} => {change.after}"
    return f"{what}{change.before or change.after} ({change.kind})"


def _finding(change: Change) -> str:
    return change.what if change.kind == "new" else f"{change.what} ({change.kind})"


def _proof(chain: Explanation) -> list[str]:
    """The line on which the chain stands."""
    lines = chain.findings[0].evidence
    shared = [line for cause in chain.causes for line in cause.evidence if line in lines]
    return [f"{line.source}:{line.line}: {line.text}" for line in (shared or lines)[:1]]


def _area(area: str, difference: Difference, style: Style) -> Iterator[str]:
    changes = difference.of(area)
    if changes:
        yield paint(area, "bold", style)
    for change in changes:
        sign = _SIGNS[change.kind]
        first, *rest = block(sign, printable(_words(change)), style, indent=2, hang=2)
        yield first.replace(sign, paint(sign, _COLORS[change.kind], style), 1)
        yield from rest


def _words(change: Change) -> str:
    if change.area == "paths":
        only = {"new": " only in B", "gone": " only in A"}.get(change.kind, "")
        return f"{_pairs(change)}: {_arrow(change)}{only}"
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={_arrow(change)}"
    if change.area == "verdict" or (change.area == "communicators" and change.kind != "changed"):
        return _arrow(change)
    if change.area == "findings" and change.kind == "new":
        where = f"; {change.evidence[0].source}:{change.evidence[0].line}" if change.evidence else ""
        return f"{change.what}: {change.after}{where}"
    return f"{change.what}: {_arrow(change)}"


def _arrow(change: Change) -> str:
    if change.kind == "changed":
        return f"{change.before} => {change.after}"
    return str(change.before or change.after)


def _pairs(change: Change) -> str:
    some = listed((f"{src}->{dst}" for src, dst in change.pairs), 3)
    scope = f" {change.what}" if change.what != "unknown" else ""
    return f"{count(len(change.pairs), 'pair')}{scope} ({some})"


def _open(difference: Difference, style: Style) -> Iterator[str]:
    if difference.open:
        yield paint("not compared", "bold", style)
    for text in difference.open:
        yield from block("", printable(text), style, indent=2, hang=0)
