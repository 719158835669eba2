"""SARIF 2.1.0 for code scanning and for viewers: each finding at the line of the log that shows it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import quote

from nccl_inspect._version import __version__
from nccl_inspect.judging.engine import Rule, rules_by_name
from nccl_inspect.model.document import clean, standing_to_dict
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.report.digest import MAX_ERRORS, explain_notice, list_parts, reason
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.text import escape_controls_in_lines

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}  # by severity
_Counts: TypeAlias = Counter[tuple[str, tuple[int, ...]]]  # number of findings by rule and ranks
_EXAMPLES = re.compile(r"^## Examples\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"\A# .*\n+")


def render(job: Job, style: Style) -> str:
    """Return a document with one run; open questions are notifications, because they have no line."""
    findings = [(finding, "") for finding in job.findings]
    findings += [(entry.finding, entry.reason) for entry in job.suppressed]
    used = {finding.rule for finding, _ in findings}
    rules = [rule for name, rule in rules_by_name().items() if name in used]
    places = {rule.name: index for index, rule in enumerate(rules)}
    counts: _Counts = Counter()
    results = [_result(finding, accepted, places[finding.rule], counts) for finding, accepted in findings]
    unread = [source.problem for source in job.sources if source.problem]
    notes: list[dict[str, Any]] = [{"level": "error", "message": {"text": problem}} for problem in unread]
    for notice in job.unexplained[:MAX_ERRORS]:
        text = f"an error that no rule explains: {explain_notice(notice)}"
        notes.append({"level": "warning", "message": {"text": text}, "locations": [_location(notice.evidence[0])]})
    for question in job.not_judged:
        text = f"{question.rule} could not be judged: {question.reason}; needs {question.needs}"
        notes.append({"level": "note", "message": {"text": text}, "associatedRule": {"id": question.rule}})
    driver = {"name": "nccl-inspect", "version": __version__, "rules": list(map(_rule, rules))}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not job.partial, "toolExecutionNotifications": notes}],
        "artifacts": [{"location": {"uri": _uri(source.name)}} for source in job.sources],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {
            "verdict": job.verdict,
            "reason": reason(job),
            "worldSize": job.world_size,
            "ncclVersions": job.nccl_versions,
            **({"jobs": [standing_to_dict(standing) for standing in job.jobs]} if job.jobs else {}),
        },
    }
    whole = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(clean(whole, escape_controls_in_lines), indent=1, ensure_ascii=True) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    page = _EXAMPLES.sub("", _TITLE.sub("", rule.page)).strip()
    return {
        "id": rule.name,
        "name": rule.name.title().replace("-", ""),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": " ".join(page.partition("\n## ")[0].split())},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [rule.category]},
    }


def _result(finding: Finding, accepted: str, index: int, counts: _Counts) -> dict[str, Any]:
    locations = [_location(line) for line in finding.evidence]
    (_, summary), *parts = list_parts(finding)
    # _Counts are stable between runs: rule and ranks, not hosts, process ids or line numbers.
    key = (finding.rule, tuple(finding.ranks))
    text = json.dumps([*key, counts[key]])
    counts[key] += 1
    value = hashlib.sha256(text.encode()).hexdigest()[:32]
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join([summary, *(f"{label.capitalize()}: {text}" for label, text in parts)])},
        "locations": locations[:1],
        "relatedLocations": locations[1:],
        # The second name is the one that GitHub compares.
        "partialFingerprints": {"ncclInspectFinding/v1": value, "primaryLocationLineHash": value},
        "suppressions": [{"kind": "external", "justification": accepted}] if accepted else [],
        "properties": {
            **pick_fields(finding, "category", "confidence", "root", "because", "ranks", "hosts"),
            "culprits": [asdict(culprit) for culprit in finding.culprits],
        },
    }


def _location(line: Evidence) -> dict[str, Any]:
    region = {"startLine": max(line.line, 1), "snippet": {"text": line.text}}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(line.source)}, "region": region}}


def _uri(name: str) -> str:
    """Return a source as a URI reference; ``<stdin>`` and members of archives are not files, and still named."""
    path = quote(name.encode("utf-8", "surrogateescape"), safe="/")
    return f"file://{path}" if PurePosixPath(name).is_absolute() else path
