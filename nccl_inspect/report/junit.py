"""JUnit XML, which most CI servers show: a suite for each category of rules.

A case is the verdict, a rule that has something to say, or a category in which nothing was found: so a finding comes
and goes as one case of the same name, and a clean log is not an empty report. Rules that keep silent are no cases of
their own, for silence is no proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.model.standing import Standing
from nccl_inspect.report import Style
from nccl_inspect.report.digest import reason, who
from nccl_inspect.rules.engine import CATEGORIES, registered
from nccl_inspect.text import printable, printable_lines

_NAME = "nccl-inspect"


def render(job: Job, style: Style) -> str:
    """Errors and warnings are failures; what is accepted or could not be judged is skipped, with the reason."""
    report = JUnitXml(_NAME)
    report.add_testsuite(_suite("verdict", [_verdict(job), *_unread(job)]))
    for one in job.jobs:
        report.add_testsuite(_suite(printable(one.name), [_standing(one)]))
    categories = {entry.rule.name: entry.rule.category for entry in registered()}
    for category in CATEGORIES:
        names = [name for name in job.rules if categories[name] == category]
        if names:
            cases = [case for name in names if (case := _case(job, name, category))]
            report.add_testsuite(_suite(category, cases or [_new_case("nothing found", category)]))
    report.update_statistics()  # type: ignore[no-untyped-call]
    text: str = report.tostring().decode()  # type: ignore[no-untyped-call]
    return text if text.endswith("\n") else text + "\n"


def _suite(name: str, cases: Iterable[TestCase]) -> TestSuite:
    suite = TestSuite(name)
    suite.add_testcases(list(cases))
    return suite


def _new_case(name: str, category: str) -> TestCase:
    return TestCase(printable(name), f"{_NAME}.{category}", 0)


def _verdict(job: Job) -> TestCase:
    """Fails when the job is slow or dead, also where only an error without a rule tells it."""
    case = _new_case("verdict", "verdict")
    words = printable(reason(job))
    if job.verdict == "unknown":
        case.result = [Skipped(words)]
    elif job.verdict != "ok":
        case.result = [
            _failure(words, job.verdict, "\n".join(f"{finding.rule}: {finding.summary}" for finding in job.findings))
        ]
    return case


def _standing(one: Standing) -> TestCase:
    """The verdict on one of several jobs, in brief."""
    case = _new_case("verdict", "jobs")
    words = printable(one.reason)
    if one.verdict == "unknown":
        case.result = [Skipped(words)]
    elif one.verdict != "ok":
        case.result = [_failure(words, one.verdict, f"{one.first.source}:{one.first.line}")]
    return case


def _unread(job: Job) -> Iterator[TestCase]:
    for source in job.sources:
        if source.problem:
            case = _new_case(source.name, "verdict")
            case.result = [Error(printable(source.problem), "not read")]
            yield case


def _case(job: Job, rule: str, category: str) -> TestCase | None:
    """What a rule has to say; None when it keeps silent."""
    found = [finding for finding in job.findings if finding.rule == rule]
    accepted = [entry for entry in job.suppressed if entry.finding.rule == rule]
    open_questions = [question for question in job.not_judged if question.rule == rule]
    case = _new_case(rule, category)
    bad = [finding for finding in found if finding.severity != "info"]
    text = "\n\n".join("\n".join(_lines(finding)) for finding in found)
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        case.result = [_failure(bad[0].summary + more, bad[0].severity, text)]
    elif accepted:
        case.result = [Skipped(printable(f"accepted: {accepted[0].reason}: {accepted[0].finding.summary}"))]
    elif open_questions:
        case.result = [Skipped(printable(f"not judged: {q.reason}; needs {q.needs}")) for q in open_questions[:1]]
    elif found:
        case.system_out = printable_lines(text)
    return case if found or accepted or open_questions else None


def _failure(message: str, kind: str, text: str) -> Failure:
    failure = Failure(printable(message), kind)
    failure.text = printable_lines(text)
    return failure


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.upper()} {finding.rule} ({who(finding)})"
    yield f"what      {finding.summary}"
    if finding.where:
        yield f"where     {finding.where}"
    yield f"cause     {finding.cause}"
    yield f"impact    {finding.impact}"
    for label, fix in zip(itertools.chain(["fix"], itertools.repeat("")), finding.fix, strict=False):
        yield f"{label:10}{fix}"
    for line in finding.evidence:
        yield f"evidence  {line.source}:{line.line}: {line.text}"
