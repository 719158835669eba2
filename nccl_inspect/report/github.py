"""Workflow commands for GitHub Actions: findings become annotations of the log lines that show them.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest, head, jobs
from nccl_inspect.report.digest import MAX_ERRORS, explain_notice
from nccl_inspect.report.head import label_lines
from nccl_inspect.util.text import escape_controls, escape_controls_in_lines

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_VERDICT = {"ok": "notice", "unknown": "warning", "degraded": "warning", "failed": "error"}


def render(job: Job, style: Style) -> str:
    """Return a command for the verdict and one for each finding; GitHub shows the first ten of each kind."""
    return "\n".join([*_jobs(job), *_commands(job)]) + "\n"


def _jobs(job: Job) -> Iterator[str]:
    """Yield the number of jobs, if there are several, and each bad one; the other commands are about the worst."""
    if job.jobs:
        text = f"{jobs.headline(job)}; worst: {jobs.describe_worst(job)}"
        yield f"::{_VERDICT[job.verdict]} title=nccl-inspect::{_data(text)}"
    for standing in job.jobs[1:]:
        if standing.verdict not in ("ok", "unknown"):
            text = f"{standing.verdict.upper()}: {standing.reason}"
            place, title = _locate(standing.first), _property(jobs.title(standing))
            yield f"::{_VERDICT[standing.verdict]} {place}title={title}::{_data(text)}"


def _commands(job: Job) -> Iterator[str]:
    first = head.make_head(job)
    text = "\n".join([first.headline, *(f"{label}: {text}" for label, text in label_lines(first))])
    yield annotation(_VERDICT[job.verdict], "nccl-inspect", text)
    yield from list_unread(job)
    for finding in job.findings:
        yield _command(_COMMANDS[finding.severity], finding, _message(finding))
    for entry in job.suppressed:
        text = f"{entry.finding.summary}\naccepted: {entry.reason}"
        yield _command("notice", entry.finding, text)
    for notice in job.unexplained[:MAX_ERRORS]:
        yield annotation("warning", "no rule explains it", explain_notice(notice), notice.evidence)
    for question in job.not_judged:
        yield f"::debug::{_data(f'{question.rule} not judged: {question.reason}; needs {question.needs}')}"


def list_unread(job: Job) -> Iterator[str]:
    """Yield a command for each input that could not be read, and one if the reading was interrupted."""
    if job.partial:
        yield annotation("error", "partial", digest.describe_interruption(job))
    for source in job.sources:
        if source.problem:
            yield annotation("error", "not read", source.problem)


def _command(name: str, finding: Finding, message: str) -> str:
    return annotation(name, f"{finding.rule} ({finding.confidence})", message, finding.evidence)


def annotation(name: str, title: str, message: str, evidence: Sequence[Evidence] = ()) -> str:
    """Return a command that annotates the first of some lines."""
    place = _locate(evidence[0]) if evidence else ""
    return f"::{name} {place}title={_property(title)}::{_data(message)}"


def _locate(line: Evidence) -> str:
    """Return the file and line; empty for standard input, which cannot be annotated."""
    return "" if line.source.startswith("<") else f"file={_property(line.source)},line={line.line},"


def _message(finding: Finding) -> str:
    lines = [finding.summary, *([f"where: {finding.where}"] if finding.where else [])]
    lines += [f"cause: {finding.cause}", f"impact: {finding.impact}"]
    lines += [f"fix: {fix}" for fix in finding.fix]
    lines += [f"evidence: {line.source}:{line.line}: {line.text}" for line in finding.evidence[:1]]
    return "\n".join(lines)


def _data(text: str) -> str:
    """Return the text after the second ``::``."""
    return escape_controls_in_lines(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape_controls(text)).replace(":", "%3A").replace(",", "%2C")
