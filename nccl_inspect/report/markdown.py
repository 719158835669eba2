"""Markdown for an issue or a pull request, as GitHub and GitLab show it.

All that comes from the log is escaped or stands in code: it must neither look like something of the report's own, nor
call people (``@name``) or refer to issues (``#1``).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from nccl_inspect._version import __version__
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
from nccl_inspect.report.tables import KIND_HEAD, by_kind
from nccl_inspect.rules import capture
from nccl_inspect.rules.facts import count
from nccl_inspect.rules.remedies import is_sentence
from nccl_inspect.text import cut, printable

_MAX_LINE = 500
"""Characters of a line of evidence, unless all is wanted: an issue takes 65,536 in all."""
_MAX_ERRORS = 5
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|~&$#]")
_CALLS = re.compile(r"(\\?[@#]|\bGH-)(?=\w)")
_BEGINS_BLOCK = re.compile(r"^(\d*)([-+=.)])")
"""What begins a list or underlines a heading, at the begin of a paragraph."""


def render(job: Job, style: Style) -> str:
    """Verdict, facts, paths, findings with their evidence folded away, and what is left open."""
    if job.jobs:
        return "\n\n".join(_jobs(job, style)) + "\n"
    return _single(job, style)


def _jobs(job: Job, style: Style) -> Iterator[str]:
    """Several jobs: a table of all, then the worst few."""
    yield f"# {_plain(jobs.headline(job))}"
    yield f"Worst: {_plain(jobs.worst(job))}"
    yield _table(jobs.HEAD, [tuple(map(_plain, row)) for row in jobs.rows(job.jobs[: jobs.MAX_ROWS])])
    if more := jobs.left_out(job):
        yield _plain(more)
    for one in jobs.details(job):
        assert one.detail is not None
        yield f"# {_plain(jobs.title(one))}"
        yield _single(one.detail, style).rstrip("\n")
    if more := jobs.others(job):
        yield _plain(more)


def _single(job: Job, style: Style) -> str:
    parts = [_head(job), _paths(job), _findings(job, style), _suppressed(job), _errors(job, style), _open(job), _foot()]
    return "\n\n".join(text for part in parts for text in part) + "\n"


def _head(job: Job) -> Iterator[str]:
    partial = " (partial: the reading was interrupted)" if job.partial else ""
    yield f"## {_plain(verdict_line(job))}{partial}"
    if place := where(job):
        yield f"**{_plain(place)}**"
    told: list[list[str]] = []
    for label, text in facts(job):
        if label:
            told.append([label, text])
        else:
            told[-1][1] += f", {text}"
    yield _table(("", ""), [(f"**{label}**", _plain(text)) for label, text in told])


def _paths(job: Job) -> Iterator[str]:
    if len(job.paths):
        yield "### Paths"
        yield _table(KIND_HEAD, [tuple(map(_plain, row)) for row in by_kind(job.paths)])
    if job.unplaced_lines:
        yield f"{count(job.unplaced_lines, 'connection line')} could not be placed."


def _findings(job: Job, style: Style) -> Iterator[str]:
    under = folded(job.findings)
    names = short_names(job)
    leads = [finding for finding in job.findings if finding.rule not in under]
    if leads:
        yield "### Findings"
    for finding in leads:
        yield from _finding(finding, style, names)
        for other in job.findings:
            if under.get(other.rule) == finding.rule:
                yield from _folded(other, style, names, finding)
        for words in accepted_causes(finding, job):
            yield f"**Because** {_plain(words)}"


def _finding(finding: Finding, style: Style, names: dict[str, str]) -> Iterator[str]:
    yield f"#### {finding.severity.upper()} `{finding.rule}` ({_plain(who(finding))})"
    yield _BEGINS_BLOCK.sub(r"\1\\\2", _plain(finding.summary))
    if finding.where:
        yield f"**Where:** {_plain(finding.where)}"
    yield f"**Cause:** {_plain(finding.cause)}"
    yield f"**Impact:** {_plain(finding.impact)}"
    if finding.confirm:
        yield f"**Confirm:** {_plain(finding.confirm)}"
    if finding.fix:
        yield "**Fix:**"
        yield "\n".join(map(_step, finding.fix))
    yield from _evidence(finding.evidence, style, names)


def _folded(finding: Finding, style: Style, names: dict[str, str], lead: Finding) -> Iterator[str]:
    """A cause or an effect of the finding before."""
    kind = "Because" if finding.root else "Effect"
    yield f"**{kind}** `{finding.rule}` ({finding.confidence}): {_plain(finding.summary)}"
    if finding.where and finding.where != lead.where:
        yield f"**Where:** {_plain(finding.where)}"
    if steps := steps_under(finding, lead)[:2]:
        yield "\n".join(map(_step, steps))
    yield from _evidence([line for line in finding.evidence if line not in lead.evidence], style, names)


def _evidence(evidence: list[Evidence], style: Style, names: dict[str, str]) -> Iterator[str]:
    lines = [f"{names[line.source]}:{line.line}: {line.text}" for line in evidence]
    if lines:
        yield _details(f"Evidence: {count(len(lines), 'line')}", lines, style)


def _suppressed(job: Job) -> Iterator[str]:
    if job.suppressed:
        yield "### Accepted"
        yield "\n".join(
            f"- `{entry.finding.rule}` ({entry.finding.severity}): {_plain(entry.finding.summary)}; "
            f"accepted: {_plain(entry.reason)}"
            for entry in job.suppressed
        )


def _errors(job: Job, style: Style) -> Iterator[str]:
    """Errors that no finding explains, so that none is passed over in silence."""
    if not job.unexplained:
        return
    names = short_names(job)
    shown = [(notice.evidence[0], notice) for notice in job.unexplained[: None if style.verbose else _MAX_ERRORS]]
    lines = []
    for line, notice in shown:
        lines.append(f"{names[line.source]}:{line.line}: {notice.message} ({notice.count} x)")
        lines += [f"    means: {means}"] if (means := meaning(notice)) else []
    more = len(job.unexplained) - len(shown)
    lines += [f"… and {more} more"] if more else []
    yield _details(f"Errors in the log that no rule explains: {len(job.unexplained)}", lines, style)


def _open(job: Job) -> Iterator[str]:
    if job.not_judged:
        yield "### Not judged"
        yield "\n".join(
            f"- `{question.rule}`: {_plain(question.reason)}. Needs: {_plain(question.needs)}"
            for question in job.not_judged
        )
        if command := capture.command(job):
            yield f"To capture it: {_code(command)}"


def _foot() -> Iterator[str]:
    yield f"<sub>nccl-inspect {__version__}</sub>"


def _details(title: str, lines: Iterable[str], style: Style) -> str:
    """Lines of the log that are shown when asked for; the fence is longer than any in them."""
    text = "\n".join(printable(line) if style.verbose else cut(printable(line), _MAX_LINE) for line in lines)
    fence = "`" * max(3, _ticks(text) + 1)
    return f"<details><summary>{html.escape(title)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _plain(text: str) -> str:
    """Text in which nothing is markup, a mention or a reference."""
    escaped = _SPECIAL.sub(r"\\\g<0>", printable(text).strip())
    return _CALLS.sub(r"\1<!-- -->", escaped)


def _step(step: str) -> str:
    """A step as an item of a list: what can be pasted as code."""
    return f"- {_plain(step) if is_sentence(step) else _code(step)}"


def _code(text: str) -> str:
    """A code span that can be copied as it is."""
    text = printable(text)
    ticks = "`" * (_ticks(text) + 1)
    space = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _ticks(text: str) -> int:
    """The longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
