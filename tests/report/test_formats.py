"""Output formats: each is accepted by its schema or reader, and what a log says is never taken for markup."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import sample_data
from few_examples import every
from jsonschema import Draft4Validator
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from prometheus_client.parser import text_string_to_metric_families
from repository import TESTS

import nccl_inspect
from nccl_inspect import __version__, report
from nccl_inspect.judging.engine import list_rules
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Needs, NotJudged, Suppressed
from nccl_inspect.model.job import Job, Paths
from nccl_inspect.model.paths.table import Table, columns_of
from nccl_inspect.report import Style
from nccl_inspect.util.text import escape_controls

FORMATS = [name for name in ("markdown", "sarif", "junit", "github", "prometheus") if name in report.names()]
# The schema of OASIS as published: https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/
SARIF = Draft4Validator(json.loads((TESTS / "data" / "sarif-schema-2.1.0.json").read_text("utf-8")))
URI = re.compile(r"(?:file:///)?(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ufffe\uffff\ud800-\udfff]")
COMMAND = re.compile(
    r"::(?P<name>error|warning|notice|debug) ?"
    r"(?:file=(?P<file>[^:,\n]*),line=(?P<line>\d+),)?(?:title=(?P<title>[^:,\n]*))?::(?P<text>[^\n]*)"
)
NASTY = (
    "a|b `c` ``d <img src=x onerror=alert(1)> </details> *x* _y_ ~~z~~ [l](http://e) @octocat #1 GH-1 $m$ &lt;\n"
    "::error::forged\r\n# heading\x1b[31m \x00 100% a,b: c {x} \\ ]]> \"q\" 'q' \ufffe \udcff \u202e \u2028 \x85 é"
)


def show_job(name: str, job: Job, **style: Any) -> str:
    return str(report.load(name).render(job, Style(**style)))


@cache
def nasty() -> Job:
    """Return a job in which every text is hostile."""
    job = nccl_inspect.read(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    line = Evidence(NASTY, 7, NASTY)
    job.sources[0].name = NASTY
    job.sources[0].problem = NASTY
    names = ("gdr-disabled", "p2p-read-mode", "shm-segment-failed")
    rules = {entry.rule.name: entry.rule for entry in list_rules()}
    found = [
        Finding(
            name, rules[name].category, severity, "likely", NASTY, NASTY, NASTY, [NASTY], [0], [NASTY], [line, line]
        )
        for name, severity in zip(names, ("warning", "info", "error"), strict=True)
    ]
    job.findings = found[:2]
    job.suppressed = [Suppressed(found[2], NASTY)]
    job.not_judged = [NotJudged("mixed-networks", NASTY, Needs(NASTY))]
    job.nccl_versions = [NASTY]
    job.platform = job.network.name = NASTY
    job.hosts[0].name = NASTY
    ((*ends, comms, kind),) = job.paths.values("src_gpu", "dst_gpu", "communicators", "kind")
    row = 0, 1, NASTY, "vm", *ends, comms, kind.with_fields(detail=NASTY)
    job.paths = Paths(Table(columns_of([row]), job.paths.table.lines))
    job.verdict = "degraded"
    return job


@sample_data.one_or_all("peer-killed", "v2.30.7-shm-4gpu")
def test_no_control_characters_reach_a_report(names: tuple[str, ...]) -> None:
    for form in FORMATS:
        for name in names:
            text = show_job(form, sample_data.job(name))
            assert text.endswith("\n") and not CONTROL.search(text), (form, name)
    for name in report.names():
        for verbose in (False, True):
            assert not CONTROL.search(show_job(name, nasty(), verbose=verbose)), name


@pytest.mark.slow
def test_a_format_loads_only_its_own_library() -> None:
    own = {"junit": ["junitparser"], "prometheus": ["prometheus_client"]}
    for form in report.names():
        code = (
            f"import sys\nfrom nccl_inspect import report\nreport.load({form!r})\n"
            "print(*(name for name in ('junitparser', 'prometheus_client') if name in sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split() == own.get(form, []), form


def prose(text: str) -> str:
    """Return Markdown without what stands in code, and without the marks of what is folded away."""
    text = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    text = re.sub(
        r"^<details><summary>[\w :]+</summary>$|^</details>$|^<sub>nccl-inspect [\w.]+</sub>$", "", text, flags=re.M
    )
    return text.replace("<!-- -->", "")


def test_in_markdown_nothing_of_a_log_is_markup() -> None:
    text = prose(show_job("markdown", nasty(), verbose=True))
    assert not re.search(r"(?<!\\)[`*_<>~$\[\]&|](?<!\*\*)", re.sub(r"^\|.*|\*\*[\w ]+:?\*\*", "", text, flags=re.M))
    for line in re.findall(r"^\|.*", text, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) in (3, 7), line
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == len(
        re.findall(r"^#+ (?:(?:DEGRADED|UNKNOWN): |Paths$|Findings$|WARNING |INFO |Accepted$|Not judged$)", text, re.M)
    )


def test_markdown_calls_nobody_and_refers_to_nothing() -> None:
    text = show_job("markdown", nasty())
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^(?:- (?:\*\*do:\*\* )?|To capture it: )(`+).*\1$", "", outside, flags=re.MULTILINE)
    assert "octocat" in outside
    assert not re.search(r"[@#]\w|GH-\d", outside)


def test_a_fence_of_markdown_is_longer_than_any_in_the_log() -> None:
    job = sample_data.job("v2.30.7-shm-4gpu")
    finding = replace(job.findings[0], evidence=[Evidence(job.sources[0].name, 1, "```` x")])
    text = show_job("markdown", replace(job, findings=[finding]))
    assert "\n`````text\njob.log:1: ```` x\n`````\n" in text


def test_markdown_cuts_long_lines_unless_all_is_wanted() -> None:
    job = sample_data.job("v2.30.7-shm-4gpu")
    job = replace(job, findings=[replace(job.findings[0], evidence=[Evidence(job.sources[0].name, 1, "x" * 9000)])])
    assert max(map(len, show_job("markdown", job).splitlines())) < 2000
    assert "x" * 9000 in show_job("markdown", job, verbose=True)


def sarif(job: Job) -> dict[str, Any]:
    document = json.loads(show_job("sarif", job))
    SARIF.validate(document)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


@every(4)
def test_sarif_keeps_the_schema_and_points_at_lines(step: int) -> None:
    levels = {"error": "error", "warning": "warning", "info": "note"}
    for name in sample_data.names()[::step]:
        job = sample_data.job(name)
        run = sarif(job)
        rules = run["tool"]["driver"]["rules"]
        for result, finding in zip(run["results"], job.findings, strict=True):
            rule = rules[result["ruleIndex"]]
            assert rule["id"] == result["ruleId"] == finding.rule
            assert rule["fullDescription"]["text"]
            assert "## What to do" in rule["help"]["markdown"]
            assert "log raises" not in rule["help"]["markdown"]
            assert result["level"] == levels[finding.severity]
            (place,) = result["locations"]
            assert place["physicalLocation"]["region"]["startLine"] == finding.evidence[0].line
            assert len(result["relatedLocations"]) == len(finding.evidence) - 1
            assert result["message"]["text"].startswith(escape_controls(finding.summary))
            assert result["suppressions"] == []
        places = [one for result in run["results"] for one in result["locations"] + result["relatedLocations"]]
        assert all(URI.fullmatch(one["physicalLocation"]["artifactLocation"]["uri"]) for one in places)
        notes = run["invocations"][0]["toolExecutionNotifications"]
        asked = [note["associatedRule"]["id"] for note in notes if "associatedRule" in note]
        assert asked == [question.rule for question in job.not_judged]
        assert len(notes) - len(asked) == len(job.unexplained)


def test_sarif_of_a_hostile_log_keeps_the_schema() -> None:
    run = sarif(nasty())
    assert all(URI.fullmatch(artifact["location"]["uri"]) for artifact in run["artifacts"])
    accepted = run["results"][-1]["suppressions"]
    assert [(one["kind"], one["justification"][:4]) for one in accepted] == [("external", "a|b ")]


def test_fingerprints_are_unique_and_do_not_depend_on_hosts_pids_and_lines() -> None:
    (data,) = sample_data.contents("efa-provider-missing-socket-fallback")
    other = b"preamble\n" + data.replace(b"llama-3-8b", b"other-job").replace(b":2511:", b":99:")
    runs = [sarif(nccl_inspect.read(text)) for text in (data, other)]
    prints = [[result["partialFingerprints"]["ncclInspectFinding/v1"] for result in run["results"]] for run in runs]
    assert prints[0] == prints[1]
    assert len(set(prints[0])) == len(prints[0]) > 1


def test_names_of_sources_become_uris() -> None:
    job = sample_data.job("v2.30.7-shm-4gpu")
    for name, uri in {
        "logs/a b.log": "logs/a%20b.log",
        "/tmp/job.log": "file:///tmp/job.log",
        "<stdin>": "%3Cstdin%3E",
        "logs.tar.gz:x/a.log": "logs.tar.gz%3Ax/a.log",
    }.items():
        finding = replace(job.findings[0], evidence=[Evidence(name, 1, "x")])
        (result,) = sarif(replace(job, findings=[finding]))["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def junit(job: Job) -> dict[str, TestCase]:
    read = JUnitXml.fromstring(show_job("junit", job).encode())
    cases = {f"{suite.name}/{case.name}": case for suite in read for case in suite}
    results = Counter(type(result) for case in cases.values() for result in case.result)
    assert (read.tests, read.failures, read.errors, read.skipped) == (
        len(cases),
        results[Failure],
        results[Error],
        results[Skipped],
    )
    return cases


def test_junit_has_a_failure_for_each_rule_that_finds_more_than_an_info() -> None:
    for name in sample_data.names():
        job = sample_data.job(name)
        cases = junit(job)
        failed = {case.name for case in cases.values() for result in case.result if isinstance(result, Failure)}
        bad = {finding.rule for finding in job.findings if finding.severity != "info"}
        assert failed == bad | ({"verdict"} if job.verdict in ("degraded", "failed") else set()), name
        skipped = {case.name for case in cases.values() for result in case.result if isinstance(result, Skipped)}
        assert {question.rule for question in job.not_judged} - bad <= skipped, name


def test_junit_of_a_hostile_log_is_read_back() -> None:
    cases = junit(nasty())
    (failure,) = cases["gpudirect/gdr-disabled"].result
    assert "<img src=x" in failure.message
    (accepted,) = next(case.result for name, case in cases.items() if name.endswith("/shm-segment-failed"))
    assert accepted.message.startswith("accepted: a|b")
    assert any(isinstance(result, Error) for case in cases.values() for result in case.result)


def commands(job: Job) -> list[re.Match[str]]:
    """Return the workflow commands; there is nothing else."""
    found = [COMMAND.fullmatch(line) for line in show_job("github", job).splitlines()]
    assert all(found)
    return [one for one in found if one]


def list_unescaped(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_github_gets_a_command_for_the_verdict_and_each_finding() -> None:
    names = {"error": "error", "warning": "warning", "info": "notice"}
    for name in sample_data.names():
        job = sample_data.job(name)
        verdict, *rest = commands(job)
        assert verdict["text"].startswith(job.verdict.upper())
        findings = [one for one in rest if one["name"] != "debug" and one["title"] != "no rule explains it"]
        assert len(rest) - len(findings) == len(job.unexplained) + len(job.not_judged)
        for command, finding in zip(findings, job.findings, strict=True):
            assert command["name"] == names[finding.severity]
            assert (command["file"], command["line"]) == (finding.evidence[0].source, str(finding.evidence[0].line))
            assert command["title"].startswith(finding.rule)
            assert list_unescaped(command["text"]).startswith(escape_controls(finding.summary))


def test_a_hostile_log_cannot_forge_a_command() -> None:
    text = show_job("github", nasty())
    assert len(text.splitlines()) == len(commands(nasty())) == 6
    assert not re.search(r"^::error::forged", text, re.MULTILINE)
    assert "%2C" in text and "%3A" in text and "%25" in text


def metrics(job: Job) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(show_job("prometheus", job)):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.timestamp is None, "the textfile collector refuses time stamps"
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_metrics_add_up() -> None:
    for name in sample_data.names():
        job = sample_data.job(name)
        found = metrics(job)
        assert found["nccl_inspect_info"] == {(("version", __version__),): 1}
        verdicts = {dict(labels)["verdict"]: value for labels, value in found["nccl_inspect_verdict"].items()}
        assert (len(verdicts), [verdict for verdict, value in verdicts.items() if value]) == (4, [job.verdict])
        for key, listed in {"findings": job.findings, "paths": job.paths, "not_judged": job.not_judged}.items():
            assert sum(found.get(f"nccl_inspect_{key}", {}).values()) == len(listed), (name, key)
        lines = {dict(labels)["kind"]: value for labels, value in found["nccl_inspect_log_lines"].items()}
        assert lines["all"] == sum(source.lines for source in job.sources)


def test_metrics_of_a_hostile_log_are_read_back() -> None:
    found = metrics(nasty())
    (labels,) = found["nccl_inspect_paths"]
    assert dict(labels)["path"] == escape_controls(NASTY)


def test_a_long_name_of_a_source_leaves_room_for_the_line_and_the_message() -> None:
    name = f"{'job-of-the-night-' * 8}rank-3.log"
    text = b"node-a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
    job = nccl_inspect.read(text)
    for finding in job.findings:
        finding.evidence[:] = [Evidence(name, line.line, line.text) for line in finding.evidence]
    job.sources[0].name = name
    for width in (60, 100):
        cited = [line for line in show_job("text", job, width=width).splitlines() if "rank-3.log:1: " in line]
        assert cited and all(len(line) <= width for line in cited), cited
        assert any(re.search(r"rank-3\.log:1: …NCCL", line) for line in cited), cited
