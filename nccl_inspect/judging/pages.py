"""Rules that are one page: a block below the title says what they find, and the rest of the page explains it.

::

    # msccl-unusable
    ```rule
    category: environment
    severity: info
    title: RCCL cannot use a prepared algorithm (MSCCL)
    summary: RCCL cannot use an MSCCL algorithm: {message}
    cause: the files with prepared algorithms are missing, damaged, or made for another number of GPUs
    impact: RCCL continues with rings and trees, somewhat slower for small messages
    fix: unset MSCCL_ALGO_DIR MSCCL_ALGO_FILE   # uses the files of RCCL's own package
    when: failed
    confidence: likely
    ```

A line that begins with two blanks continues the value above it. What precedes ``summary`` is the declaration, with the
fields of :class:`~nccl_inspect.judging.engine.Rule`, and:

* ``about``: which statements the finding is about, those of the first such line first. ``errors`` (the default) are
  those whose productions name the rule (``rule: NAME``); else a word of ``page_words.SOURCES`` or the names of
  productions, such as ``nccl/no-transport``. Behind it may follow ``saying TEXT`` or ``where FIELD=VALUE, …``. ``¦``
  separates texts or values of which one is enough; ``FIELD`` alone stands for any value, and ``FIELD=`` for none.
* ``beside``: statements that are added to these where there are some.
* ``unless``: a condition under which the rule is silent.

The rest are the arguments of :meth:`Rule.finding`: ``summary``, ``cause``, ``impact``, ``fix`` (one line for each
step), ``first`` and ``last`` (steps around these), ``confirm``, ``severity``, ``confidence`` and ``fatal: yes``. With
``stops`` instead of ``impact``, how the job continued decides what the impact is (:func:`stated_errors.finding`);
``deadly: yes`` is for what no job survives. ``fix: @NAME`` is a step of :mod:`nccl_inspect.judging.remedies`.

``when`` begins other values for some of these keys, for that condition, or for one of several; ``about`` for these
statements, where there are none of those above. ``case`` in front of it has the words that follow "If" on the page. Of
the cases that hold, the first that has a key gives its value. Conditions are ``page_words.CONDITIONS``.

``{message}``, ``{text}`` and ``{count}`` stand for the message of the first statement, its text without what its
program puts in front, and the number of statements (``{count NOUN}`` with a noun); the name of a field in braces for
its value in the first statement that has one, ``{all FIELD}`` for its values. Other braces stand for themselves.

Where a rule compares facts, the module beside the page has a function ``find(facts)`` and no sentence. It yields what
it found (:class:`~nccl_inspect.judging.page_words.Hit`), with values for names in braces, and the names of what is so,
for the condition ``is NAME``. A step with a value that is empty is left out.
"""

import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from nccl_inspect.errors import PageError
from nccl_inspect.grammar.layers import BY_NAME
from nccl_inspect.judging import remedies, stated_errors
from nccl_inspect.judging.engine import CATEGORIES, SEVERITIES, Facts, Registered, Results, Rule
from nccl_inspect.judging.page_words import LACKING, PLACEHOLDER, Hit, condition, fill_in, is_met, statements_of
from nccl_inspect.model.finding import Finding

_Entries = Mapping[str, list[str]]

_FENCE = "\n```rule\n"
_LISTS = ("may_cause", "shows", "tells", "supersedes")
_SWITCHES = ("nest_under_effect", "local")
_DECLARED = {*_LISTS, *_SWITCHES, "category", "title", "severity", "layer", "cloud", "about", "beside", "unless"}
_STEPS = ("first", "fix", "last")
_SAYS = {*_STEPS, "summary", "cause", "impact", "stops", "confirm", "severity", "confidence", "fatal", "deadly"}
_CASE = {*_SAYS, "case", "when", "about"}
_OPENERS = ("case: ", "when: ", "about: ")
_SHOWN = {*_STEPS, "impact", "stops"}
"""What pages show of a case, in words that follow "If"."""
_REPEATED = (*_STEPS, "about", "beside", "unless", "when")
_ALLOWED = {
    "category": CATEGORIES,
    "severity": SEVERITIES,
    "confidence": ("certain", "likely", "possible"),
    "layer": tuple(BY_NAME),
    **dict.fromkeys((*_SWITCHES, "fatal", "deadly"), ("yes", "no")),
}
_SECTIONS = ("What it means", "Why it matters", "What to do", "When to ignore it", "What it does not prove")
_WIDTH = 120


def registered(folder: Path, modules: Iterable[str]) -> Iterator[Registered]:
    """Yield the rules that have a page and no module; only what precedes ``summary`` is parsed.

    Raises:
        PageError: a page has no block, or a wrong declaration.
    """
    names = {entry.name[:-3] for entry in os.scandir(folder) if entry.name.endswith(".md")}
    for name in names.difference(modules):
        rule, entries, block = _read(folder, name)
        yield Registered(rule, partial(_judge, rule, entries, block))


def pair_with_module(folder: Path, name: str, find: Callable[[Facts], Iterable[Hit]]) -> Registered:
    """Return the rule of a page whose module has a ``find(facts)`` and no declaration.

    Raises:
        PageError: the page has no block, or a wrong declaration.
    """
    rule, _, block = _read(folder, name)
    return Registered(rule, partial(_judge_hits, rule, find, block))


def _read(folder: Path, name: str) -> tuple[Rule, _Entries, str]:
    """Return the rule of a page, its declaration and the rest of its block."""
    declared, mark, block = split((folder / f"{name}.md").read_text(encoding="utf-8"))[0].partition("\nsummary: ")
    if not mark:
        raise PageError(f"{name}.md: the rule has neither a module nor a block with a summary")
    entries = _entries(declared, _DECLARED, name)
    return _rule(name, entries), entries, f"summary: {block}"


def split(text: str) -> tuple[str, str]:
    """Return the block of a page and the page without it; an empty block for a rule that is a module."""
    title, mark, rest = text.partition(_FENCE)
    if not mark or "\n#" in title:
        return "", text
    head, _, body = rest.partition("\n```\n")
    return head, f"{title}\n\n{body.lstrip()}"


def _rule(name: str, entries: _Entries) -> Rule:
    if lacking := {"category", "title"} - entries.keys():
        raise PageError(f"{name}.md: the rule has no {min(lacking)}")
    fields: dict[str, Any] = {key: given[0] for key, given in entries.items() if key not in _REPEATED}
    fields |= {key: tuple(fields[key].split()) for key in fields.keys() & _LISTS}
    fields |= {key: fields[key] == "yes" for key in fields.keys() & _SWITCHES}
    if "layer" in fields:
        fields["layer"] = BY_NAME[fields["layer"]]
    return Rule(name.replace("_", "-"), **fields)


def _entries(text: str, keys: set[str], name: str) -> dict[str, list[str]]:
    """Return the keys of a block with their values.

    Raises:
        PageError: a key is unknown or repeated, or a value is none that the key may have.
    """
    entries: dict[str, list[str]] = {}
    key = ""
    for line in text.split("\n"):
        if line.startswith("  ") and key:
            entries[key][-1] += f" {line.strip()}"
            continue
        key, colon, given = line.partition(": ")
        if not colon or key not in keys or (key in entries and key not in _REPEATED):
            raise PageError(
                f"{name}.md: '{line}' is not a line of a rule, or repeats one; keys are {', '.join(sorted(keys))}"
            )
        if given not in _ALLOWED.get(key, (given,)):
            raise PageError(f"{name}.md: '{line}': choose from {', '.join(_ALLOWED[key])}")
        entries.setdefault(key, []).append(given)
    return entries


@cache
def cases(text: str, name: str) -> list[dict[str, list[str]]]:
    """Return what a rule says, and what it says instead in each of its cases, checked.

    Raises:
        PageError: something is missing or unknown.
    """
    blocks: list[list[str]] = [[]]
    opens = False
    for line in text.split("\n"):
        if line.startswith(_OPENERS) and not opens:
            blocks.append([])
        opens = line.startswith(_OPENERS) or (opens and line.startswith("  "))
        blocks[-1].append(line)
    found = [_entries("\n".join(block), _CASE if place else _SAYS, name) for place, block in enumerate(blocks)]
    effect, other = (
        ("stops", {"impact", "severity", "fatal"}) if "stops" in found[0] else ("impact", {"stops", "deadly"})
    )
    if lacking := {"summary", "cause", effect, "fix"} - found[0].keys():
        raise PageError(f"{name}.md: the rule has no {min(lacking)}")
    if wrong := other & ChainMap(*found).keys():
        raise PageError(f"{name}.md: {min(wrong)} does not go with {effect}")
    for case in found[1:]:
        if not {"when", "about"} & case.keys() or (not _SHOWN.isdisjoint(case) and "case" not in case):
            raise PageError(f"{name}.md: a case lacks its condition (when), or its words (case): {case}")
        for when in case.get("when", ()):
            condition(when, name)
    return found


def _judge(rule: Rule, declared: _Entries, block: str, facts: Facts) -> Results:
    """Judge the statements that a page is about."""
    others = cases(block, rule.name)[1:] if "\nabout: " in block else []
    for sources in (declared.get("about", ["errors"]), *(case["about"] for case in others if "about" in case)):
        if found := [notice for source in sources for notice in statements_of(rule, facts, source)]:
            break
    found += [notice for source in declared.get("beside", ()) for notice in statements_of(rule, facts, source) if found]
    hit = Hit(list({id(notice): notice for notice in found}.values()))
    if found and not any(is_met(text, facts, hit, rule.name) for text in declared.get("unless", ())):
        yield _finding(rule, facts, hit, block, sources)


def _judge_hits(rule: Rule, find: Callable[[Facts], Iterable[Hit]], block: str, facts: Facts) -> Results:
    """Judge what the module beside a page finds."""
    for hit in find(facts):
        yield _finding(rule, facts, hit, block)


def _finding(rule: Rule, facts: Facts, hit: Hit, block: str, sources: list[str] | None = None) -> Finding:
    """Return what a page says of a hit; ``sources`` are the statements that a case may be about."""
    head, *others = cases(block, rule.name)
    fitting = [
        case
        for case in others
        if (sources and case.get("about") is sources)
        or any(is_met(text, facts, hit, rule.name) for text in case.get("when", ()))
    ]
    says = ChainMap(*fitting, head)
    text = {key: fill_in(given[0], hit).replace(LACKING, "") for key, given in says.items() if key not in _REPEATED}
    fix = [step for step in (fill_in(step, hit) for step in steps(says)) if LACKING not in step]
    confirm, confidence = text.get("confirm", ""), text.get("confidence")
    if "stops" in text:
        return stated_errors.finding(
            rule,
            facts,
            hit.notices,
            text["summary"],
            cause=text["cause"],
            stops=text["stops"],
            fix=fix,
            confirm=confirm,
            confidence=confidence or "likely",
            deadly=text.get("deadly") == "yes",
        )
    return rule.finding(
        text["summary"],
        cause=text["cause"],
        impact=text["impact"],
        fix=fix,
        confirm=confirm,
        severity=text.get("severity"),
        confidence=confidence,
        notices=hit.notices,
        ranks=hit.ranks,
        hosts=hit.hosts,
        evidence=hit.evidence,
        paths=hit.paths,
        explains_errors=hit.notices,
        fatal=text.get("fatal") == "yes",
    )


def steps(says: _Entries) -> list[str]:
    """Return the steps of a rule or a case; ``@NAME`` is one that several rules have."""
    given = [step for key in _STEPS for step in says.get(key, ())]
    return [getattr(remedies, step[1:]) if step.startswith("@") else step for step in given]


def render_page(text: str, rule: Rule) -> str:
    """Return a page without its block, and with what only the block says in words."""
    head, page = split(text)
    if not head:
        return text
    says = cases("summary: " + head.partition("\nsummary: ")[2], rule.name)
    prose, mark, examples = page.partition("\n## Examples\n")
    lead, *parts = re.split(r"^## ", prose, flags=re.MULTILINE)
    sections = {name: body.strip() for name, _, body in (part.partition("\n") for part in parts)}
    sections.setdefault("Why it matters", "\n\n".join(_effects(says)))
    sections.setdefault("What to do", "\n\n".join(_advice(says)))
    if lead.count("\n") < 4:  # the title only
        lead = f"{lead.strip()}\n\n{rule.title}.\n"
    return "\n".join((lead.rstrip("\n"), *(f"\n## {name}\n\n{sections[name]}" for name in _SECTIONS), mark + examples))


def _effects(says: list[dict[str, list[str]]]) -> Iterator[str]:
    from textwrap import fill  # only for a page

    known = set[str]()
    for case in says:
        for effect in {*case.get("impact", ()), *case.get("stops", ())} - known:
            known.add(effect)
            words = f"If {case['case'][0]}: {effect}" if "case" in case else effect
            yield fill(PLACEHOLDER.sub(r"<\2>", f"{words[0].upper()}{words[1:]}."), _WIDTH, break_on_hyphens=False)


def _advice(says: list[dict[str, list[str]]]) -> Iterator[str]:
    from itertools import groupby  # only for a page
    from textwrap import fill

    for case in says:
        advised = [PLACEHOLDER.sub(r"<\2>", step) for step in steps(case) if not PLACEHOLDER.fullmatch(step)]
        if advised and "case" in case:
            yield fill(f"If {case['case'][0]}:", _WIDTH)
        for is_sentence, group in groupby(advised, remedies.is_sentence):
            if is_sentence:
                yield from (fill(step, _WIDTH, break_on_hyphens=False) for step in group)
            else:
                yield "\n".join(("```", *group, "```"))
