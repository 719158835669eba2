"""What is known of a log must come out: `*.toml` here says of each input what happened to it. No program writes them.

An entry is named for its input, as in `tests/answers`. `lead` is the rule of the finding that leads ("" if nothing but
notes may be found), `finding` that of one that must be there; `ranks`, `hosts`, `severity`, `confidence` and `words`
are about it, and `culprits`, the first ones. `faults`, `notes`, `open` and `roots` list all there is, `rules` the first
ones, `without` what may not be found; `because` names the causes of findings. `states` is about any field of the JSON
document by its path: `*` gathers the values of a list, each once; "" is null. `unused` says of each file beside the log
that was not used why; `jobs` are those of an input that holds several, each with its verdict and its ranks, `runs` the
number of earlier ones, `members` the ranks of each host; `communicators` and `paths` are told as in answers. What is
`like` another input has its verdict, paths and communicators.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from answers import CORPORA, Input, inputs_of

from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

FOLDER = Path(__file__).parent
KEYS = {
    *("what", "platform", "verdict", "lead", "finding", "ranks", "hosts", "severity", "confidence", "words", "astray"),
    *("faults", "notes", "open", "rules", "roots", "without", "because", "culprits", "states", "unrecognised"),
    *("unused", "jobs", "runs", "members", "communicators", "paths", "like"),
}
AS_ANSWERED = ("communicators", "paths")
ABOUT_FINDING = ("ranks", "hosts", "severity", "confidence")


@cache
def labels() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return each input's label, with the name of its file."""
    files = {file.name: tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.toml"))}
    return {name: (file, label) for file, entries in files.items() for name, label in entries.items()}


@cache
def inputs() -> dict[str, Input]:
    """Return all recorded inputs by their names."""
    return {one.name: one for corpus in CORPORA for one in inputs_of(corpus)}


def contradictions(one: Input, job: Job, answered: dict[str, Any]) -> Iterator[str]:
    """Yield how an input's job and answer differ from what is known of it."""
    file, label = labels()[one.name]
    if "platform" in label:
        job = one.read(platform=label["platform"])
    yield from _other_outcome(job, label)
    for key in label.keys() & set(AS_ANSWERED):
        if label[key] != answered.get(key, {}):
            yield f"{key} {answered.get(key)}, known: {label[key]}"
    if "like" in label and _outcome(job) != _outcome(inputs()[label["like"]].read()):
        yield f"another verdict, path or communicator than in {label['like']}"
    if not file.startswith("built_") and len(job.unrecognised) != label.get("unrecognised", 0):
        yield f"not recognised: {[one.template for one in job.unrecognised]}"


def _other_outcome(job: Job, label: dict[str, Any]) -> Iterator[str]:
    """Yield how a job differs from its label."""
    if label.get("verdict", job.verdict) != job.verdict:
        yield f"verdict {job.verdict}, known: {label['verdict']}"
    shown: dict[str, Any] = {
        "faults": [f"{one.severity} {one.rule} ({one.confidence})" for one in job.findings if one.severity != "info"],
        "notes": [one.rule for one in job.findings if one.severity == "info"],
        "open": [question.rule for question in job.not_judged],
        "rules": [one.rule for one in job.findings][: len(label.get("rules", job.findings))],
        "jobs": [f"{one.verdict} {one.ranks}" for one in job.jobs],
        "runs": len(job.earlier_runs),
        "members": {host.name: host.ranks for host in job.hosts},
        "unused": {Path(entry.name).name: entry.problem for entry in job.artifacts if entry.problem},
        "roots": [one.rule for one in job.findings if one.root],
    }
    for key, found in shown.items():
        if label.get(key, found) != found:
            yield f"{key} {found}, known: {label[key]}"
    yield from _other_states(job, label)
    subject = _subject(job, label)
    if subject is None:
        if label.get("lead") or label.get("finding"):
            yield f"no {label.get('lead') or label.get('finding')} among {shown['rules']}"
        return
    if label.get("lead", subject.rule) != subject.rule:
        yield f"{subject.rule} leads, known: {label['lead'] or 'no fault'}"
    for key in ABOUT_FINDING:
        if (found := getattr(subject, key)) != label.get(key, found):
            yield f"{subject.rule}: {key} {found}, known: {label[key]}"
    culprits = [f"{culprit.kind} {culprit.name}" for culprit in subject.culprits]
    if (known := label.get("culprits")) is not None and known != culprits[: len(known) or None]:
        yield f"{subject.rule}: culprits {culprits}, known: {known}"
    parts = (subject.summary, subject.cause, subject.impact, *subject.fix, subject.confirm, subject.where, *culprits)
    text = "\n".join(parts)
    if missing := [word for word in label.get("words", ()) if word not in text and word not in _join_words(subject)]:
        yield f"{subject.rule}: its texts do not hold {missing}:\n{text}"
    if astray := [word for word in label.get("astray", ()) if word in text]:
        yield f"{subject.rule}: its texts hold {astray}"


def _outcome(job: Job) -> tuple[object, ...]:
    paths = [(path.src, path.dst, path.detail, path.verdict, path.channels) for path in job.paths]
    return job.verdict, paths, [(comm.id, comm.ranks, comm.state) for comm in job.communicators]


def _other_states(job: Job, label: dict[str, Any]) -> Iterator[str]:
    """Yield what is not as known of other findings, and of the job as a whole."""
    if unwanted := {one.rule for one in job.findings} & {*label.get("without", ())}:
        yield f"{sorted(unwanted)} found, known: there is no such fault"
    because = {one.rule: one.because for one in job.findings}
    for rule, causes in label.get("because", {}).items():
        if because.get(rule) != causes:
            yield f"{rule} because of {because.get(rule)}, known: {causes}"
    document = job.to_dict() if "states" in label else {}
    for path, known in label.get("states", {}).items():
        if (found := _state(document, path)) != known:
            yield f"{path} {found!r}, known: {known!r}"


def _subject(job: Job, label: dict[str, Any]) -> Finding | None:
    """Return the finding that a label is about: the one it names, or the one that leads."""
    if "finding" in label:
        return next((one for one in job.findings if one.rule == label["finding"]), None)
    roots = [finding for finding in job.findings if finding.root]
    if label.get("lead") == "":
        roots = [finding for finding in roots if finding.severity != "info" and finding.category != "log-quality"]
    return roots[0] if roots else None


def _state(value: Any, path: str) -> Any:
    """Return what stands at a path of a document."""
    part, _, rest = path.partition(".")
    if part == "*":
        found = [_state(one, rest) for one in value]
        return [one for at, one in enumerate(found) if one not in found[:at]]
    if part and value is not None:
        return _state(value[int(part) if part.isdigit() else part], rest)
    return "" if value is None else value


def _join_words(finding: Finding) -> str:
    return f"{finding.summary}; {finding.cause}"
