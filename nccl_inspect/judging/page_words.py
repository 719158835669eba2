"""The words of pages that are rules: what they are about, their conditions, and what names in braces stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from nccl_inspect.errors import PageError
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.event.types import Notice as Quoted
from nccl_inspect.judging import exceptions, impact, propagated_errors, stated_errors
from nccl_inspect.judging.check import Evidence, Facts, Hit, Notice, value
from nccl_inspect.judging.facts import as_shell, unset_steps
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.impact import Estimate, Rate
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.statements import find_text, is_propagated_error
from nccl_inspect.model import versions
from nccl_inspect.model.finding import Reference
from nccl_inspect.model.job import PathKind, Selection, Setting
from nccl_inspect.model.statements import usage
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import conjugate, count, is_or_are, list_words, ranks_word, some_names

if TYPE_CHECKING:
    pass


FIGURES = {name: figure for name, figure in vars(impact).items() if isinstance(figure, Rate | Estimate)}
"""Published figures, by the names of :mod:`nccl_inspect.judging.impact`."""


def value_of(hit: Hit, name: str) -> object:
    """Return what a name stands for, if it is not that of a field of the statements."""
    return hit.named.get(name, getattr(hit, name) if name in ("settings", "paths") else FIGURES.get(name))


def is_so(hit: Hit, name: str) -> bool:
    """Return whether a hit knows something by that name."""
    return name in hit.known or bool(value_of(hit, name))


Condition = Callable[[Facts, list[Notice], list[str]], bool]
PLACEHOLDERS: dict[str, Callable[[list[Notice]], str]] = {
    "message": lambda notices: notices[0].message,
    "text": lambda notices: find_text(notices[0]),
    "count": lambda notices: str(len(notices)),
}
"""What names in braces stand for, besides the fields of the statements."""
PLACEHOLDER = compile_later(r"\{(?:(all|count) )?(\w+)(?: (count|does|unset|source)(?: ([\w -]+))?)?\}")
PART = compile_later(r"«(not )?([\w -]+)\?([^«»]*)»")
"""A part of a text that is only kept if something is so."""
Thing = Notice | Setting | Evidence | PathKind
Things = Sequence[Notice | Setting | Evidence] | Selection
SOURCES: dict[str, Callable[[Facts, str, list[str]], Things]] = {
    "errors": lambda facts, rule, _: facts.errors_of_rule(rule),
    "own": lambda facts, rule, _: [one for one in facts.errors_of_rule(rule) if not is_propagated_error(one)],
    "role": lambda facts, _, roles: facts.with_role(*roles),
    "uncaught": lambda facts, _, roles: [
        one for one in facts.with_role(*roles) if not exceptions.is_survived(facts, one)
    ],
    "warning": lambda facts, _, words: [
        one for one in facts.job.notices if one.level == "WARN" and _says(one, " ".join(words))
    ],
    "cuda": lambda facts, _, codes: [one for one in cuda.failed_calls(facts) if str(cuda.code_of(one)) in codes],
    "result": lambda facts, _, codes: propagated_errors.find_unexplained(facts, int(codes[0])),
    "settings": lambda facts, _, names: facts.settings(*names),
    "paths": lambda facts, _, words: facts.paths(transport=words[0]),
    "lines": lambda facts, _, words: list(getattr(facts.job, words[0])),
}
"""Statements that are not those of one production: ``errors``, those that do not only pass one on (``own``), those with
a ``role`` (``uncaught``: but those that the program survived), each ``warning`` with a text, calls of ``cuda`` that
failed with one of these codes, and frames with a ``result`` of NCCL that nothing explains. ``settings`` of these
variables and ``paths`` over a transport have fields, too; ``lines`` that the job has apart (``repeated``) have none."""
CONDITIONS: dict[str, Condition] = {
    "is": lambda *_: False,  # what a function found out
    "failed": lambda facts, *_: facts.job.failed,
    "running": lambda facts, *_: _is_running(facts),
    "connected": lambda facts, *_: bool(facts.job.paths),
    "unconnected": lambda facts, *_: not facts.job.paths,
    "ended": lambda facts, *_: bool(facts.job.ended_by),
    "printed": lambda facts, *_: bool(facts.job.last_lines),
    "timeout": lambda facts, *_: bool(facts.with_event(CollectiveTimeout)),
    "cuda": lambda facts, *_: bool(cuda.failures(facts)),
    "gdr": lambda facts, *_: _is_direct(facts),
    "staged": lambda facts, *_: bool(facts.inter_host_net_paths()) and not _is_direct(facts),
    "works": lambda facts, _, nets: not facts.job.failed and CONDITIONS["net"](facts, _, nets),
    "net": lambda facts, _, nets: any(
        (kind.net or "").startswith(tuple(nets)) for kind in facts.paths(transport="NET").kinds
    ),
    "release": lambda facts, _, words: _are_of_release(facts, *words),
    "deadly": lambda facts, notices, _: stated_errors.is_fatal(facts, notices),
    "found": lambda facts, _, words: bool(find_things("", facts, " ".join(words))),
    "tcp": lambda facts, *_: bool(tcp_paths(facts)),
    "spread": lambda facts, *_: facts.spans_hosts(),
    "gpu": lambda facts, _, models: facts.hardware == "certain" and _has_gpus(facts, *models),
    "rule": lambda facts, _, rules: any(map(facts.errors_of_rule, rules)),
    "production": lambda _, notices, names: any(notice.production in names for notice in notices[:1]),
    "with": lambda _, notices, names: any(notice.production in names for notice in notices),
    "only": lambda _, notices, names: all(notice.production in names for notice in notices),
    "preceded": lambda facts, notices, _: any(
        error.place < first.place and error not in notices for first in notices[:1] for error in facts.errors()
    ),
    "role": lambda _, notices, roles: any(not notice.roles.isdisjoint(roles) for notice in notices[:1]),
    "dialect": lambda _, notices, names: any(notice.event and notice.event.dialect in names for notice in notices),
    "first": lambda _, notices, fields: any(_has(notice, " ".join(fields)) for notice in notices[:1]),
    "field": lambda _, notices, fields: any(_has(notice, " ".join(fields)) for notice in notices),
    "says": lambda _, notices, words: any(_says(notice, " ".join(words)) for notice in notices[:1]),
    "mentions": lambda _, notices, words: any(_says(notice, " ".join(words)) for notice in notices),
}
"""How the job continued: ``failed``, ``running`` (all communicators in use work), ``connected``, ``unconnected``,
over ``tcp``, ``spread`` over several hosts, on a ``gpu`` of these models for certain, ``ended`` from outside,
whether NCCL ``printed`` a line, with the ``timeout`` of a collective. Whether there are failures of ``cuda``,
statements as behind ``about`` (``found``), errors of another ``rule``, paths over a ``net`` (which ``works`` if the
job did not fail), between hosts with GPUDirect RDMA (``gdr``) or only without (``staged``). Whether another error
comes before the first statement (``preceded``), and whether that is of a ``production``, has a ``role``, ``says`` a
text or has fields (``first``, as behind ``where``); whether one is of these productions (``with``) or all are
(``only``); whether one ``mentions`` a text, is of a ``dialect`` or has a ``field``."""


def find_things(rule: str, facts: Facts, source: str) -> Things:
    """Return the statements, settings or paths that an ``about`` of the page of a rule names."""
    source, _, fields = source.partition(" where ")
    source, _, barred = source.partition(" not saying ")
    name, _, texts = source.partition(" saying ")
    word, *rest = name.split()
    find = SOURCES.get(word)
    found = find(facts, rule, rest) if find else facts.notices(*name.split())

    def is_meant(one: Thing) -> bool:
        is_said = (not texts or _says(one, texts)) and not (barred and _says(one, barred))
        return is_said and (not fields or _has(one, fields))

    return found.where(is_meant) if isinstance(found, Selection) else [one for one in found if is_meant(one)]


def _has(one: Thing, fields: str) -> bool:
    """Return whether something has all of these fields, with one of these values."""
    for wanted in fields.split(", "):
        name, equals, given = wanted.partition("=")
        own = _field(one, name.removesuffix("!"))
        text = "" if own is None else str(own)
        is_other = name.endswith("!")
        if (text in given.split("¦")) is is_other if equals else not text:
            return False
    return True


def _field(one: Thing, name: str) -> object:
    """Return a field of a statement, a setting or paths; None if there is no such field."""
    if not isinstance(one, Notice):
        return getattr(one, name, None)
    return value(one, name) if one.event is None or isinstance(one.event, Quoted) else getattr(one.event, name, None)


def _are_of_release(facts: Facts, _: str = "", limit: str = "") -> bool:
    """Return whether the log names releases of NCCL, or only such before a limit."""
    named = [versions.order(text) for text in facts.job.nccl_versions if "inferred" not in text]
    return bool(named) and (not limit or max(named) < versions.order(limit))


def _is_running(facts: Facts) -> bool:
    """Return whether all communicators in use work, and no call of NCCL failed."""
    states = {comm.state for comm in usage.used_communicators(facts.job)}
    failed = facts.job.failed or facts.notices("nccl/proxy-operation-error", "nccl/proxy-operation-failed")
    return bool(states) and states <= {"connected", "destroyed"} and not failed


def _has_gpus(facts: Facts, *models: str) -> bool:
    return facts.platform is not None and (facts.platform.gpu or "").startswith(models)


def _is_direct(facts: Facts) -> bool:
    return any(kind.gdr for kind in facts.inter_host_net_paths().kinds)


def _says(one: Thing, texts: str) -> bool:
    """Return whether a message, the lines of a setting or the words for a path contain one of several texts."""
    lines = one.evidence if isinstance(one, Setting) else [one] if isinstance(one, Evidence) else ()
    own = " ".join(line.text for line in lines) or str(getattr(one, "message", getattr(one, "detail", "")))
    return any(text in own for text in texts.split("¦"))


LACKING = "\0"
"""What a name stands for that nothing has."""


def fill_in(text: str, hit: Hit) -> str:
    """Return a text with what its placeholders stand for."""

    def fill(match: re.Match[str]) -> str:
        kind, name, form, word = match.groups()
        if form or name in hit.named or name in ("settings", "paths") or name in FIGURES:
            return _value_words(value_of(hit, name), form, word) or LACKING
        if kind == "count":
            return count(len(hit.notices), name)
        if name in PLACEHOLDERS and hit.notices:
            each = [[notice] for notice in hit.notices] if kind else [hit.notices]
            return list_words(dict.fromkeys(map(PLACEHOLDERS[name], each)))
        given = [str(own) for notice in hit.notices if (own := _field(notice, name)) not in (None, "")]
        return list_words(dict.fromkeys(given if kind else given[:1])) or LACKING

    return PLACEHOLDER.sub(fill, choose_parts(text, hit))


def fill_steps(steps: Iterable[str], hit: Hit) -> Iterator[str]:
    """Yield the steps that lack no value; the name of a list alone stands for as many steps."""
    for step in steps:
        several = value_of(hit, step[1:-1])
        if isinstance(several, list):
            yield from several
        elif (text := fill_in(step, hit).strip()) and LACKING not in text:
            yield text


def choose_parts(text: str, hit: Hit) -> str:
    """Return a text with those of its optional parts that apply; a part may have parts of its own."""
    while PART.search(text):
        text = PART.sub(lambda part: part[3] if _has_value(hit, part[2]) is not bool(part[1]) else "", text)
    return text


def _has_value(hit: Hit, name: str) -> bool:
    """Return whether something is so, or a statement has such a field."""
    is_field = name not in hit.named and name not in ("settings", "paths")
    return is_so(hit, name) or (is_field and any(_field(one, name) not in (None, "") for one in hit.notices))


def references_of(text: str, hit: Hit) -> tuple[Reference, ...]:
    """Return the sources of the figures that a text quotes."""
    quoted = [value_of(hit, match[2]) for match in PLACEHOLDER.finditer(choose_parts(text, hit))]
    estimates = [one.references for one in quoted if isinstance(one, Estimate)]
    return (*(one.reference for one in quoted if isinstance(one, Rate)), *(one for some in estimates for one in some))


def _value_words(given: object, form: str | None, word: str) -> str:
    """Return a value in words: its number with a noun or a verb, or how to remove settings, or what it is."""
    if not given and type(given) is not int:
        return ""
    number = len(given) if isinstance(given, Sized) else int(str(given)) if form in ("count", "does") else 0
    if form == "count":
        return count(number, word)
    if form == "does":
        return is_or_are(number) if word == "be" else conjugate(number, word)
    if isinstance(given, Selection):
        return list_words(kind.detail for kind in given.kinds)
    if isinstance(given, AbstractSet):
        return ranks_word(given) if {*map(type, given)} == {int} else some_names(sorted(given))
    if not isinstance(given, list):
        return str(given)
    settings = [one for one in given if isinstance(one, Setting)]
    if form == "source":
        return list_words(one.source for one in settings)
    if form == "unset":
        return "".join(unset_steps(settings))
    return as_shell(settings) if settings else list_words(given)


def is_met(text: str, facts: Facts, hit: Hit, name: str) -> bool:
    """Return whether a condition of a page holds, or each of several that ``&`` joins."""
    if " & " in text:
        return all(is_met(part, facts, hit, name) for part in text.split(" & "))
    if text.startswith("not "):
        return not is_met(text[4:], facts, hit, name)
    if text.startswith("is "):
        named, equals, given = text[3:].partition("=")
        return str(value_of(hit, named)) in given.split("¦") if equals else is_so(hit, named)
    decide, rest = condition(text, name)
    return decide(facts, hit.notices, rest)


def condition(text: str, name: str) -> tuple[Condition, list[str]]:
    """Return what decides whether a condition of a page holds, and the words behind its name.

    Raises:
        PageError: there is no such condition.
    """
    word, *rest = text.removeprefix("not ").split()
    if word not in CONDITIONS:
        raise PageError(
            f"{name.replace('-', '_')}.md: '{text}' is not a condition; choose from {', '.join(CONDITIONS)}"
        )
    return CONDITIONS[word], rest
