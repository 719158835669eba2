"""Markdown for an issue or a pull request, as GitHub and GitLab show it.

Text from the log is escaped or quoted as code: it must not look like part of the report, mention people (``@name``) or
refer to issues (``#1``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect._version import __version__
from nccl_inspect.judging import remedies
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest, jobs
from nccl_inspect.report.tables import KIND_HEAD, rows_by_kind
from nccl_inspect.report.words import code_span, escape_markdown, folded_lines, markdown_table, step_item
from nccl_inspect.util.wording import count

SUFFIXES = ("md",)
_MAX_ERRORS = 5
_BEGINS_BLOCK = re.compile(r"^(\d*)([-+=.)])")
"""What starts a list or underlines a heading, at the start of a paragraph."""


def render(job: Job, style: Style) -> str:
    """Return verdict, facts, paths, findings with folded evidence, and open questions."""
    return "\n\n".join(_jobs(job, style) if job.jobs else _paragraphs(job, style)) + "\n"


def _jobs(job: Job, style: Style) -> Iterator[str]:
    yield f"# {escape_markdown(jobs.headline(job))}"
    yield f"Worst: {escape_markdown(jobs.describe_worst(job))}"
    yield markdown_table(jobs.HEAD, [tuple(map(escape_markdown, row)) for row in jobs.rows(job.jobs[: jobs.MAX_ROWS])])
    if more := jobs.describe_left_out(job):
        yield escape_markdown(more)
    for standing in jobs.details(job):
        assert standing.detail is not None
        yield f"# {escape_markdown(jobs.title(standing))}"
        yield from _paragraphs(standing.detail, style)
    if more := jobs.list_others(job):
        yield escape_markdown(more)


def _paragraphs(job: Job, style: Style) -> Iterator[str]:
    partial = " (partial: reading was interrupted)" if job.partial else ""
    first = digest.make_head(job, is_now=True)
    yield f"## {escape_markdown(first.headline)}{partial}"
    if lines := digest.label_lines(first):
        marks = {"do": code_span}  # commands as code
        marked = [(k, marks.get("" if remedies.is_sentence(text) else k, escape_markdown)(text)) for k, text in lines]
        yield "\n".join(f"- **{label}:** {text}" for label, text in marked)
    rows: list[list[str]] = []
    for label, text in digest.list_facts(job):
        if label:
            rows.append([label, text])
        else:
            rows[-1][1] += f", {text}"
    yield markdown_table(("", ""), [(f"**{label}**", escape_markdown(text)) for label, text in rows])
    if digest.has_story(job):
        yield "### What happened"
        told = digest.story_lines(job)
        places = [f" ({code_span(line.where)})" if line.where else "" for line in told]
        numbered = enumerate(zip(told, places, strict=True), 1)
        yield "\n".join(f"{number}. {escape_markdown(line.text)}{place}" for number, (line, place) in numbered)
    if len(job.paths):
        yield "### Paths"
        yield markdown_table(KIND_HEAD, [tuple(map(escape_markdown, row)) for row in rows_by_kind(job.paths)])
    if job.unplaced_lines:
        yield f"{count(job.unplaced_lines, 'connection line')} could not be placed."
    yield from _findings(job, style)
    if job.suppressed:
        yield "### Accepted"
        yield "\n".join(
            f"- `{entry.finding.rule}` ({entry.finding.severity}): {escape_markdown(entry.finding.summary)}; "
            f"accepted: {escape_markdown(entry.reason)}"
            for entry in job.suppressed
        )
    if job.unexplained:
        yield _list_errors(job, style)
    if job.not_judged:
        yield "### Not judged"
        yield "\n".join(
            f"- `{question.rule}`: {escape_markdown(question.reason)}. Needs: {escape_markdown(question.needs)}"
            for question in job.not_judged
        )
        if command := remedies.capture_command(job):
            yield f"To capture it: {code_span(command)}"
    yield f"<sub>nccl-inspect {__version__}</sub>"


def _findings(job: Job, style: Style) -> Iterator[str]:
    outline, names = digest.outline_findings(job, style.verbose), digest.short_names(job)
    shown = digest.AlreadyShown(style.verbose)
    if not all(one.is_brief for one in outline):
        yield "### Findings"
    for finding, _, untold, accepted, is_brief in outline:
        if is_brief:
            continue
        yield from _finding(finding, style, names, shown)
        for other in untold:
            kind = "Because" if other.rule in finding.because else "Effect"
            yield f"**{kind}** `{other.rule}` ({other.confidence}): {escape_markdown(other.summary)}"
            if other.where and other.where != finding.where:
                yield f"**Where:** {escape_markdown(other.where)}"
            if steps := shown.steps(other, digest.list_own_steps(other, finding), 2):
                yield "\n".join(map(step_item, steps))
            yield from _evidence([line for line in other.evidence if line not in finding.evidence], style, names)
        for words in accepted:
            yield f"**Because** {escape_markdown(words)}"
    if others := [member for one in outline if one.is_brief for member in (one.finding, *one.nested)]:
        yield f"### Also found ({digest.MORE})"
        yield "\n".join(f"- {escape_markdown(digest.one_line(finding))}" for finding in others)


def _finding(finding: Finding, style: Style, names: dict[str, str], shown: digest.AlreadyShown) -> Iterator[str]:
    yield f"#### {finding.severity.upper()} `{finding.rule}` ({escape_markdown(digest.describe_subject(finding))})"
    yield _BEGINS_BLOCK.sub(r"\1\\\2", escape_markdown(finding.summary))
    if finding.where:
        yield f"**Where:** {escape_markdown(finding.where)}"
    yield f"**Cause:** {escape_markdown(finding.cause)}"
    sources = f" [^{finding.rule}]" if finding.references else ""
    yield f"**Impact:** {escape_markdown(finding.impact)}{sources}"
    if finding.confirm:
        yield f"**Confirm:** {escape_markdown(finding.confirm)}"
    if finding.fix:
        yield "**Fix:**"
        yield "\n".join(map(step_item, shown.steps(finding, finding.fix)))
    yield from _evidence(finding.evidence, style, names)
    if finding.references:
        yield f"[^{finding.rule}]: {escape_markdown('; '.join(map(str, finding.references)))}"


def _evidence(evidence: list[Evidence], style: Style, names: dict[str, str]) -> Iterator[str]:
    lines = [f"{names[line.source]}:{line.line}: {line.text}" for line in evidence]
    if lines:
        yield folded_lines(f"Evidence: {count(len(lines), 'line')}", lines, style)


def _list_errors(job: Job, style: Style) -> str:
    names, lines = digest.short_names(job), []
    shown = job.unexplained[: None if style.verbose else _MAX_ERRORS]
    for notice in shown:
        line = notice.evidence[0]
        lines.append(f"{names[line.source]}:{line.line}: {notice.message} ({notice.count} x)")
        lines += [f"    means: {means}"] if (means := digest.meaning(notice)) else []
    more = len(job.unexplained) - len(shown)
    lines += [f"… and {more} more"] if more else []
    return folded_lines(f"Errors in the log that no rule explains: {len(job.unexplained)}", lines, style)
