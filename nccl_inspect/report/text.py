"""The summary for people: the verdict, then the job, its paths, the findings and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging import remedies
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Head
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest
from nccl_inspect.report.tables import KIND_HEAD, align_table, rows_by_kind
from nccl_inspect.report.words import NARROW, block, paint, step_block, verdict_color
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, list_words

_MAX_ERRORS = 5
_MAX_HEADLINE, _MAX_LABELLED, _MAX_SINCE = 4, 2, 5
"""Lines of the headline and of each part of the head under it; "since" holds places at its end, so it is not cut."""
_HANG = 13  # width of the column of labels of the head and the facts
_SCREEN = 30
"""Lines of a report with one finding on a terminal of 80 columns or more; if it has more, they are left to -v."""
_WIDE, _TIGHTEST = 80, 4
_PARAGRAPH, _COMMUNICATORS, _FIXES, _EVIDENCE = (
    (99, 99, 2, 2, 1),
    (99, 3, 2, 1, 1),
    (digest.MOST_STEPS, 4, 3, 2, 1),
    (3, 2, 2, 1, 1),
)
"""Lines of a paragraph of a finding, rows of communicators, steps and lines of evidence, by how tight a report is."""
_STORY = (6, 6, 5, 4, 3)  # lines of what happened, by how tight a report is
_NARROW_QUOTE = 4  # lines of a quoted line on a narrow terminal
_STEPS_UNDER = 2  # steps of nested findings


def render(job: Job, style: Style) -> str:
    """Return the summary; it fits any width from 40 columns."""
    if not job.jobs:
        text = _single_report(job, style)
        if len(job.findings) == 1 and not style.verbose and style.width >= _WIDE:
            while text.count("\n") > _SCREEN and style.tight < _TIGHTEST:
                style = style.with_fields(tight=style.tight + 1)
                text = _single_report(job, style).rstrip("\n") + "\n(-v shows all of it)\n"
        return text
    from nccl_inspect.report import jobs  # most inputs hold one job

    return jobs.render_text(job, style, _single_report)


def _single_report(job: Job, style: Style) -> str:
    return "\n".join(_report_lines(job, style)) + "\n"


def _report_lines(job: Job, style: Style) -> Iterator[str]:
    if job.partial:
        yield f"partial: {digest.describe_interruption(job)}"
    yield from (*headline(job, style), "")
    if digest.has_story(job):
        yield from (paint("what happened", "bold", style), *_story(job, style), "")
    communicators = 0
    for label, text in digest.list_facts(job):
        communicators += label == "communicator"
        if communicators <= _COMMUNICATORS[style.tight]:
            lines = block(label, escape_controls(text), style, indent=0, hang=_HANG)
            yield from _limit_lines(lines, 1, style) if style.tight else lines
    yield ""
    if len(job.paths):
        yield from (*_paths(job, style), "")
    yield from _findings(job, style)
    for entry in job.suppressed:
        finding = entry.finding
        text = f"{finding.rule} ({finding.severity}): {finding.summary}; accepted: {entry.reason}"
        yield from block("suppressed", escape_controls(text), style, indent=0, hang=12)
    if job.suppressed:
        yield ""
    if job.unexplained:  # none is dropped silently
        yield from (*_errors(job, style), "")
    if job.not_judged:
        yield paint("not judged", "bold", style)
        command, most = remedies.capture_command(job), _PARAGRAPH[style.tight]
        for question in job.not_judged:
            lines = block(question.rule, escape_controls(question.reason), style, hang=len(question.rule) + 2)
            yield from _limit_lines(lines, most, style)
            if style.tight < _TIGHTEST or not command:
                lines = block("needs", escape_controls(question.needs), style, indent=4, hang=7)
                yield from _limit_lines(lines, most, style)
        if command:
            yield from block("to capture it", escape_controls(command), style, indent=2, hang=15)
    if style.verbose:
        yield from _unknown_lines(job, style)


def brief(finding: Finding, job: Job, style: Style) -> list[str]:
    """Return a finding in few lines: what, the first fix and the first line of evidence."""
    names = digest.short_names(job)
    steps = [line for fix in finding.fix[:1] for line in step_block("fix", escape_controls(fix), style)]
    return [*_summary(finding, style), *steps, *_evidence(finding.evidence[:1], style, names)]


def headline(job: Job, style: Style) -> Iterator[str]:
    """Yield the head of the report: the verdict with its main reason, where, since when, and what to do now."""
    first = digest.make_head(job, is_now=True)
    word = paint(first.word, verdict_color(job.verdict), style)
    lines = _limit_lines(block("", escape_controls(first.headline), style, indent=0, hang=0), _MAX_HEADLINE, style)
    yield lines[0].replace(first.word, word, 1)
    yield from lines[1:]
    for label, text in digest.label_lines(first):
        shown = escape_controls(text)
        if label == "do":
            lines = step_block("do", shown, style, indent=0, hang=_HANG)
            if len(lines) > _MAX_LABELLED:  # without its comment
                lines = step_block("do", shown.partition(remedies.COMMENT)[0], style, indent=0, hang=_HANG)
        else:
            most = _MAX_LABELLED if label == "where" else _MAX_SINCE
            lines = _limit_lines(block(label, shown, style, 0, _HANG), most, style)
        yield paint(label, "bold", style) + lines[0][len(label) :]
        yield from lines[1:]


def _limit_lines(lines: list[str], most: int, style: Style) -> list[str]:
    """Return the first lines; all of them on narrow terminals, where a line holds few words."""
    if len(lines) <= most or style.width < NARROW:
        return lines
    return [*lines[: most - 1], cut(f"{lines[most - 1]}…", style.width)]


def _story(job: Job, style: Style) -> Iterator[str]:
    lines = digest.story_lines(job)
    is_whole = style.verbose or style.width < NARROW
    places = [line.where if is_whole else _shorten_place(line.where, style.width) for line in lines]
    width = max(map(len, places))
    for place, line in list(zip(places, lines, strict=True))[: _STORY[style.tight]]:
        text = escape_controls(line.text)
        if is_whole:
            yield from block(place, text, style, hang=width + 2)
        else:
            yield cut(f"  {place:{width}}  {text}", style.width)


def _paths(job: Job, style: Style) -> Iterator[str]:
    rows = rows_by_kind(job.paths)
    table = align_table(KIND_HEAD, rows)
    if max(map(len, table)) <= style.width:
        yield from table
    else:
        for scope, detail, pairs, gdr, channels, verdict in rows:
            text = f"{scope} {detail}: pairs {pairs}, GDR {gdr}, channels {channels}, {verdict}"
            yield from block("path", text, style, indent=0)
    if job.unplaced_lines:
        paths = list_words((f"{path} {lines}" for path, lines in job.unplaced_paths.items()), limit=4)
        lines = count(job.unplaced_lines, "connection line") + (f" ({paths})" if paths else "")
        text = f"{lines} could not be placed: cut off, or of a communicator or ranks that the log does not show"
        yield from block("", text, style, indent=0, hang=0)


def _findings(job: Job, style: Style) -> Iterator[str]:
    outline, names = digest.outline_findings(job, style.verbose), digest.short_names(job)
    shown, first = digest.AlreadyShown(style.verbose), digest.make_head(job, is_now=True)
    for finding, _, untold, accepted, is_brief in outline:
        if is_brief:
            continue
        yield from _summary(finding, style, None if style.verbose else first)
        yield from _details(finding, style, names, shown)
        for other in untold:
            kind = "because" if other.rule in finding.because else "effect"
            yield from block(kind, escape_controls(f"{other.rule} ({other.confidence}): {other.summary}"), style)
            if other.where and other.where != finding.where:
                yield from block("where", escape_controls(other.where), style)
            for fix in shown.steps(other, digest.list_own_steps(other, finding), _STEPS_UNDER):
                yield from step_block("", f"fix: {escape_controls(fix)}", style)
            fresh = [line for line in other.evidence if line not in finding.evidence]
            yield from _evidence(shown.evidence(fresh), style, names)
        for words in accepted:
            yield from block("because", escape_controls(words), style)
        yield ""
    # Those that do not explain the verdict have one line each, with those nested under them.
    others = [member for one in outline if one.is_brief for member in (one.finding, *one.nested)]
    if not others:
        return
    yield paint("also found", "bold", style) + f" ({digest.MORE})"
    for finding in others:
        (line, *rest) = block("", escape_controls(digest.one_line(finding)), style, indent=2, hang=0, deeper=2)
        if style.width >= NARROW:
            line, rest = cut(f"{line}…" if rest else line, style.width), []
        yield line.replace(finding.severity.upper(), paint(finding.severity.upper(), finding.severity, style), 1)
        yield from rest
    yield ""


def _details(finding: Finding, style: Style, names: dict[str, str], shown: digest.AlreadyShown) -> Iterator[str]:
    texts = [("cause", finding.cause), ("impact", finding.impact)]
    texts += [("source", str(reference)) for reference in finding.references if style.verbose]
    texts += [("confirm", finding.confirm)] if finding.confirm else []
    for label, text in texts:
        lines = block(label, escape_controls(text), style)
        yield from lines if label == "source" else _limit_lines(lines, _PARAGRAPH[style.tight], style)
    if style.verbose:
        yield from block("action", finding.action, style)
    steps = shown.steps(finding, finding.fix, _FIXES[style.tight])
    for index, fix in enumerate(map(escape_controls, steps[: _FIXES[style.tight]] if style.tight else steps)):
        label = "fix" if index == 0 or style.width < NARROW else ""
        lines = step_block(label, fix, style)
        if style.tight and len(lines) > 1:
            lines = step_block(label, fix.partition(remedies.COMMENT)[0], style)
        yield from _limit_lines(lines, 1, style) if style.tight == _TIGHTEST else lines  # the head has it whole
    yield from _evidence(shown.evidence(finding.evidence, _EVIDENCE[style.tight]), style, names)


def _summary(finding: Finding, style: Style, first: Head | None = None) -> Iterator[str]:
    severity = finding.severity.upper()
    for line in block(
        "", escape_controls(f"{severity} {finding.rule} ({digest.describe_subject(finding)})"), style, indent=0, hang=0
    ):
        marked = line.replace(severity, paint(severity, finding.severity, style), 1)
        yield marked.replace(finding.rule, paint(finding.rule, "bold", style), 1)
    if first is None or finding.summary not in first.headline:
        yield from block("what", escape_controls(finding.summary), style)
    if finding.where and (first is None or finding.where not in first.where):
        yield from block("where", escape_controls(finding.where), style)


def _evidence(evidence: list[Evidence], style: Style, names: dict[str, str]) -> Iterator[str]:
    for index, line in enumerate(evidence):
        label = "" if index else "evidence"
        place = f"{names[line.source]}:{line.line}"
        for part in _quote(label, place, escape_controls(line.text), style):
            yield paint(part, "dim", style)


def _quote(label: str, place: str, quoted: str, style: Style) -> list[str]:
    """Return a quoted line cut to the width, if need be without what precedes NCCL's message."""
    parts = block(label, f"{place}: {quoted}", style)
    if style.verbose or len(parts) == 1:
        return parts
    _, mark, message = quoted.partition(" NCCL ")
    text = f"…NCCL {message}" if mark else quoted
    if style.width >= NARROW:
        return [cut(f"  {label:10}{_shorten_place(place, style.width)}: {text}".rstrip(), style.width)]
    return [*block(label or "and", place, style), *_narrow_quote(text, style, indent=4)]


def _narrow_quote(text: str, style: Style, indent: int) -> list[str]:
    first, rest = (lines := block("", text, style, indent, hang=0))[: _NARROW_QUOTE - 1], lines[_NARROW_QUOTE - 1 :]
    return [*first, cut(f"{rest[0]}…", max(style.width, 40))] if len(rest) > 1 else lines


def _shorten_place(place: str, width: int) -> str:
    return place if len(place) <= width // 2 else f"…{place[1 - width // 2 :]}"


def _errors(job: Job, style: Style) -> Iterator[str]:
    errors, names = job.unexplained, digest.short_names(job)
    for text in block("", f"errors in the log that no rule explains ({len(errors)})", style, indent=0, hang=0):
        yield paint(text, "bold", style)
    for notice in errors[:_MAX_ERRORS]:
        line = notice.evidence[0]
        text = f"  {names[line.source]}:{line.line}: {escape_controls(notice.message)} ({notice.count} x)"
        if style.width >= NARROW or style.verbose:
            yield text if style.verbose else cut(text, style.width)
        else:
            yield from _narrow_quote(text.strip(), style, indent=2)
        if means := digest.meaning(notice):
            yield from block("means", means, style, indent=4, hang=7)
    if len(errors) > _MAX_ERRORS:
        yield f"  … and {len(errors) - _MAX_ERRORS} more"


def _unknown_lines(job: Job, style: Style) -> Iterator[str]:
    if job.unrecognised:
        yield paint("NCCL lines that the grammar does not know (please report them)", "bold", style)
        for entry in job.unrecognised:
            yield f"  {entry.count} x  {escape_controls(entry.example.text)}"
    if job.damaged:
        yield paint("damaged lines that could not be repaired: no rule uses them", "bold", style)
        for line in job.damaged:
            yield escape_controls(f"  {line.source}:{line.line}: {line.text}")
        left = sum(source.damaged_lines for source in job.sources) - len(job.damaged)
        if left > 0:
            yield f"  … and {left:,} more"
