"""Workflow commands for GitHub Actions: findings become annotations of the log lines that show them.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest, jobs
from nccl_inspect.util.text import escape_controls, escape_controls_in_lines

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_VERDICT = {"ok": "notice", "unknown": "warning", "degraded": "warning", "failed": "error"}


def render(job: Job, style: Style) -> str:
    """Return a command for the verdict and one for each finding; GitHub shows the first ten of each kind."""
    commands = []
    if job.jobs:  # all but these are about the worst
        text = f"{jobs.headline(job)}; worst: {jobs.describe_worst(job)}"
        commands.append(annotation(_VERDICT[job.verdict], "nccl-inspect", text))
    for standing in job.jobs[1:]:
        if standing.verdict not in ("ok", "unknown"):
            text = f"{standing.verdict.upper()}: {standing.reason}"
            commands.append(annotation(_VERDICT[standing.verdict], jobs.title(standing), text, [standing.first]))
    first = digest.make_head(job)
    text = "\n".join([first.headline, *(f"{label}: {text}" for label, text in digest.label_lines(first))])
    commands += [annotation(_VERDICT[job.verdict], "nccl-inspect", text), *list_unread(job)]
    for finding in job.findings:
        (_, summary), *parts = digest.list_parts(finding)
        lines = [summary, *(f"{label}: {text}" for label, text in parts)]
        lines += [f"evidence: {line.source}:{line.line}: {line.text}" for line in finding.evidence[:1]]
        commands.append(_annotate_finding(_COMMANDS[finding.severity], finding, "\n".join(lines)))
    for entry in job.suppressed:
        text = f"{entry.finding.summary}\naccepted: {entry.reason}"
        commands.append(_annotate_finding("notice", entry.finding, text))
    for notice in job.unexplained[: digest.MAX_ERRORS]:
        commands.append(annotation("warning", "no rule explains it", digest.explain_notice(notice), notice.evidence))
    for question in job.not_judged:
        text = f"{question.rule} not judged: {question.reason}; needs {question.needs}"
        commands.append(f"::debug::{_data(text)}")
    return "\n".join(commands) + "\n"


def list_unread(job: Job) -> Iterator[str]:
    """Yield a command for each input that could not be read, and one if the reading was interrupted."""
    yield from (annotation("error", kind, problem) for _, kind, problem in digest.list_unread(job))


def _annotate_finding(name: str, finding: Finding, message: str) -> str:
    return annotation(name, f"{finding.rule} ({finding.confidence})", message, finding.evidence)


def annotation(name: str, title: str, message: str, evidence: Sequence[Evidence] = ()) -> str:
    """Return a command that annotates the first of some lines."""
    lines = [line for line in evidence[:1] if not line.source.startswith("<")]  # standard input has no file to show
    place = "".join(f"file={_property(line.source)},line={line.line}," for line in lines)
    return f"::{name} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return escape_controls_in_lines(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape_controls(text)).replace(":", "%3A").replace(",", "%2C")
