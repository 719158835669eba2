"""A summary to send to a colleague: at most ten lines, each of which can be read, cut or pasted alone.

The verdict, the culprit, the cause, the first fix and three lines of evidence, from the same model as the head of the
report; nothing is wrapped, so that commands can be pasted and a chat can break lines itself.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.judging.statements import is_error, notices_shown
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.head import Head
from nccl_inspect.model.job import Job
from nccl_inspect.report import head, jobs
from nccl_inspect.report.digest import facts, first_unexplained, lead_of, short_names, under
from nccl_inspect.report.markup import code, plain
from nccl_inspect.report.tables import by_kind
from nccl_inspect.report.words import shortened
from nccl_inspect.util.text import cut, printable

MAX_LINES = 10
_MAX_EVIDENCE = 3
_MAX_TEXT = 240
"""Characters of prose; a command is never cut."""
_MAX_LINE = 400
"""Of all other lines: they name hosts and quote messages."""
_MAX_QUOTED = 200
_STEPS = ("fix", "do", "more")
"""Labels of texts to paste."""
_MAX_KINDS = 4
_MAX_SIGNS = 2
_IN_HEADLINE = ("failures", "log quality")
"""Categories of what the headline says if nothing leads: where the log ends, or what it lacks."""
_LEFT_OUT_FIRST = ("open", "sign", "more", "job", "cost", "since")
"""Labels of the lines to drop if there are too many, in this order."""


class BriefLine(NamedTuple):
    """One line, without its mark-up."""

    label: str
    """Empty for the verdict."""
    text: str
    """A step of a fix: a command whose part before the comment can be pasted, or prose."""
    quote: str = ""
    """A line of the log."""


def lines(job: Job) -> list[BriefLine]:
    """The lines of a judged job; of several jobs those of the worst, and one about the others."""
    first = head.of(job)
    summary = list(_sound(job, first) if job.verdict == "ok" else _unsound(job, first))
    for label in _LEFT_OUT_FIRST:
        if len(summary) <= MAX_LINES:
            break
        summary = [line for line in summary if line.label != label]
    return [line if line.label in _STEPS else line._replace(text=cut(line.text, _MAX_LINE)) for line in summary]


def render(job: Job, form: str = "text") -> str:
    """The lines as text that ends with a line end.

    Args:
        job: judged.
        form: ``text`` or ``markdown``.
    """
    write = _in_markdown if form == "markdown" else _in_text
    return "".join(f"{write(line)}\n" for line in lines(job))


def _sound(job: Job, first: Head) -> Iterator[BriefLine]:
    """Three lines: the verdict, the job and its paths."""
    yield BriefLine("", first.headline)
    yield from _of_several(job)
    yield from _job(job)
    kinds = [f"{row[0]} {row[1]} ({row[2]} {'pair' if row[2] == '1' else 'pairs'})" for row in by_kind(job.paths)]
    if kinds:
        yield BriefLine("paths", shortened(kinds, _MAX_KINDS))


def _unsound(job: Job, first: Head) -> Iterator[BriefLine]:
    lead = lead_of(job)
    yield BriefLine("", f"{first.headline} (partial: reading was interrupted)" if job.partial else first.headline)
    yield from _labelled("where", first.where)
    yield from _labelled("since", first.since if job.verdict == "failed" or lead is None else "")
    if lead:
        yield BriefLine("cause", _fitted(_cause(lead, job)))
        yield from _labelled("cost", "" if lead.fatal else _fitted(lead.impact))
        yield from _labelled("confirm", _fitted(lead.confirm))
    yield from _labelled("fix" if lead else "do", first.do)
    names = short_names(job)
    for line in _evidence(lead, job):
        yield BriefLine("evidence", f"{names.get(line.source, line.source)}:{line.line}", line.text)
    if lead is None:
        yield from _signs(job)
        for entry in job.not_judged[:1]:
            yield BriefLine("open", _fitted(f"{entry.reason}; {entry.needs}"))
    yield from _of_several(job)
    yield from _job(job)
    yield BriefLine("more", _more(lead, job))


def _signs(job: Job) -> Iterator[BriefLine]:
    """What the log suggests about a job without a verdict if nothing leads."""
    roots = (finding for finding in job.findings if finding.root) if job.verdict == "unknown" else ()
    signs = [finding for finding in roots if finding.category not in _IN_HEADLINE]
    for finding in signs[:_MAX_SIGNS]:
        yield BriefLine("sign", _fitted(f"{finding.summary} ({finding.confidence}, {finding.rule})"))


def _labelled(label: str, text: str) -> Iterator[BriefLine]:
    if text:
        yield BriefLine(label, text)


def _of_several(job: Job) -> Iterator[BriefLine]:
    """If the input holds several jobs: which one this is, and the verdicts of the others."""
    if job.jobs:
        yield BriefLine("jobs", f"{jobs.headline(job)}; the worst is {job.name}; --job N or NAME reports another one")


def _job(job: Job) -> Iterator[BriefLine]:
    texts = {label: text for label, text in facts(job) if label in ("job", "NCCL", "network")}
    network = f"network {texts['network']}" if "network" in texts else ""
    parts = [texts["job"], f"NCCL {texts['NCCL']}" if job.nccl_versions else "", network]
    yield BriefLine("job", _fitted("; ".join(filter(None, parts))))


def _more(lead: Finding | None, job: Job) -> str:
    """The command that shows more."""
    if lead:
        return f"nccl-inspect explain {lead.rule}   # the rule and all its fixes"
    names = [source.name for source in job.sources]
    named = len(names) == 1 and not names[0].startswith("<")
    return f"nccl-inspect summarize {shlex.quote(names[0]) if named else 'LOG'} -v   # the whole report"


def _cause(lead: Finding, job: Job) -> str:
    """The cause: the finding that leads to this one, if there is one, else its own text."""
    roots = [finding for finding in under(lead, job) if finding.root and finding.confidence != "possible"]
    if lead.confidence == "certain" and lead.fatal:
        roots = []
    sure = roots[0] if roots else lead
    text = roots[0].summary if roots else lead.cause
    return text if sure.confidence == "certain" or "likely" in text else f"{sure.confidence}: {text}"


def _evidence(lead: Finding | None, job: Job) -> list[Evidence]:
    """Three lines in the order of the log: first what several findings rest on, then errors, then warnings."""
    if lead is None:
        notice = first_unexplained(job)
        others = [other for other in job.unexplained if other is not notice]
        return [error.evidence[0] for error in (notice, *others) if error and error.evidence][:_MAX_EVIDENCE]
    findings = [lead, *(finding for finding in under(lead, job) if finding.root)]
    quotes = {(line.source, line.order): line for finding in findings for line in finding.evidence}
    times = Counter(place for finding in findings for place in {(line.source, line.order) for line in finding.evidence})
    levels = {
        (line.source, line.order): 0 if is_error(notice) else 1 if notice.level == "WARN" else 2
        for finding in findings
        for notice in notices_shown(job.notices, finding)
        for line in notice.evidence
    }
    best = sorted(quotes, key=lambda place: (-times[place], levels.get(place, 2)))[:_MAX_EVIDENCE]
    return [quotes[place] for place in sorted(best)]


def _fitted(text: str) -> str:
    """As many whole sentences as fit one line."""
    text = " ".join(text.split())
    if len(text) <= _MAX_TEXT:
        return text
    end = text.rfind(". ", 0, _MAX_TEXT)
    return text[:end] if end > 0 else cut(text, _MAX_TEXT)


def _quoted(line: BriefLine) -> str:
    return cut(printable(line.quote).strip(), _MAX_QUOTED)


def _in_text(line: BriefLine) -> str:
    text = f"{line.text}: {_quoted(line)}" if line.quote else printable(line.text)
    return f"{line.label}: {printable(text)}" if line.label else text


def _in_markdown(line: BriefLine) -> str:
    if not line.label:
        return f"**{plain(line.text)}**\n"
    return f"- **{line.label}:** {_marked(line)}"


def _marked(line: BriefLine) -> str:
    if line.quote:
        return f"{plain(line.text)}: {code(_quoted(line))}"
    if line.label not in _STEPS or is_sentence(line.text):
        return plain(line.text)
    command, comment, words = line.text.partition(COMMENT)
    return f"{code(command)} {plain(words)}" if comment else code(command)
