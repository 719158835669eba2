"""JUnit XML, which most CI servers show: a suite for each category of rules.

A case is the verdict, a rule with a result, or a category without findings: a finding appears and disappears as one
case of the same name, and the report of a clean log is not empty. Rules without findings are not cases of their own,
because silence proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from nccl_inspect.judging.engine import CATEGORIES, rules_by_name
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, digest
from nccl_inspect.util.text import escape_controls, escape_controls_in_lines

SUFFIXES = ("xml",)
_NAME = "nccl-inspect"


def render(job: Job, style: Style) -> str:
    """Return errors and warnings as failures, accepted findings and open questions as skipped, with the reason."""
    lines = [f"{label:10}{text}" for label, text in digest.label_lines(digest.make_head(job))]
    lines += [f"{finding.rule}: {finding.summary}" for finding in job.findings]
    verdict = _verdict("verdict", job.verdict, digest.reason(job), "\n".join(lines))
    suites = [suite("verdict", [verdict, *list_unread(job)])]
    for one in job.jobs:
        verdict = _verdict("jobs", one.verdict, one.reason, f"{one.first.source}:{one.first.line}")
        suites.append(suite(escape_controls(one.name), [verdict]))
    for category in CATEGORIES:
        if names := [name for name in job.rules if rules_by_name()[name].category == category]:
            cases = [case for name in names if (case := _case(job, name, category))]
            suites.append(suite(category, cases or [new_case("nothing found", category)]))
    return document(suites)


def document(suites: Iterable[TestSuite]) -> str:
    """Return the report of some suites."""
    report = JUnitXml(_NAME)
    for each in suites:
        report.add_testsuite(each)
    report.update_statistics()  # type: ignore[no-untyped-call]
    text: str = report.tostring().decode()  # type: ignore[no-untyped-call]
    return text if text.endswith("\n") else text + "\n"


def suite(name: str, cases: Iterable[TestCase]) -> TestSuite:
    """Return the cases as a suite under a name."""
    made = TestSuite(name)
    made.add_testcases(list(cases))
    return made


def new_case(name: str, category: str) -> TestCase:
    """Return a case that passes until it gets a result."""
    return TestCase(escape_controls(name), f"{_NAME}.{category}", 0)


def _verdict(category: str, verdict: str, why: str, text: str) -> TestCase:
    case = new_case("verdict", category)
    if verdict == "unknown":
        case.result = [Skipped(escape_controls(why))]
    elif verdict != "ok":
        case.result = [failure(escape_controls(why), verdict, text)]
    return case


def list_unread(job: Job) -> Iterator[TestCase]:
    """Yield a case for each input that could not be read, and one if the reading was interrupted."""
    for name, kind, problem in digest.list_unread(job):
        case = new_case(name, "verdict")
        case.result = [Error(escape_controls(problem), kind)]
        yield case


def _case(job: Job, rule: str, category: str) -> TestCase | None:
    findings = [finding for finding in job.findings if finding.rule == rule]
    accepted = [entry for entry in job.suppressed if entry.finding.rule == rule]
    open_questions = [question for question in job.not_judged if question.rule == rule]
    case = new_case(rule, category)
    bad = [finding for finding in findings if finding.severity != "info"]
    text = "\n\n".join("\n".join(lines(finding)) for finding in findings)
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        case.result = [failure(bad[0].summary + more, bad[0].severity, text)]
    elif accepted:
        case.result = [Skipped(escape_controls(f"accepted: {accepted[0].reason}: {accepted[0].finding.summary}"))]
    elif open_questions:
        case.result = [Skipped(escape_controls(f"not judged: {q.reason}; needs {q.needs}")) for q in open_questions[:1]]
    elif findings:
        case.system_out = escape_controls_in_lines(text)
    return case if findings or accepted or open_questions else None


def failure(message: str, kind: str, text: str) -> Failure:
    """Return the result of a case that fails."""
    result = Failure(escape_controls(message), kind)
    result.text = escape_controls_in_lines(text)
    return result


def lines(finding: Finding) -> Iterator[str]:
    """Yield a finding in full."""
    yield f"{finding.severity.upper()} {finding.rule} ({digest.describe_subject(finding)})"
    before = ""
    for label, text in digest.list_parts(finding):
        yield f"{'' if label == before else label:10}{text}"
        before = label
    yield from (f"evidence  {line.source}:{line.line}: {line.text}" for line in finding.evidence)
