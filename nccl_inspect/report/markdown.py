"""Markdown for an issue or a pull request, as GitHub and GitLab show it: ``markdown.md.j2`` with what the others say.

Text from the log is escaped or quoted as code: it must not look like part of the report, mention people (``@name``) or
refer to issues (``#1``).
"""

from __future__ import annotations

import re
from pathlib import Path

from nccl_inspect._version import __version__
from nccl_inspect.judging import remedies
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest, jobs
from nccl_inspect.report.tables import KIND_HEAD, rows_by_kind
from nccl_inspect.report.words import code_span, environment, escape_markdown, folded_lines, markdown_table, step_item
from nccl_inspect.util.wording import count

SUFFIXES = ("md",)
_MAX_ERRORS = 5
_BEGINS_BLOCK = re.compile(r"^(\d*)([-+=.)])")
"""What starts a list or underlines a heading, at the start of a paragraph."""


def render(job: Job, style: Style) -> str:
    """Return verdict, facts, paths, findings with folded evidence, and open questions; several empty lines are one."""
    pages = environment(Path(__file__).parent).overlay(autoescape=False, finalize=None)
    pages.filters |= {
        "code": code_span,
        "folded": folded_lines,
        "paragraph": lambda text: _BEGINS_BLOCK.sub(r"\1\\\2", text),
        "step": step_item,
        "table": lambda rows, head: markdown_table(head, (list(map(escape_markdown, row)) for row in rows)),
        "text": escape_markdown,
    }
    text = pages.get_template("markdown.md.j2").render(
        **{"job": job, "style": style, "version": __version__, "digest": digest, "jobs": jobs, "kind_head": KIND_HEAD},
        **{"rows_by_kind": rows_by_kind, "capture_command": remedies.capture_command},
        **{"facts": _tabulate_facts, "evidence": _fold_evidence, "errors": _list_errors},
    )
    return re.sub("\n{3,}", "\n\n", text).strip("\n") + "\n"


def _tabulate_facts(job: Job) -> str:
    rows: list[list[str]] = []
    for label, text in digest.list_facts(job):
        if label:
            rows.append([label, text])
        else:
            rows[-1][1] += f", {text}"
    return markdown_table(("", ""), [(f"**{label}**", escape_markdown(text)) for label, text in rows])


def _fold_evidence(evidence: list[Evidence], names: dict[str, str], style: Style) -> str:
    lines = [f"{names[line.source]}:{line.line}: {line.text}" for line in evidence]
    return folded_lines(f"Evidence: {count(len(lines), 'line')}", lines, style) if lines else ""


def _list_errors(job: Job, names: dict[str, str], style: Style) -> str:
    lines = []
    shown = job.unexplained[: None if style.verbose else _MAX_ERRORS]
    for notice in shown:
        line = notice.evidence[0]
        lines.append(f"{names[line.source]}:{line.line}: {notice.message} ({notice.count} x)")
        lines += [f"    means: {means}"] if (means := digest.meaning(notice)) else []
    more = len(job.unexplained) - len(shown)
    lines += [f"… and {more} more"] if more else []
    return folded_lines(f"Errors in the log that no rule explains: {len(job.unexplained)}", lines, style)
