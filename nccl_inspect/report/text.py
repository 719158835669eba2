"""The summary for people: verdict first, then the job, its paths, what was found and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, jobs
from nccl_inspect.report.digest import (
    accepted_causes,
    facts,
    folded,
    meaning,
    short_names,
    steps_under,
    verdict_line,
    where,
    who,
)
from nccl_inspect.report.tables import KIND_HEAD, aligned, by_kind
from nccl_inspect.report.words import block, paint, step_block, verdict_color
from nccl_inspect.rules import capture
from nccl_inspect.rules.facts import count
from nccl_inspect.text import cut, printable

_MAX_ERRORS = 5
_MAX_QUOTED = 300
"""Characters of a line of evidence; all with ``--verbose``."""


def render(job: Job, style: Style) -> str:
    """The summary; it fits any width from 40 columns."""
    return jobs.in_text(job, style, _single) if job.jobs else _single(job, style)


def _single(job: Job, style: Style) -> str:
    parts = [
        _verdict(job, style),
        _job(job, style),
        _paths(job, style),
        _findings(job, style),
        _suppressed(job, style),
        _errors(job, style),
        _open(job, style),
        _unknown(job, style),
    ]
    return "\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def brief(finding: Finding, job: Job, style: Style) -> list[str]:
    """A finding in few lines: what, the first fix and the first line of evidence."""
    return list(_finding(finding, style, short_names(job), in_brief=True))


def _verdict(job: Job, style: Style) -> Iterator[str]:
    if job.partial:
        lines = sum(source.lines for source in job.sources)
        yield f"partial: interrupted after {lines:,} {'line' if lines == 1 else 'lines'}"
    yield from headline(job, style)
    yield ""


def headline(job: Job, style: Style) -> Iterator[str]:
    """The verdict with its main reason."""
    word = paint(job.verdict.upper(), verdict_color(job.verdict), style)
    lines = block("", printable(verdict_line(job)), style, indent=0, hang=0)
    yield lines[0].replace(job.verdict.upper(), word, 1)
    yield from lines[1:]
    if place := where(job):
        yield from block("", printable(place), style, indent=0, hang=0)


def _job(job: Job, style: Style) -> Iterator[str]:
    for label, text in facts(job):
        yield from block(label, printable(text), style, indent=0, hang=13)
    yield ""


def _paths(job: Job, style: Style) -> Iterator[str]:
    if not len(job.paths):
        return
    rows = by_kind(job.paths)
    table = aligned(KIND_HEAD, rows)
    if max(map(len, table)) <= style.width:
        yield from table
    else:
        for scope, detail, pairs, gdr, channels, verdict in rows:
            text = f"{scope} {detail}: pairs {pairs}, GDR {gdr}, channels {channels}, {verdict}"
            yield from block("path", text, style, indent=0)
    if job.unplaced_lines:
        lines = count(job.unplaced_lines, "connection line")
        text = (
            f"{lines} could not be placed: they are cut off, or the log does not tell their communicator or its ranks"
        )
        yield from block("", text, style, indent=0, hang=0)
    yield ""


def _findings(job: Job, style: Style) -> Iterator[str]:
    under = folded(job.findings)
    names = short_names(job)
    for finding in job.findings:
        if finding.rule in under:
            continue
        yield from _finding(finding, style, names)
        for other in job.findings:
            if under.get(other.rule) == finding.rule:
                yield from _folded_finding(other, style, names, finding)
        for words in accepted_causes(finding, job):
            yield from block("because", printable(words), style)
        yield ""


def _suppressed(job: Job, style: Style) -> Iterator[str]:
    """What the user knows and accepts, each in one line with the reason."""
    for entry in job.suppressed:
        finding = entry.finding
        text = f"{finding.rule} ({finding.severity}): {finding.summary}; accepted: {entry.reason}"
        yield from block("suppressed", printable(text), style, indent=0, hang=12)
    if job.suppressed:
        yield ""


def _finding(finding: Finding, style: Style, names: dict[str, str], in_brief: bool = False) -> Iterator[str]:
    severity = finding.severity.upper()
    for line in block("", printable(f"{severity} {finding.rule} ({who(finding)})"), style, indent=0, hang=0):
        marked = line.replace(severity, paint(severity, finding.severity, style), 1)
        yield marked.replace(finding.rule, paint(finding.rule, "bold", style), 1)
    yield from block("what", printable(finding.summary), style)
    if finding.where:
        yield from block("where", printable(finding.where), style)
    if not in_brief:
        yield from block("cause", printable(finding.cause), style)
        yield from block("impact", printable(finding.impact), style)
        if finding.confirm:
            yield from block("confirm", printable(finding.confirm), style)
    for index, fix in enumerate(finding.fix[: 1 if in_brief else None]):
        yield from step_block("fix" if index == 0 else "", printable(fix), style)
    yield from _evidence(finding.evidence[: 1 if in_brief else None], style, names)


def _folded_finding(finding: Finding, style: Style, names: dict[str, str], lead: Finding) -> Iterator[str]:
    kind = "because" if finding.root else "effect"
    yield from block(kind, printable(f"{finding.rule} ({finding.confidence}): {finding.summary}"), style)
    if finding.where and finding.where != lead.where:
        yield from block("where", printable(finding.where), style)
    for fix in steps_under(finding, lead)[:2]:
        yield from step_block("", f"fix: {printable(fix)}", style)
    fresh = [line for line in finding.evidence if line not in lead.evidence]
    yield from _evidence(fresh, style, names, limit=2)


def _evidence(evidence: list[Evidence], style: Style, names: dict[str, str], limit: int = 3) -> Iterator[str]:
    for index, line in enumerate(evidence[: None if style.verbose else limit]):
        label = "" if index else "evidence"
        quoted = printable(line.text) if style.verbose else cut(printable(line.text), _MAX_QUOTED)
        text = f"{names[line.source]}:{line.line}: {quoted}"
        for part in block(label, text, style):
            yield paint(part, "dim", style)


def _errors(job: Job, style: Style) -> Iterator[str]:
    """Errors that no finding explains, so that none is passed over in silence."""
    errors = job.unexplained
    if not errors:
        return
    names = short_names(job)
    for text in block("", f"errors in the log that no rule explains ({len(errors)})", style, indent=0, hang=0):
        yield paint(text, "bold", style)
    for notice in errors[:_MAX_ERRORS]:
        line = notice.evidence[0]
        text = f"  {names[line.source]}:{line.line}: {printable(notice.message)} ({notice.count} x)"
        yield text if style.verbose else cut(text, max(style.width, 40))
        if means := meaning(notice):
            yield from block("means", means, style, indent=4, hang=7)
    if len(errors) > _MAX_ERRORS:
        yield f"  … and {len(errors) - _MAX_ERRORS} more"
    yield ""


def _open(job: Job, style: Style) -> Iterator[str]:
    if not job.not_judged:
        return
    yield paint("not judged", "bold", style)
    for entry in job.not_judged:
        yield from block(entry.rule, f"{printable(entry.reason)}", style, hang=len(entry.rule) + 2)
        yield from block("needs", printable(entry.needs), style, indent=4, hang=7)
    if command := capture.command(job):
        yield from block("to capture it", printable(command), style, indent=2, hang=15)


def _unknown(job: Job, style: Style) -> Iterator[str]:
    """With -v: lines that the grammar does not know, fit to be pasted into a report, and damaged ones."""
    if not style.verbose:
        return
    if job.unrecognised:
        yield paint("NCCL lines that the grammar does not know (please report them)", "bold", style)
        for entry in job.unrecognised:
            yield f"  {entry.count} x  {printable(entry.example.text)}"
    if job.damaged:
        yield paint("damaged lines that could not be repaired: no rule uses them", "bold", style)
        for line in job.damaged:
            yield printable(f"  {line.source}:{line.line}: {line.text}")
        left = sum(source.damaged_lines for source in job.sources) - len(job.damaged)
        if left > 0:
            yield f"  … and {left:,} more"
