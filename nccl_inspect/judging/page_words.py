"""The words of pages that are rules: what they are about, their conditions, and what names in braces stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import field

from nccl_inspect.errors import PageError
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Evidence, Facts, Notice, Rule, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.statements import find_text, is_propagated_error
from nccl_inspect.model.job import Selection
from nccl_inspect.util.patterns import later
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, listed


@frozen
class Hit(Frozen):
    """A hit holds what a rule that is a page found: values, and no sentence."""

    notices: list[Notice] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    """What names in braces stand for, besides fields of the statements."""
    known: tuple[str, ...] = ()
    """The names of what is so, for the conditions of cases."""
    ranks: Iterable[int] | None = None
    """These and the next two: None for those of the statements and paths."""
    hosts: Iterable[str | None] | None = None
    evidence: Iterable[Evidence] | None = None
    paths: Selection | None = None


Condition = Callable[[Facts, list[Notice], list[str]], bool]
PLACEHOLDERS: dict[str, Callable[[list[Notice]], str]] = {
    "message": lambda notices: notices[0].message,
    "text": lambda notices: find_text(notices[0]),
    "count": lambda notices: str(len(notices)),
}
"""What names in braces stand for, besides the fields of the statements."""
PLACEHOLDER = later(r"\{(?:(all|count) )?(\w+)\}")
SOURCES: dict[str, Callable[[Facts, str, list[str]], list[Notice]]] = {
    "errors": lambda facts, rule, _: facts.errors_of_rule(rule),
    "own": lambda facts, rule, _: [one for one in facts.errors_of_rule(rule) if not is_propagated_error(one)],
    "role": lambda facts, _, roles: facts.with_role(*roles),
    "warning": lambda facts, _, words: [
        one for one in facts.job.notices if one.level == "WARN" and _says(one, " ".join(words))
    ],
    "cuda": lambda facts, _, codes: [one for one in cuda.failed_calls(facts) if str(cuda.code_of(one)) in codes],
    "result": lambda facts, _, codes: propagated_errors.unexplained(facts, int(codes[0])),
}
"""Statements that are not those of one production: ``errors``, those that do not only pass one on (``own``), those with
a ``role``, each ``warning`` with a text, calls of ``cuda`` that failed with one of these codes, and frames with a
``result`` of NCCL that nothing explains."""
CONDITIONS: dict[str, Condition] = {
    "is": lambda *_: False,  # what a module found out
    "failed": lambda facts, *_: facts.job.failed,
    "connected": lambda facts, *_: bool(facts.job.paths),
    "unconnected": lambda facts, *_: not facts.job.paths,
    "ended": lambda facts, *_: bool(facts.job.ended_by),
    "timeout": lambda facts, *_: bool(facts.with_event(CollectiveTimeout)),
    "cuda": lambda facts, *_: bool(cuda.failures(facts)),
    "gdr": lambda facts, *_: _is_direct(facts),
    "staged": lambda facts, *_: bool(facts.inter_host_net_paths()) and not _is_direct(facts),
    "works": lambda facts, _, nets: not facts.job.failed and CONDITIONS["net"](facts, _, nets),
    "net": lambda facts, _, nets: any(
        (kind.net or "").startswith(tuple(nets)) for kind in facts.paths(transport="NET").kinds
    ),
    "rule": lambda facts, _, rules: any(map(facts.errors_of_rule, rules)),
    "production": lambda _, notices, names: notices[0].production in names,
    "with": lambda _, notices, names: any(notice.production in names for notice in notices),
    "only": lambda _, notices, names: all(notice.production in names for notice in notices),
    "role": lambda _, notices, roles: not notices[0].roles.isdisjoint(roles),
    "dialect": lambda _, notices, names: any(notice.event and notice.event.dialect in names for notice in notices),
    "field": lambda _, notices, fields: any(_has(notice, " ".join(fields)) for notice in notices),
    "says": lambda _, notices, words: _says(notices[0], " ".join(words)),
    "mentions": lambda _, notices, words: any(_says(notice, " ".join(words)) for notice in notices),
}
"""How the job continued: ``failed``, ``connected``, ``unconnected``, ``ended`` from outside, with the ``timeout`` of a
collective. Whether there are failures of ``cuda``, errors of another ``rule``, paths over a ``net`` (which ``works`` if
the job did not fail), between hosts with GPUDirect RDMA (``gdr``) or only without (``staged``). Whether the first
statement is of a ``production``, has a ``role`` or ``says`` a text; whether one is of these productions (``with``) or
all are (``only``); whether one ``mentions`` a text, is of a ``dialect`` or has a ``field``, as behind ``where``."""


def statements_of(rule: Rule, facts: Facts, source: str) -> list[Notice]:
    """Return the statements that an ``about`` of a page names."""
    source, _, fields = source.partition(" where ")
    name, _, texts = source.partition(" saying ")
    word, *rest = name.split()
    find = SOURCES.get(word)
    found = find(facts, rule.name, rest) if find else facts.notices(*name.split())
    if texts:
        found = [notice for notice in found if _says(notice, texts)]
    return [notice for notice in found if _has(notice, fields)] if fields else found


def _has(notice: Notice, fields: str) -> bool:
    """Whether a statement has all of these fields, with one of these values."""
    for wanted in fields.split(", "):
        name, equals, given = wanted.partition("=")
        own = value(notice, name)
        text = "" if own is None else str(own)
        if text not in given.split("¦") if equals else not text:
            return False
    return True


def _is_direct(facts: Facts) -> bool:
    return any(kind.gdr for kind in facts.inter_host_net_paths().kinds)


def _says(notice: Notice, texts: str) -> bool:
    return any(text in notice.message for text in texts.split("¦"))


LACKING = "\0"
"""What a name stands for that nothing has."""


def fill_in(text: str, hit: Hit) -> str:
    """Return a text with what its placeholders stand for."""

    def fill(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if name in hit.named:
            return hit.named[name] or LACKING
        if kind == "count":
            return count(len(hit.notices), name)
        if name in PLACEHOLDERS:
            return PLACEHOLDERS[name](hit.notices)
        given = [str(own) for notice in hit.notices if (own := value(notice, name)) not in (None, "")]
        return listed(dict.fromkeys(given if kind else given[:1])) or LACKING

    return PLACEHOLDER.sub(fill, text)


def is_met(text: str, facts: Facts, hit: Hit, name: str) -> bool:
    """Whether a condition of a page holds."""
    if text.startswith("is "):
        return text[3:] in hit.known
    decide, rest = condition(text, name)
    return decide(facts, hit.notices, rest)


def condition(text: str, name: str) -> tuple[Condition, list[str]]:
    """Return what decides whether a condition of a page holds, and the words behind its name.

    Raises:
        PageError: there is no such condition.
    """
    word, *rest = text.split()
    if word not in CONDITIONS:
        raise PageError(f"{name}.md: '{text}' is not a condition; choose from {', '.join(CONDITIONS)}")
    return CONDITIONS[word], rest
