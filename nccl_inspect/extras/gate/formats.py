"""The formats of `check` and `diff`: functions that render a checked policy, or two compared runs, as text.

:data:`CHECK_FORMATS` and :data:`DIFF_FORMATS` list them. What several formats say in the same words comes first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nccl_inspect.extras.gate.differences import CausalChain, Change, Difference
from nccl_inspect.extras.gate.policy import STATES, Answer, Checked
from nccl_inspect.model.document import clean, evidence_to_dict, finding_to_dict
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Job
from nccl_inspect.report import Format, Style, digest, words
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, list_words, some_names

CHECK_SCHEMA, DIFF_SCHEMA = "nccl-inspect-check/1", "nccl-inspect-diff/1"
SIGNS = {"new": "+", "gone": "-", "changed": "~"}
_COLORS = {"broken": "error", "undecided": "warning", "kept": "ok", "new": "warning", "gone": "info", "changed": "bold"}
_HANG = 11
_MAX_HOSTS = 3
_TEXTS = ("summary", "cause", "impact", "fix")
_KEYS_OF_FINDINGS = ("rule", "severity", "confidence", "action", *_TEXTS, "ranks", "evidence")
"""What a report of a policy needs of a finding; the rest is in the document of the job."""


def _quote_line(line: Evidence) -> str:
    return f"{line.source}:{line.line}: {line.text}"


def _paint_block(
    label: str, text: str, word: str, color: str, style: Style, *, indent: int = 0, hang: int = 0
) -> Iterator[str]:
    first, *rest = words.block(label, escape_controls(text), style, indent=indent, hang=hang)
    yield first.replace(word, words.paint(word, color, style), 1)
    yield from rest


# Check

_STEP = {"broken": "fix", "undecided": "needs"}
"""What the step is called: what is undecided needs another log, and no fix."""


def _headline(checked: Checked, strict: bool) -> tuple[str, str]:
    word = checked.state.upper() if checked.is_met(strict) else "BROKEN"
    counts = ", ".join(f"{len(outcomes)} {state}" for state in STATES if (outcomes := checked.list_outcomes(state)))
    why = "; with --strict, undecided counts as broken" if checked.state == "undecided" and strict else ""
    partial = "; partial: the reading was interrupted" if checked.job.partial else ""
    return word, f"{counts or 'no expectation'}{why}{partial}"


def _sentence(outcome: Answer) -> str:
    return f"{outcome.summary}, wanted: {outcome.wanted}"


def _first_place(evidence: Sequence[Evidence]) -> str:
    more = f" and {count(len(evidence) - 1, 'more line')}" if len(evidence) > 1 else ""
    return f"{evidence[0].source}:{evidence[0].line}{more}" if evidence else ""


def _group_by_fix(checked: Checked) -> Iterator[tuple[str, str, list[Answer]]]:
    open_outcomes = [outcome for outcome in checked.outcomes if outcome.state != "kept"]
    groups = group_values(((outcome.state, outcome.todo), outcome) for outcome in open_outcomes)
    yield from ((*key, outcomes) for key, outcomes in groups.items())


def _level(outcome: Answer, strict: bool) -> str:
    return "error" if strict or outcome.state == "broken" else "warning"


def _check_text(checked: Checked, strict: bool, style: Style) -> str:
    def list_lines(outcomes: list[Answer]) -> Iterator[str]:
        for outcome in outcomes:
            state, text = outcome.state, f"{outcome.key}: {_sentence(outcome)}"
            yield from _paint_block(state, text, state, _COLORS[state], style, hang=_HANG)
            if where := _first_place(outcome.evidence):
                yield from words.block("", escape_controls(where), style, indent=0, hang=_HANG)

    word, counts = _headline(checked, strict)
    parts = [list(_paint_block("", f"{word}: {checked.policy}: {counts}", word, _COLORS[word.lower()], style))]
    for state, todo, outcomes in _group_by_fix(checked):
        step = words.step_block(_STEP[state], escape_controls(todo), style, indent=0, hang=_HANG)
        parts.append([*list_lines(outcomes), *step])
    if style.verbose and (kept := checked.list_outcomes("kept")):
        parts.append([*list_lines(kept)])
    return "\n\n".join(map("\n".join, parts)) + "\n"


def _check_markdown(checked: Checked, strict: bool, style: Style) -> str:
    head = ("", "expectation", "found", "wanted", "line")

    def list_rows(outcomes: list[Answer]) -> Iterator[list[str]]:
        for outcome in outcomes:
            texts = (outcome.key, outcome.summary, outcome.wanted, _first_place(outcome.evidence))
            yield [f"**{outcome.state}**", *map(words.escape_markdown, texts)]

    word, counts = _headline(checked, strict)
    parts = [f"## {word}: {words.escape_markdown(checked.policy)}", words.escape_markdown(counts)]
    for state, todo, outcomes in _group_by_fix(checked):
        parts += [
            words.markdown_table(head, list_rows(outcomes)),
            f"**{_STEP[state].capitalize()}:**\n{words.step_item(todo)}",
        ]
        if lines := list(dict.fromkeys(_quote_line(line) for outcome in outcomes for line in outcome.evidence)):
            parts.append(words.folded_lines(f"Evidence: {count(len(lines), 'line')}", lines, style))
    if style.verbose and (kept := checked.list_outcomes("kept")):
        parts.append(words.markdown_table(head[:-1], (row[:-1] for row in list_rows(kept))))
    return "\n\n".join(parts) + "\n"


def check_document(checked: Checked, strict: bool) -> dict[str, Any]:
    """Return a checked policy as the document ``nccl-inspect-check/1``, whose schema is in the package."""
    expectations = [
        pick_fields(outcome, "key", "wanted", "state", "summary", "todo")
        | {"rule": outcome.rule or None, "ranks": outcome.ranks}
        | {"evidence": list(map(evidence_to_dict, outcome.evidence))}
        for outcome in checked.outcomes
    ]
    findings = [{key: whole[key] for key in _KEYS_OF_FINDINGS} for whole in map(finding_to_dict, checked.findings)]
    document: dict[str, Any] = clean(
        {
            **{"schema": CHECK_SCHEMA, "policy": checked.policy, "config": checked.job.config},
            "sources": [source.name for source in checked.job.sources],
            **{"state": checked.state, "strict": strict, "is_met": checked.is_met(strict)},
            **pick_fields(checked.job, "verdict", "partial"),
            **{"expectations": expectations, "findings": findings},
        }
    )
    return document


def _check_junit(checked: Checked, strict: bool, _style: Style) -> str:
    from junitparser import Skipped

    from nccl_inspect.report import junit

    by_key = group_values((outcome.key, outcome) for outcome in checked.outcomes)
    by_key.pop("log", None)  # an input that could not be read is an error
    cases = []
    for key, outcomes in by_key.items():  # with the worst: a case has one result in most viewers
        case, first = junit.new_case(key, "policy"), outcomes[0]
        cases.append(case)
        if first.state == "kept":
            case.system_out = escape_controls(first.summary)
            continue
        if _level(first, strict) != "error":
            case.result = [Skipped(escape_controls(f"{_sentence(first)}; {first.todo}"))]
            continue
        texts = []
        for outcome in outcomes:
            step = f"{_STEP.get(outcome.state, 'needs'):10}{outcome.todo}"
            lines = [_sentence(outcome), step, *(f"evidence  {_quote_line(line)}" for line in outcome.evidence)]
            if finding := next((finding for finding in checked.findings if finding.rule == outcome.rule), None):
                lines += ["", *junit.lines(finding)]
            texts.append("\n".join(lines))
        more = f" (and {len(outcomes) - 1} more)" if len(outcomes) > 1 else ""
        case.result = [junit.failure(_sentence(first) + more, first.state, "\n\n".join(texts))]
    return junit.document([junit.suite("policy", [*cases, *junit.list_unread(checked.job)])])


def _check_github(checked: Checked, strict: bool, _style: Style) -> str:
    from nccl_inspect.report.github import annotation, list_unread

    word, counts = _headline(checked, strict)
    kind, text = "notice" if checked.is_met(strict) else "error", f"{word}: {checked.policy}: {counts}"
    commands = [annotation(kind, "nccl-inspect check", text), *list_unread(checked.job)]
    for outcome in checked.outcomes:
        if outcome.state != "kept" and outcome.key != "log":
            parts = [f"{outcome.state}: {_sentence(outcome)}", f"{_STEP[outcome.state]}: {outcome.todo}"]
            parts += [f"finding: {outcome.rule}"] if outcome.rule else []
            parts += [f"evidence: {_quote_line(line)}" for line in outcome.evidence[:1]]
            commands.append(annotation(_level(outcome, strict), outcome.key, "\n".join(parts), outcome.evidence))
    return "\n".join(commands) + "\n"


CHECK_FORMATS = {
    "text": Format(_check_text),
    "github": Format(_check_github),
    "json": Format(lambda checked, strict, _style: json.dumps(check_document(checked, strict), indent=1) + "\n"),
    "junit": Format(_check_junit, ("xml",)),
    "markdown": Format(_check_markdown, ("md",)),
}

# Diff


def _head_words(difference: Difference) -> tuple[str, str]:
    limits = " as far as they can be compared" if difference.open else ""
    what = "versions, network, world, environment, communicators, paths and findings"
    changes = f"DIFFERENT: {count(len(difference.changes), 'change')}" if difference.changes else ""
    names = some_names((f"{name} is {other}" for name, other in difference.renamed.items()), _MAX_HOSTS)
    renamed = f"hosts have different names in B and are compared by rank: {names}" if names else ""
    return changes or f"SAME: no difference in {what}{limits}", renamed


def _run_words(job: Job) -> str:
    names = some_names([source.name for source in job.sources], 2)
    size = count(job.world_size, "rank") if job.world_size else "world size not in the log"
    hosts = count(len(job.hosts), "host")
    read = f"; partial: {digest.describe_interruption(job)}" if job.partial else ""
    return f"{job.verdict.upper()}: {names}: {size} on {hosts}, NCCL {', '.join(job.nccl_versions) or 'unknown'}{read}"


def chain_words(chain: CausalChain) -> str:
    """Return a chain in words: its causes, the findings wave by wave, its effects."""
    waves: list[list[Change]] = [[]]
    for change in chain.findings:  # effects of the same cause together, their effects in the next wave
        if any(cause.what in change.rules for cause in waves[-1]):
            waves.append([])
        waves[-1].append(change)
    findings = [[f.what if f.kind == "new" else f"{f.what} ({f.kind})" for f in wave] for wave in waves]
    steps = [list(map(_chain_step, chain.causes)), *findings, list(map(_chain_step, chain.effects))]
    return " -> ".join(f"{', '.join(step[:-1])} and {step[-1]}" if len(step) > 1 else step[0] for step in steps if step)


def _chain_step(change: Change) -> str:
    what = _pairs(change) if change.pairs else change.what
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={change.before or change.after} is {change.kind}"
    if change.kind == "changed":
        return f"{what} {change.before} => {change.after}"
    return f"{what} {change.before or change.after} ({change.kind})"


def _proof(chain: CausalChain) -> list[str]:
    lines = chain.findings[0].evidence
    shared = [line for cause in chain.causes for line in cause.evidence if line in lines]
    return [_quote_line(line) for line in (shared or lines)[:1]]


def _find_unexplained(difference: Difference) -> list[Change]:
    explained = {id(change) for chain in difference.explanations for change in chain.findings}
    return [one for one in difference.changes if one.area == "findings" and one.fix and id(one) not in explained]


def _change_words(change: Change) -> str:
    arrow = f"{change.before} => {change.after}" if change.kind == "changed" else str(change.before or change.after)
    if change.area == "paths":
        return f"{_pairs(change)}: {arrow}" + {"new": " only in B", "gone": " only in A"}.get(change.kind, "")
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={arrow}"
    if change.area == "verdict" or (change.area == "communicators" and change.kind != "changed"):
        return arrow
    if change.area == "findings" and change.kind == "new":
        return f"{change.what}: {change.after}" + "".join(f"; {e.source}:{e.line}" for e in change.evidence[:1])
    return f"{change.what}: {arrow}"


def _pairs(change: Change) -> str:
    some = list_words((f"{src}->{dst}" for src, dst in change.pairs), 3)
    scope = f" {change.what}" if change.what != "unknown" else ""
    return f"{count(len(change.pairs), 'pair')}{scope} ({some})"


def _diff_text(difference: Difference, style: Style) -> str:
    def list_fix(steps: list[str]) -> Iterator[str]:
        for index, text in enumerate(steps):
            label = "fix" if index == 0 or style.width < words.NARROW else ""
            yield from words.step_block(label, escape_controls(text), style, indent=4, hang=5)

    headline, hosts = _head_words(difference)
    first = words.block("", headline, style, indent=0, hang=0)
    for label, job in (("A", difference.a), ("B", difference.b)):
        first += _paint_block(
            label, _run_words(job), job.verdict.upper(), words.verdict_color(job.verdict), style, hang=3
        )
    first += words.block("", escape_controls(hosts), style, indent=0, hang=0) if hosts else []
    parts = [first]
    if difference.explanations:
        parts.append([words.paint("what likely explains what", "bold", style)])
    for chain in difference.explanations:
        parts[-1] += words.block("", escape_controls(chain_words(chain)), style, indent=2, hang=0)
        for line in _proof(chain):
            parts[-1] += [
                words.paint(t, "dim", style) for t in words.block("", escape_controls(line), style, indent=4, hang=0)
            ]
        parts[-1] += list_fix(chain.fix)
    lonely = _find_unexplained(difference)
    for area, changes in group_values((change.area, change) for change in difference.changes).items():
        parts.append([words.paint(area, "bold", style)])
        for change in changes:
            sign, color = SIGNS[change.kind], _COLORS[change.kind]
            parts[-1] += _paint_block(sign, _change_words(change), sign, color, style, indent=2, hang=2)
            parts[-1] += list_fix(change.fix[:1]) if change in lonely else []
    if difference.open:
        lines = [
            line for text in difference.open for line in words.block("", escape_controls(text), style, indent=2, hang=0)
        ]
        parts.append([words.paint("not compared", "bold", style), *lines])
    return "\n\n".join(map("\n".join, parts)) + "\n"


def diff_document(difference: Difference) -> dict[str, Any]:
    """Return two compared runs as the document ``nccl-inspect-diff/1``, whose schema is in the package."""
    numbers = {id(change): number for number, change in enumerate(difference.changes)}
    sides = ("causes", "findings", "effects")
    document: dict[str, Any] = clean(
        {
            "schema": DIFF_SCHEMA,
            "is_same": not difference.changes,
            **{
                name: {"sources": [source.name for source in job.sources]}
                | pick_fields(job, "verdict", "partial", "world_size", "nccl_versions", "config")
                for name, job in (("a", difference.a), ("b", difference.b))
            },
            "renamed_hosts": [{"a": name, "b": other} for name, other in difference.renamed.items()],
            "changes": [
                pick_fields(change, "area", "what", "kind", "before", "after", "pairs", "ranks", "rules")
                | {"evidence": list(map(evidence_to_dict, change.evidence))}
                | {"severity": change.severity or None, "fix": change.fix}
                for change in difference.changes
            ],
            "explanations": [
                {side: [numbers[id(change)] for change in getattr(chain, side)] for side in sides} | {"fix": chain.fix}
                for chain in difference.explanations
            ],
            "not_compared": difference.open,
        }
    )
    return document


DIFF_FORMATS = {
    "text": Format(_diff_text),
    "json": Format(lambda difference, _style: json.dumps(diff_document(difference), indent=1) + "\n"),
}
