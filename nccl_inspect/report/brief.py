"""A summary to send to a colleague: at most ten lines, each of which can be read, cut or pasted alone.

The verdict, the culprit, the cause, the first fix and three lines of evidence, from the same model as the head of the
report; nothing is wrapped, so that commands can be pasted and a chat can break lines itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.judging.remedies import is_sentence
from nccl_inspect.judging.statements import is_error, notices_shown
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Head
from nccl_inspect.model.job import Job
from nccl_inspect.report import digest, jobs
from nccl_inspect.report.tables import rows_by_kind
from nccl_inspect.report.words import code_span, escape_markdown
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import some_names

MAX_LINES = 10
_MAX_EVIDENCE = 3
_MAX_TEXT = 240  # characters of prose; a command is never cut
_MAX_LINE = 400  # of all other lines: they name hosts and quote messages
_MAX_QUOTED = 200
_STEPS = ("fix", "do", "more")  # labels of texts to paste
_MAX_KINDS = 4
_MAX_SIGNS = 2
_IN_HEADLINE = ("failures", "log quality")
"""Categories of what the headline says if nothing leads: where the log ends, or what it lacks."""
_LEFT_OUT_FIRST = ("open", "sign", "sign", "evidence", "cost", "evidence", "since", "job")
"""Labels of the lines to drop if there are too many, in this order: the last one of each label."""


class BriefLine(NamedTuple):
    """One line, without its mark-up."""

    label: str  # empty for the verdict
    text: str  # a step of a fix: a command whose part before the comment can be pasted, or prose
    quote: str = ""  # a line of the log


def lines(job: Job) -> list[BriefLine]:
    """Return the lines of a judged job; of several jobs those of the worst, and one about the others."""
    first = digest.make_head(job)
    headline = f"{first.headline} (partial: reading was interrupted)" if job.partial else first.headline
    if job.verdict == "ok":
        rows = rows_by_kind(job.paths)
        kinds = [f"{row[0]} {row[1]} ({row[2]} {'pair' if row[2] == '1' else 'pairs'})" for row in rows]
        ends = [finding.summary for finding in job.findings if finding.root and finding.category == _IN_HEADLINE[0]]
        noted = [BriefLine("note", _fit_sentences(end)) for end in ends[:_MAX_SIGNS]]
        rest = [*noted, *_job(job), BriefLine("paths", some_names(kinds, _MAX_KINDS))]
    else:
        rest = list(_list_unsound(job, first))
    summary = [line for line in (BriefLine("", headline), *rest) if line.text]
    for label in _LEFT_OUT_FIRST:
        found = [at for at, line in enumerate(summary) if line.label == label]
        if found and len(summary) > MAX_LINES:
            del summary[found[-1]]
    return [line if line.label in _STEPS else line._replace(text=cut(line.text, _MAX_LINE)) for line in summary]


def render(job: Job, form: str = "text") -> str:
    """Return the lines as text that ends with a line end."""
    written = []
    for label, text, quote in lines(job):
        quoted = cut(escape_controls(quote).strip(), _MAX_QUOTED)
        if form != "markdown":
            whole = escape_controls(f"{text}: {quoted}" if quote else text)
            written.append(f"{label}: {whole}\n" if label else f"{whole}\n")
        elif not label:
            written.append(f"**{escape_markdown(text)}**\n\n")
        else:
            is_code = label in _STEPS and not quote and not is_sentence(text)
            whole = code_span(text) if is_code else escape_markdown(text)
            written.append(f"- **{label}:** {whole}{f': {code_span(quoted)}' if quote else ''}\n")
    return "".join(written)


def _list_unsound(job: Job, first: Head) -> Iterator[BriefLine]:
    lead = digest.find_lead(job)
    told = lead  # the finding that the cause is taken from: what leads to this one, if that is known
    if lead and not (lead.confidence == "certain" and lead.fatal):
        roots = (
            finding for finding in digest.find_nested(lead, job) if finding.root and finding.confidence != "possible"
        )
        told = next(roots, lead)
    yield BriefLine("where", first.where)
    if digest.has_story(job):
        told_lines = (f"{line.text} ({line.where})" if line.where else line.text for line in digest.story_lines(job))
        yield BriefLine("story", "; then ".join(told_lines))
    else:
        yield BriefLine("since", first.since if job.verdict == "failed" or lead is None else "")
    if lead and told:
        cause = told.cause if told is lead else told.summary
        is_sure = told.confidence == "certain" or "likely" in cause
        yield BriefLine("cause", _fit_sentences(cause if is_sure else f"{told.confidence}: {cause}"))
        yield BriefLine("cost", "" if lead.fatal else _fit_sentences(lead.impact))
        yield BriefLine("confirm", _fit_sentences(lead.confirm))
    yield BriefLine("fix" if lead else "do", first.do)
    names = digest.short_names(job)
    for line in _evidence(told, lead, job):
        yield BriefLine("evidence", f"{names.get(line.source, line.source)}:{line.line}", line.text)
    if lead is None:
        roots = (finding for finding in job.findings if finding.root and job.verdict == "unknown")
        signs = [finding for finding in roots if finding.category not in _IN_HEADLINE]  # what the log suggests
        for finding in signs[:_MAX_SIGNS]:
            yield BriefLine("sign", _fit_sentences(f"{finding.summary} ({finding.confidence}, {finding.rule})"))
        for entry in job.not_judged[:1]:
            yield BriefLine("open", _fit_sentences(f"{entry.reason}; {entry.needs}"))
    yield from _job(job)
    sources = [source.name for source in job.sources]
    log = shlex.quote(sources[0]) if len(sources) == 1 and not sources[0].startswith("<") else "LOG"
    command = f"nccl-inspect summarize {log} -v   # the whole report"
    yield BriefLine("more", f"nccl-inspect explain {told.rule}   # the rule and all its fixes" if told else command)


def _job(job: Job) -> Iterator[BriefLine]:
    """Yield, for an input of several jobs, which one this is, and the verdicts of the others; then what it is."""
    if job.jobs:
        yield BriefLine("jobs", f"{jobs.headline(job)}; the worst is {job.name}; --job N or NAME reports another one")
    texts = {label: text for label, text in digest.list_facts(job) if label in ("job", "NCCL", "network")}
    network = f"network {texts['network']}" if "network" in texts else ""
    parts = [texts["job"], f"NCCL {texts['NCCL']}" if job.nccl_versions else "", network]
    yield BriefLine("job", _fit_sentences("; ".join(filter(None, parts))))


def _evidence(told: Finding | None, lead: Finding | None, job: Job) -> list[Evidence]:
    if told is None or lead is None:
        notice = digest.find_unexplained(job)
        others = [other for other in job.unexplained if other is not notice]
        return [error.evidence[0] for error in (notice, *others) if error and error.evidence][:_MAX_EVIDENCE]
    levels = {
        line.position: 0 if is_error(notice) else 1 if notice.level == "WARN" else 2
        for notice in notices_shown(job.notices, told)
        for line in notice.evidence
    }

    best = sorted(told.evidence, key=lambda line: (line not in lead.evidence, levels.get(line.position, 2)))
    return [line for line in told.evidence if line in best[:_MAX_EVIDENCE]]


def _fit_sentences(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= _MAX_TEXT:
        return text
    end = text.rfind(". ", 0, _MAX_TEXT)
    return text[:end] if end > 0 else cut(text, _MAX_TEXT)
