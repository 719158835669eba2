"""Rules that are one page: a block below the title says what they find, and the rest of the page explains it.

``CONTRIBUTING.md`` shows such a page, with all that a block may say. The last block, ``examples``, has logs; ``>>>
RESULT # INTRODUCTION`` precedes each, and is enough for one more result of the log above. A line that begins with two
blanks continues the value above it. What precedes ``summary`` is the declaration, with the fields of
:class:`~nccl_inspect.judging.engine.Rule`, and:

* ``about``: the statements, settings or paths of all such lines. ``errors`` (the default) are statements whose
  productions name the rule; else a word of ``SOURCES`` or productions, such as ``nccl/no-transport``. Behind it may
  follow ``saying TEXT``, ``not saying TEXT`` or ``where FIELD=VALUE, …``: ``¦`` separates texts or values of which one
  is enough, ``FIELD`` alone stands for any value, ``FIELD=`` for none, and ``FIELD!=VALUE`` for any other. Each
  statement has a ``level`` and a ``production``. A number in front takes only the first ones, ``-1`` the last one.
* ``beside``: what is added to these, if there is any; of settings and lines only what they show. ``NAME = …`` gives it
  a name. ``known: NAME = …`` is not shown.
* ``ranks``: the fields in which these statements name the ranks that they are about, one or several (``1, 3``), or
  ``none``: these, or those that made them, are ``concerned``. ``hosts`` likewise.
* ``explains``: errors that need no finding of their own, besides these statements.
* ``each``: a finding for each ``about``, or for each ``production``, and not only for the first that finds something.
* ``except``: a condition on each statement for which it needs no finding; ``unless``: one under which the rule is
  silent.
* ``check: NAME KIND¦KIND``: the function of several rules that judges this one, and what it looks for.

The rest are the arguments of :meth:`Rule.finding`, with ``first`` and ``last`` for steps around those of ``fix``;
``fatal: anyway`` if the call failed for certain and only its cause is possible. With ``stops`` instead of ``impact``,
how the job continued decides what the impact is (:func:`_judge_continuation`); ``deadly: yes`` is for what no job
survives. ``undecided: REASON`` of a case makes it an open question, and each ``needs`` says what would answer it:
``platform``, ``topology``, ``all ranks``, ``subsystems NAME …``, ``shows TEXT``, ``log TEXT``, or any other text.

``when`` begins other values for some of these keys, for that condition, or for one of several; ``about`` for these
statements, where there are none of those above, with their own ``beside``. The words behind ``#`` follow "If" on the
page. Of the cases that hold, the first that has a key gives its value.

The name of a field in braces stands for its value in the first statement that has one; ``{settings}`` and ``{paths}``
for those that the finding is about, or which are beside it; ``{more}`` for the other statements than the first; names
of ``DERIVED`` or ``FIGURES`` for what these say, and ``cuda_…`` for what :func:`~nccl_inspect.judging.cuda.describe`
knows of failed calls of CUDA. Of settings, ``{settings unset}`` stands for the step that removes them, and ``name``,
``value`` and ``source`` for what they are and where they come from. A step, or ``also``, that is empty or has a value
that is, is left out; the name of a list alone stands for a step for each of its values.

Where a rule compares facts, a module beside it has a function of its name. It yields what it found
(:class:`~nccl_inspect.judging.check.Hit`), with values for names in braces: settings, paths, ranks (a set) or a list.
Files beside the log explain the ``effects`` of a rule. What the story of a job tells, for a rule with ``tells``, is
``account``, with ``who`` and its ``effects``, or what ``tell(facts, account)`` makes of it. A fault in files from
machines whose ``clue`` names the rule (``evidence/faults.toml``) gives its ``file``, ``lines``, ``costs`` and
``steps``.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from functools import cache, partial, reduce
from itertools import chain
from operator import or_
from pathlib import Path
from types import ModuleType
from typing import Any

from nccl_inspect.errors import PageError
from nccl_inspect.event import types as events
from nccl_inspect.event.types import Notice as Quoted
from nccl_inspect.grammar.layers import BY_NAME
from nccl_inspect.judging import at_end, cuda, ends, exceptions, impact, life, networks, remedies, transfers
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.check import Account, Effects, Evidence, Facts, Hit, Notice, is_fatal, tell_account, value
from nccl_inspect.judging.engine import CATEGORIES, SEVERITIES, Registered, Result, Rule
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import (
    as_shell,
    evidence_of_settings,
    first_evidence,
    hosts_in,
    hosts_with,
    lines_of,
    list_remaining,
    ranks_concerned,
)
from nccl_inspect.judging.impact import Estimate, Rate
from nccl_inspect.judging.statements import find_text, is_propagated_error, list_table, message_of
from nccl_inspect.model import versions
from nccl_inspect.model.finding import ACTIONS, Finding, Needs, NotJudged
from nccl_inspect.model.job import PathKind, Selection, Setting
from nccl_inspect.model.statements import usage
from nccl_inspect.platforms import Platform
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import capitalize, conjugate, count, is_or_are, list_words, ranks_word, some_names

FIGURES = {name: figure for name, figure in vars(impact).items() if isinstance(figure, Rate | Estimate)}
"""Published figures, by the names of :mod:`nccl_inspect.judging.impact`."""
_VARIABLE = compile_later(r"\b(?:OFI_NCCL|NCCL|RCCL)_[A-Z0-9_]+")
DERIVED: dict[str, Callable[[Facts, Hit], object]] = {
    "words": lambda _, hit: hit.paths and networks.paths_in_words(hit.paths),
    "net": lambda facts, hit: hit.paths and impact.current_rate(hit.paths, facts.platform),
    "kinds": lambda _, hit: hit.paths and sorted({kind.pair_class for kind in hit.paths.kinds if kind.pair_class}),
    "against_nvlink": lambda facts, hit: hit.paths and impact.against_nvlink(hit.paths, facts.platform),
    "cost": lambda facts, _: impact.over_tcp(facts.platform),
    "machine": lambda facts, _: facts.platform and facts.platform.name,
    "AMD": lambda facts, _: facts.is_rccl(),
    "suspects": lambda facts, _: at_end.suspects(facts),
    "suspicion": lambda facts, _: at_end.suspicion(facts),
    "possible_ends": lambda facts, _: at_end.list_possible_ends(facts),
    "remaining": lambda facts, hit: list_remaining(facts, hit.notices),
    "pid_of_rank": lambda facts, hit: kernel_log.names_rank(facts, hit.notices),
    "variables": lambda _, hit: " ".join(
        dict.fromkeys(name for notice in hit.notices for name in _VARIABLE.findall(notice.message))
    ),
    "efa_code": lambda _, hit: transfers.efa_code(hit.notices[0]) if hit.notices else None,
}
"""What names stand for, where a function gives no value for them: the ``words`` for paths and their rate (``net``), the
``kinds`` of their pairs and how slow they are ``against_nvlink``, the ``cost`` of TCP, the type of the ``machine``,
whether its GPUs are of ``AMD``, the ``suspects`` (differences between ranks, the first one for a ``suspicion``), the
``possible_ends`` of a log that ends in the middle, the ``remaining`` ranks that did not end, whether a line of a kernel
has the ``pid_of_rank`` of the job, the ``variables`` of NCCL in messages, and the code of a failed transfer over EFA.
"""


def value_of(hit: Hit, name: str) -> object:
    """Return what a name stands for, if it is not that of a field of the statements."""
    return hit.named.get(name, getattr(hit, name) if name in ("settings", "paths") else FIGURES.get(name))


Condition = Callable[[Facts, list[Notice], list[str]], bool]
PLACEHOLDERS: dict[str, Callable[[list[Notice]], str]] = {
    "message": lambda notices: notices[0].message,
    "text": lambda notices: find_text(notices[0]),
    "told": lambda notices: message_of(notices[0]).partition(": ")[2],
    "count": lambda notices: str(len(notices)),
}
"""What names in braces stand for, besides the fields of the statements."""
PLACEHOLDER = compile_later(
    r"\{(?:(all|count) )?(\w+)(?: (count|does|unset|name|value|source|MB)(?: ([\w -]+))?)?(?: of (\w+))?\}"
)
PART = compile_later(r"«(not )?([\w -]+)\?([^«»]*)»")  # a part of a text that is only kept if something is so
Thing = Notice | Setting | Evidence | PathKind | Platform
Things = Sequence[Notice | Setting | Evidence | Platform] | Selection
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
    "plugin": lambda facts, _, words: facts.plugin(*words),
    "unloadable": lambda facts, *_: networks.unloadable_plugins(facts),
    "transfers": lambda facts, *_: [] if transfers.efa_completions(facts) else facts.with_role("efa-completion"),
    "failures": lambda facts, *_: transfers.failed_by_cause(facts),
    "unreachable": lambda facts, *_: transfers.find_unreachable(facts),
    "unshared": lambda facts, *_: cuda.find_unshared(facts),
    "cuda": lambda facts, _, words: cuda.failed_with(facts, words),
    "calls": lambda facts, _, kinds: cuda.find_calls(facts, kinds[0]),
    "retold": lambda facts, *_: cuda.find_retold(facts),
    "result": lambda facts, _, codes: exceptions.find_unexplained(facts, int(codes[0])),
    "settings": lambda facts, _, names: facts.settings(*names),
    "event": lambda facts, _, names: facts.with_event(getattr(events, names[0])),
    "frames": lambda facts, _, words: exceptions.frames(facts, int(words[0]), tuple(words[1:])),
    "idle": lambda facts, *_: facts.idle_nvlink(),
    "paths": lambda facts, _, words: facts.paths(transport=words[0] if words else None),
    "job": lambda facts, _, words: list(getattr(facts.job, words[0])),
    "platform": lambda facts, *_: [facts.platform] if facts.platform else [],
}
"""Statements that are not those of one production: ``errors``, those that do not only pass one on (``own``), those with
a ``role`` (``uncaught``: but those that the program survived), each ``warning`` with a text, statements about a
``plugin`` of a kind with one of these statuses, network plugins that are there and cannot be loaded (``unloadable``),
failed ``transfers`` of aws-ofi-nccl over providers other than efa, its ``failures`` over efa but those of a lost peer,
and those to an ``unreachable`` one, imports of GPU memory that failed (``unshared``), those with an ``event``, calls of
``cuda`` that failed, with one of these codes and in some files only where these follow, ``calls`` of a kind
(:func:`~nccl_inspect.judging.cuda.find_calls`), exceptions of PyTorch that only repeat one (``retold``), ``frames``
with a result of NCCL in some of its files, and those with a ``result`` that nothing explains.
``settings`` of these variables, ``paths`` over a transport, ``idle`` NVLink and the ``platform`` have fields, too;
lines that the ``job`` has apart (``repeated``) have none."""
CONDITIONS: dict[str, Condition] = {
    "is": lambda *_: False,  # what a function found out
    "failed": lambda facts, *_: facts.job.failed,
    "running": lambda facts, *_: _is_running(facts),
    "up": lambda facts, *_: (
        not facts.job.failed and bool(facts.job.paths or any(comm.completed for comm in facts.job.communicators))
    ),
    "connected": lambda facts, *_: bool(facts.job.paths),
    "ended": lambda facts, *_: bool(facts.job.ended_by),
    "over": lambda facts, *_: facts.is_over(),
    "finished": lambda facts, notices, _: ends.is_finished(facts, notices),
    "early": lambda facts, notices, _: all(exceptions.came_up_below(facts, one) for one in notices),
    "caught": lambda facts, notices, _: all(exceptions.is_caught(facts, one) for one in notices),
    "single": lambda facts, *_: facts.has_no_pairs(),
    "google": lambda facts, *_: networks.google_plugin_works(facts),
    "still": lambda facts, notices, _: life.is_still(facts, notices),
    "worked": lambda facts, notices, _: life.works_below(facts, notices),
    "followed": lambda facts, notices, names: any(
        one.place < later.place for one in notices for later in facts.notices(*names)
    ),
    "used": lambda facts, notices, _: bool(
        facts.job.communicators or all(exceptions.is_used_below(facts, one) for one in notices)
    ),
    "release": lambda facts, _, words: _are_of_release(facts, *words),
    "deadly": lambda facts, notices, _: is_fatal(facts, notices),
    "found": lambda facts, _, words: bool(find_things("", facts, " ".join(words))),
    "tcp": lambda facts, *_: bool(networks.tcp_paths(facts)),
    "spread": lambda facts, *_: facts.spans_hosts(),
    "local": lambda facts, *_: networks.is_on_one_host(facts),
    "hardware": lambda facts, _, sure: facts.hardware in sure,
    "gpu": lambda facts, _, models: (
        facts.hardware == "certain" and str((facts.platform and facts.platform.gpu) or "").startswith(tuple(models))
    ),
    "rule": lambda facts, _, rules: any(map(facts.errors_of_rule, rules)),
    "production": lambda _, notices, names: any(notice.production in names for notice in notices[:1]),
    "sole": lambda facts, notices, _: all(
        is_propagated_error(error) or any(error is one for one in notices) for error in facts.errors(forced_ends=False)
    ),
    "alone": lambda facts, notices, _: all(
        error.level != "WARN" or any(error is one for one in notices) for error in facts.errors()
    ),
    "with": lambda _, notices, names: any(notice.production in names for notice in notices),
    "only": lambda _, notices, names: all(notice.production in names for notice in notices),
    "stated": lambda _, notices, __: bool(notices),
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
"""How the job continued: ``failed``, ``running`` (all communicators in use work), ``up`` (ranks finished their
initialization), ``connected``, over ``tcp``, ``spread`` over hosts or ``local``, on ``hardware`` that is
certain or likely, on a ``gpu`` of these models for certain, ``ended`` from outside or ``over`` in order, with all work
``finished``, whether ``google``'s plugin works, NCCL was ``used`` later, the program ``caught`` these exceptions, came
up later (``early``), or each host has a ``single`` rank.
Whether there are statements as behind ``about`` (``found``), errors of another ``rule``.
Whether there is a statement (``stated``), another error comes before the first one (``preceded``), and whether that is
of a ``production``, has a ``role``, ``says`` a text or has fields (``first``, as behind ``where``); whether no other
error is a warning (``alone``), or there is none (``sole``), one is of these productions (``with``), all are (``only``),
or one is ``followed`` by these; whether work was done below (``worked``), or the log ends there (``still``); whether
one ``mentions`` a text, is of a ``dialect`` or has a ``field``."""


def find_things(rule: str, facts: Facts, source: str) -> Things:
    """Return the statements, settings or paths that an ``about`` of the page of a rule names."""
    number, _, every = source.partition(" ")
    if number.lstrip("-").isdigit():
        some = find_things(rule, facts, every)
        assert not isinstance(some, Selection)
        return some[: int(number)] if int(number) > 0 else some[int(number) :]
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
        text = "" if own is None or own == [] else str(own)
        if (text in given.split("¦")) is name.endswith("!") if equals else not text:
            return False
    return True


def _field(one: Thing, name: str) -> object:
    """Return a field of a statement, a setting or paths; None if there is no such field."""
    if not isinstance(one, Notice):
        return getattr(one, name, None)
    is_own = name in ("level", "production")
    is_typed = one.event is not None and not isinstance(one.event, Quoted)
    given = getattr(one.event, name, None) if is_typed and not is_own else value(one, name)
    return getattr(one, name) if given is None and is_own else given


def _are_of_release(facts: Facts, _: str = "", limit: str = "") -> bool:
    """Return whether the log names releases of NCCL, or only such before a limit."""
    named = [versions.order(text) for text in facts.job.nccl_versions if "inferred" not in text]
    return bool(named) and (not limit or max(named) < versions.order(limit))


def _is_running(facts: Facts) -> bool:
    """Return whether all communicators in use work, and no call of NCCL failed."""
    states = {comm.state for comm in usage.used_communicators(facts.job)}
    failed = facts.job.failed or facts.notices("nccl/proxy-operation-error", "nccl/proxy-operation-failed")
    return bool(states) and states <= {"connected", "destroyed"} and not failed


def _says(one: Thing, texts: str) -> bool:
    """Return whether a message, that of a setting, the words for a path or a name contain one of several texts."""
    lines = one.evidence if isinstance(one, Setting) else [one] if isinstance(one, Evidence) else ()
    words = next((own for name in ("message", "detail", "name") if (own := getattr(one, name, ""))), "")
    own = " ".join(line.text.rpartition("NCCL INFO ")[2] for line in lines) or str(words)  # a host may be called so
    return any(text in own for text in texts.split("¦"))


LACKING = "\0"  # what a name stands for that nothing has


def fill_in(text: str, hit: Hit) -> str:
    """Return a text with what its placeholders stand for."""

    def fill(match: re.Match[str]) -> str:
        kind, name, form, word, owner = match.groups()
        notices = hit.named.get(owner) if owner else hit.notices
        assert isinstance(notices, list)
        if form not in (None, "MB") or (
            not owner and (name in hit.named or name in ("settings", "paths") or name in FIGURES)
        ):
            return _value_words(value_of(hit, name), form, word) or LACKING
        if kind == "count":
            return count(len(notices), name)
        if name in PLACEHOLDERS and notices:
            each = [[notice] for notice in notices] if kind else [notices]
            return list_words(dict.fromkeys(map(PLACEHOLDERS[name], each)))
        given = [str(own) for notice in notices if (own := _field(notice, name)) not in (None, "")]
        given = [f"{max(map(int, given)) / 1e6:.1f} MB"] if form == "MB" and given else given
        return list_words(dict.fromkeys(given if kind else given[:1])) or LACKING

    return PLACEHOLDER.sub(fill, choose_parts(text, hit))


def fill_steps(steps: Iterable[str], hit: Hit) -> Iterator[str]:
    """Yield the steps that lack no value; the name of a list alone stands for as many steps."""
    for step in steps:
        several = value_of(hit, step[1:-1])
        if isinstance(several, list):
            yield from (choose_parts(one, hit) for one in several)
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
    return bool(value_of(hit, name)) or (is_field and any(_field(one, name) not in (None, "") for one in hit.notices))


_WHERE = "pod spec 'env:', image, launch script, /etc/nccl.conf, ~/.nccl.conf"


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
    if form == "name":
        return " ".join(dict.fromkeys(one.name for one in settings))
    if form in ("value", "source"):
        return list_words(dict.fromkeys(getattr(one, form) for one in settings))
    if form == "unset":
        notes = {name: one.alike.note if one.alike else _WHERE for one in settings for name in one.names}
        return f"unset {' '.join(notes)}   # {'; '.join(dict.fromkeys(notes.values()))}" if notes else ""
    return as_shell(settings) if settings else list_words(given)


def is_met(text: str, facts: Facts, hit: Hit, name: str) -> bool:
    """Return whether a condition of a page holds, or each of several that ``&`` joins."""
    if " & " in text:
        return all(is_met(part, facts, hit, name) for part in text.split(" & "))
    if text.startswith("not "):
        return not is_met(text[4:], facts, hit, name)
    if text.startswith("is "):
        named, equals, given = text[3:].partition("=")
        return str(value_of(hit, named)) in given.split("¦") if equals else bool(value_of(hit, named))
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


_Entries = Mapping[str, list[str]]
_FENCE = "\n```rule\n"
_LISTS = ("may_cause", "shows", "tells", "supersedes")
_SWITCHES = ("nest_under_effect",)
_DECLARED = {*_LISTS, *_SWITCHES, "category", "title", "severity", "layer", "cloud"}
_OF_STATEMENTS = ("about", "beside", "known", "ranks", "hosts", "each", "except", "unless", "explains", "check")
_DECLARED |= {*_OF_STATEMENTS}
_STEPS = ("first", "fix", "last")
_SAYS = {*_STEPS, "undecided", "needs", "summary", "cause", "also", "impact", "stops", "confirm", "severity"}
_SAYS |= {"confidence", "action", "fatal", "deadly"}
_HEAD = {*_SAYS, "words"}
_CASE = {*_SAYS, "when", "about", "beside"}
_OPENERS = ("when: ", "about: ")
_CONTINUED = compile_later(r"\n  +")
_SHORT = compile_later(r"(\w+) if (.+?): (.*)")  # a case of one line
_SHOWN = {*_STEPS, "impact", "stops"}  # what pages show of a case, in words that follow "If"
_REPEATED = (*_STEPS, *_OF_STATEMENTS, "also", "needs", "when", "words")
_ALLOWED = {
    "category": CATEGORIES,
    "severity": SEVERITIES,
    "confidence": ("certain", "likely", "possible"),
    "action": ACTIONS,
    "layer": tuple(BY_NAME),
    **dict.fromkeys((*_SWITCHES, "deadly"), ("yes", "no")),
    "fatal": ("yes", "anyway", "no"),
}
_SECTIONS = ("What it means", "Why it matters", "What to do", "When to ignore it", "What it does not prove")
_WIDTH = 120
_ALONE = compile_later(r"«(\w+)\?\{\1\}»")  # a value in a sentence or a command that is complete without it
_BOTH = r"«(?:not )?([\w -]+)\?([^«»]*)»«(?:not )?\1\?([^«»]*)»"
_EITHER, _EITHER_STEP = compile_later(_BOTH), compile_later(f"^{_BOTH}$")


def load_rules(folder: Path, modules: Iterable[ModuleType]) -> Iterator[Registered]:
    """Yield the rules of a folder: each page is one, with the function of its name if a module has one.

    Raises:
        PageError: a page has no block, or a wrong declaration.
    """
    checks: dict[str, Callable[..., Any]] = {
        name: one
        for module in modules
        for name, one in vars(module).items()
        if getattr(one, "__module__", "") == module.__name__
    }
    for name in sorted(entry.name[:-3] for entry in os.scandir(folder) if entry.name.endswith(".md")):
        declared, mark, block = split((folder / f"{name}.md").read_text(encoding="utf-8"))[0].partition("\nsummary: ")
        if not mark:
            raise PageError(f"{name}.md: the page has no block with a summary")
        page = _Page(name, declared, f"summary: {block}", checks)
        judge, explain = (None, page.explain) if page.takes_findings else (page.judge, None)
        yield Registered(page.rule, judge, explain, page.tell if page.rule.tells else None)


def split(text: str) -> tuple[str, str]:
    """Return the block of a page and the page without it; an empty block if there is none."""
    title, mark, rest = text.partition(_FENCE)
    if not mark or "\n#" in title:
        return "", text
    head, _, body = rest.partition("\n```\n")
    return head, f"{title}\n\n{body.lstrip()}"


def _file(name: str) -> str:
    return f"{name.replace('-', '_')}.md"


def _entries(text: str, keys: set[str], name: str) -> dict[str, list[str]]:
    """Return the keys of a block with their values.

    Raises:
        PageError: a key is unknown or repeated, or a value is none that the key may have.
    """
    entries: dict[str, list[str]] = {}
    for line in _CONTINUED.sub(" ", text).split("\n"):
        key, colon, given = line.partition(": ")
        if not line:
            raise PageError(f"{_file(name)}: a blank line in the block: its last line is ```")
        if not colon:
            raise PageError(f"{_file(name)}: '{line}' has no 'KEY: '; two blanks continue the line above")
        if key in entries and key not in _REPEATED:
            raise PageError(f"{_file(name)}: '{line}' repeats {key}")
        if key not in keys:
            raise PageError(f"{_file(name)}: '{line}': no such key here; choose from {', '.join(sorted(keys))}")
        if given not in _ALLOWED.get(key, (given,)):
            raise PageError(f"{_file(name)}: '{line}': choose from {', '.join(_ALLOWED[key])}")
        entries.setdefault(key, []).append(given)
    return entries


@cache
def cases(text: str, name: str) -> list[dict[str, list[str]]]:
    """Return what a rule says, and what it says instead in each of its cases, checked.

    Raises:
        PageError: something is missing or unknown.
    """
    blocks: list[list[str]] = [[]]
    opens = is_short = False
    for line in _CONTINUED.sub(" ", text).split("\n"):
        if short := _SHORT.fullmatch(line):
            blocks.append([f"when: {short[2]}", f"{short[1]}: {short[3]}"])
            opens, is_short = False, True
            continue
        is_opener = line.startswith(_OPENERS)
        if is_opener and not opens:
            blocks.append([])
        elif is_short and not is_opener:
            raise PageError(f"{_file(name)}: '{line}' follows a case of one line: KEY if CONDITION: VALUE")
        opens, is_short = is_opener, False
        blocks[-1].append(line)
    found = [_entries("\n".join(block), _CASE if place else _HEAD, name) for place, block in enumerate(blocks)]
    for case, key in [(case, key) for case in found[1:] for key in ("when", "about") if key in case]:
        parts = [given.partition(" # ") for given in case[key]]
        case[key] = [given.strip() for given, _, _ in parts]
        if told := [words for _, _, words in parts if words]:
            case["case"] = told
    for text in (text for case in found for given in case.values() for text in given if "«" in text or "»" in text):
        if re.search("[«»]", choose_parts(text, Hit())):
            raise PageError(f"{_file(name)}: '{text}': a part is «NAME? text» or «not NAME? text»")
    effect = "stops" if "stops" in found[0] else "impact"
    if lacking := {"summary", "cause", effect, "fix"} - found[0].keys():
        raise PageError(f"{_file(name)}: the rule has no {min(lacking)}")
    if "deadly" in (keys := ChainMap(*found)) and "stops" not in keys:
        raise PageError(f"{_file(name)}: deadly does not go with impact")
    for case in found[1:]:
        openers = {"about"} if "beside" in case else {"when", "about"}
        if not openers & case.keys() or (not _SHOWN.isdisjoint(case) and "case" not in case):
            raise PageError(f"{_file(name)}: a case lacks its condition (when), or its words (#): {case}")
        for part in (part for when in case.get("when", ()) for part in when.split(" & ")):
            condition(part, name)
    return found


class _Page:
    """A rule that is a page, with the functions of its name."""

    def __init__(self, name: str, declared: str, block: str, checks: Mapping[str, Callable[..., Any]]) -> None:
        self._declared, self._block = _entries(declared, _DECLARED, name), block
        word, _, kinds = self._declared.get("check", [name])[0].partition(" ")
        self._check: Callable[..., Iterable[Hit | Effects]] | None = checks.get(word)
        if self._check and (idle := ({*_OF_STATEMENTS} - {"check"}) & self._declared.keys()):
            raise PageError(f"{name}.md: a function finds what the rule is about: {min(idle)} says nothing")
        self.takes_findings = bool(self._check and self._check.__code__.co_argcount > 1)
        if self._check and kinds:
            self._check = partial(self._check, kinds=kinds.split("¦"))
        self._tell: Callable[[Facts, Account], Hit] = checks.get(f"tell_{name}") or tell_account
        if lacking := {"category", "title"} - self._declared.keys():
            raise PageError(f"{name}.md: the rule has no {min(lacking)}")
        fields: dict[str, Any] = {key: given[0] for key, given in self._declared.items() if key not in _REPEATED}
        fields |= {key: tuple(fields[key].split()) for key in fields.keys() & _LISTS}
        fields |= {key: fields[key] == "yes" for key in fields.keys() & _SWITCHES}
        if "layer" in fields:
            fields["layer"] = BY_NAME[fields["layer"]]
        self.rule = Rule(name.replace("_", "-"), **fields)

    def judge(self, facts: Facts) -> Iterator[Result]:
        """Judge what the page is about, or its function finds, and the faults in files from machines that name it."""
        yield from self._say_each(facts, self._check(facts)) if self._check else self._judge_things(facts)
        if facts.job.artifacts:
            from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

            yield from self._say_each(facts, settled.find_clues(facts, self.rule.name))

    def explain(self, facts: Facts, findings: Sequence[Finding]) -> Iterator[Result]:
        """Judge what the function of the page finds in the facts and all findings, or those that it may explain."""
        assert self._check
        if self.rule.may_cause:
            from nccl_inspect.judging.evidence import workloads  # few logs have files beside them

            findings = workloads.faults(self.rule.name, findings)
        return self._say_each(facts, self._check(facts, findings))

    def tell(self, facts: Facts, account: Account) -> Finding:
        """Say what the story of a job tells."""
        told = self._say(facts, self._tell(facts, account))
        assert isinstance(told, Finding)
        return told

    def _say_each(self, facts: Facts, hits: Iterable[Hit | Effects]) -> Iterator[Result]:
        return (self._say(facts, hit) if isinstance(hit, Hit) else hit for hit in hits)

    def _judge_things(self, facts: Facts) -> Iterator[Result]:
        """Judge the statements, settings and paths that a page is about."""
        others = cases(self._block, self.rule.name)[1:] if "\nabout: " in self._block else []
        name, declared = self.rule.name, self._declared
        each, excepted = declared.get("each", ()), declared.get("except", ())
        for case in (declared, *(case for case in others if "about" in case)):
            sources = case.get("about", ["errors"])
            found = _sort([find_things(name, facts, source) for source in sources])
            spared = [one for one in found.notices if any(is_met(text, facts, Hit([one]), name) for text in excepted)]
            if spared:
                yield Effects(spared)
            ids = set(map(id, spared))
            notices = [one for one in found.notices if id(one) not in ids]
            if not (notices or found.settings or found.evidence or found.paths):
                continue
            by_production = group_values((one.production, one) for one in notices)
            for some in by_production.values() if "production" in each else [notices]:
                shown = case.get("beside", declared.get("beside", []))
                hit = self._look_beside(facts, found.with_fields(notices=some), shown)
                if not any(is_met(text, facts, hit, name) for text in declared.get("unless", ())):
                    yield self._say(facts, hit, sources)
            if "about" not in each:
                return

    def _look_beside(self, facts: Facts, hit: Hit, shown: list[str]) -> Hit:
        """Return what the page is about, with what it shows beside it, and what it knows."""
        lines = [*(hit.evidence or ())]
        known = [entry.rpartition(" = ") for entry in (*shown, *self._declared.get("known", ()))]
        values = [(name, find_things(self.rule.name, facts, source)) for name, _, source in known]
        beside = _sort([hit.notices, *(some for _, some in values[: len(shown)])])
        paths = hit.paths or beside.paths
        named: dict[str, object] = {"more": [*hit.notices, *lines][1:], "lines": lines}
        named |= {name: list(chain.from_iterable(some)) for name, some in group_values(values).items() if name}
        if "ranks" in self._declared:
            ranks = ranks_concerned(facts, hit.notices, *self._declared["ranks"][0].split())
            hit = hit.with_fields(ranks=ranks, hosts=hosts_in(hit.notices) or hosts_with(facts.job, ranks))
            named["concerned"] = ranks
        if "hosts" in self._declared:
            stated = (_field(one, name) for one in hit.notices for name in self._declared["hosts"][0].split())
            hit = hit.with_fields(hosts={str(host) for host in stated if host} or None)
        if beside.settings or beside.evidence:
            named |= {"settings": hit.settings or beside.settings}
            quoted = [*(paths.first_lines()[:3] if paths else ()), *beside.notices]
            hit = hit.with_fields(evidence=[*quoted, *hit.settings, *beside.settings, *(beside.evidence or ())])
        explained = chain.from_iterable(
            find_things(self.rule.name, facts, one) for one in self._declared.get("explains", ())
        )
        return hit.with_fields(notices=beside.notices, named=named, paths=paths, explains=list(explained))

    def _say(self, facts: Facts, hit: Hit, sources: list[str] | None = None) -> Result:
        """Return what the page says of a hit; ``sources`` are the statements that a case may be about."""
        head, *others = cases(self._block, self.rule.name)
        derived = {name: find(facts, hit) for name, find in DERIVED.items() if name in self._block}
        if hit.notices and "{cuda_" in self._block:
            derived |= cuda.describe(facts, hit.notices)
        hit = hit.with_fields(named={name: given for name, given in derived.items() if given} | {**hit.named})
        fitting = [
            case
            for case in others
            if (sources and case.get("about") is sources)
            or any(is_met(text, facts, hit, self.rule.name) for text in case.get("when", ()))
        ]
        says = ChainMap(*fitting, head)
        hit = _put_into_words(hit, head.get("words", ()))
        hit = hit.with_fields(ranks=None if hit.ranks is None else {*hit.ranks})
        text = {
            key: fill_in(remedies.look_up(given[0]), hit).replace(LACKING, "")
            for key, given in says.items()
            if key not in _REPEATED
        }
        if "undecided" in says:
            needs = _needs([fill_in(one, hit).replace(LACKING, "") for one in says.get("needs", ())])
            return NotJudged(self.rule.name, text["undecided"], needs, hit.paths)
        found = {
            "confirm": text.get("confirm", ""),
            "severity": text.get("severity"),
            "confidence": hit.confidence or text.get("confidence"),
            "fatal": text.get("fatal") in ("yes", "anyway"),
            "fatal_anyway": text.get("fatal") == "anyway",
            **_find_subject(facts, hit),
        }
        if "stops" in next(case for case in (*fitting, head) if not {"stops", "impact"}.isdisjoint(case)):
            found |= _judge_continuation(facts, hit, text, found["confidence"] or "likely")
        elif hit.effects:
            from nccl_inspect.judging.evidence import workloads  # few logs have files beside them

            found |= workloads.describe_effects(facts, hit, found["confirm"])
        else:
            quoted = [value_of(hit, match[2]) for match in PLACEHOLDER.finditer(choose_parts(says["impact"][0], hit))]
            rates = [one.reference for one in quoted if isinstance(one, Rate)]
            estimates = chain.from_iterable(one.references for one in quoted if isinstance(one, Estimate))
            found["impact"] = Estimate(text["impact"], (*rates, *estimates))
        return self.rule.finding(
            text["summary"],
            cause=". ".join(
                filter(None, (text["cause"], *fill_steps(map(remedies.look_up, says.get("also", ())), hit)))
            ),
            fix=dict.fromkeys(fill_steps(steps(says), hit)),
            paths=hit.paths,
            open_paths=hit.open_paths,
            explained=[*hit.notices, *hit.explains],
            explains=list(dict.fromkeys(effect.rule for effect in hit.effects)),
            open_end=hit.open_end,
            action=text.get("action", ""),
            **found,
        )


def _sort(found: list[Things]) -> Hit:
    """Return a hit with the statements, settings, lines and paths of some things, each once."""
    several = [some for some in found if isinstance(some, Selection)]
    each = list({id(one): one for some in found if not isinstance(some, Selection) for one in some}.values())
    return Hit(
        [one for one in each if isinstance(one, Notice)],
        settings=[one for one in each if isinstance(one, Setting)],
        evidence=[one for one in each if isinstance(one, Evidence)] or None,
        paths=reduce(or_, several) if several else None,
    )


def _judge_continuation(facts: Facts, hit: Hit, text: dict[str, str], confidence: str) -> dict[str, Any]:
    """Return what errors that name what failed are: an error if the job failed, an info if it was survived.

    If it may have continued, they are a clue: work below may be that of a rank that has not yet lost the others.
    """
    if life.succeeded_below(facts, hit.notices):
        return {"impact": remedies.look_up("@SURVIVED"), "severity": "info", "confidence": confidence}
    if is_fatal(facts, hit.notices, text.get("deadly") == "yes"):
        return {"impact": text["stops"], "confirm": "", "severity": "error", "confidence": confidence, "fatal": True}
    if facts.is_over():
        return {"impact": remedies.look_up("@SOUND"), "confirm": "", "severity": "info", "confidence": confidence}
    is_sure = confidence == "certain"
    impact = f"{remedies.look_up('@CONTINUES')} {text['stops']}"
    return {"impact": impact, "severity": "warning", "confidence": "likely" if is_sure else confidence}


def _put_into_words(hit: Hit, entries: Iterable[str]) -> Hit:
    """Return a hit whose values have the words of a page: ``NAME VALUE = WORDS``, with ``*`` for any other value."""
    tables: dict[str, dict[str, str]] = {}
    for what, _, text in (entry.partition(" =") for entry in entries):
        name, _, one = what.partition(" ")
        tables.setdefault(name, {})[one] = text.strip()
    named = dict(hit.named)
    for name, words in tables.items():
        values = named[name] if name in named else [_field(notice, name) for notice in hit.notices]
        each = [str(one) for one in (values if isinstance(values, list) else [values]) if one not in (None, "")]
        known = dict.fromkeys(words.get(one, words.get("*", "*")).replace("*", one) for one in each)
        named[name] = [text for text in known if text]
    return hit.with_fields(named=named) if tables else hit


def _find_subject(facts: Facts, hit: Hit) -> dict[str, Any]:
    """Return the ranks, hosts and lines that a finding is about: what the hit gives, else those of what it is about."""
    notices, settings, paths, ranks, hosts = hit.notices, hit.settings, hit.paths, hit.ranks, hit.hosts
    if hosts is None and settings:
        hosts = hosts_in(notices).union(host for setting in settings for host in setting.hosts)
    elif hosts is None and ranks is not None and not (notices or paths):
        hosts = hosts_with(facts.job, {*ranks})
    elif hosts is None:
        hosts = hosts_in(notices) | (paths.hosts() if paths else set())
    if ranks is None:
        ranks = actors_of(facts).ranks_stating(notices)
        ranks |= facts.ranks_with(settings) if settings else paths.ends() if paths else set()
    shown = hit.evidence
    if shown is None:
        shown = [*first_evidence(notices), *evidence_of_settings(settings), *(paths.first_lines() if paths else ())]
    return {"ranks": ranks, "hosts": hosts, "evidence": lines_of(shown)}


def _needs(given: Iterable[str]) -> Needs:
    needs: dict[str, Any] = {"others": ()}
    for text in given:
        key, _, rest = text.partition(" ")
        if text in ("platform", "topology", "all ranks"):
            needs[text.replace(" ", "_")] = True
        elif key in ("log", "shows", "subsystems"):
            needs[key] = tuple(rest.split()) if key == "subsystems" else rest
        else:
            needs["others"] += (text,)
    return Needs(**needs)


def steps(says: _Entries) -> list[str]:
    """Return the steps of a rule or a case; ``@NAME`` is one that several rules have."""
    return [remedies.look_up(step) for key in _STEPS for step in says.get(key, ())]


def render_page(text: str, rule: Rule) -> str:
    """Return a page without its block, and with what only the block says in words."""
    head, page = split(text)
    if not head:
        return text
    says = cases("summary: " + head.partition("\nsummary: ")[2], rule.name)
    prose, mark, examples = page.partition("\n```examples\n")
    if not mark:
        raise PageError(f"{_file(rule.name)}: no block of examples")
    lead, *parts = re.split(r"^## ", prose, flags=re.MULTILINE)
    sections = {name: body.strip() for name, _, body in (part.partition("\n") for part in parts)}
    sections.setdefault("Why it matters", "\n\n".join(_list_effects(says)))
    sections.setdefault("What to do", "\n\n".join(_advice(says)))
    if lacking := [name for name in _SECTIONS if name not in sections]:
        raise PageError(f"{_file(rule.name)}: no section '## {lacking[0]}'")
    sections = {name: sections[name] for name in _SECTIONS} | {"Examples": "\n\n".join(_examples(examples))}
    return "\n".join(
        (lead.strip(), f"\n{rule.title}.", *(f"\n## {name}\n\n{text}" for name, text in sections.items()), "")
    )


def _examples(block: str) -> Iterator[str]:
    """Yield the examples of a page and what introduces them: one without lines has the log of the one above."""
    _, *given = re.split("^>>> ", block.removesuffix("```\n"), flags=re.MULTILINE)
    log = ""
    for head, _, lines in (example.partition("\n") for example in given):
        log = lines or log
        result, _, words = head.partition("   # ")
        if words:
            yield _wrap(words if words.endswith(".") else f"{words}:")
        yield f"```log {result}\n{log}```"


def _wrap(text: str) -> str:
    from textwrap import fill  # only for a page

    return fill(text, _WIDTH, break_on_hyphens=False)


def _list_effects(says: list[dict[str, list[str]]]) -> Iterator[str]:
    known = set[str]()
    for case in says:
        for effect in {*map(remedies.look_up, case.get("impact", ())), *case.get("stops", ())} - known:
            known.add(effect)
            if PLACEHOLDER.fullmatch(effect):
                continue
            words = f"If {case['case'][0]}: {effect}" if "case" in case else effect
            yield _wrap(capitalize(_general_text(f"{words}.")))


def _general_text(text: str) -> str:
    """Return a text of a block for all jobs: of two parts, one for each case, both, and several of what is counted."""

    def name_in_general(match: re.Match[str]) -> str:
        kind, name, form, word, _ = match.groups()
        if "count" in (kind, form):
            return f"several {count(2, word or name).removeprefix('2 ')}"
        if form == "does":
            return "are" if word == "be" else word
        in_command, named = match.end() <= match.string.find(remedies.COMMENT), f"<{form or name}>"
        return str(FIGURES.get(name) or (named if in_command else list_table("general").get(name, named)))

    text = _ALONE.sub("", _EITHER.sub(r"«\1?\2, or \3»", text))
    while PART.search(text):
        text = PART.sub(r"\3", text)
    return PLACEHOLDER.sub(name_in_general, text)


def _advice(says: list[dict[str, list[str]]]) -> Iterator[str]:
    from itertools import groupby  # only for a page

    filled_in = set[str]()  # steps with values, which the page shows once
    for case in says:
        fitting = [step for step in steps(case) if not PLACEHOLDER.fullmatch(step) and step not in filled_in]
        filled_in.update(filter(PLACEHOLDER.search, fitting))
        # One step for a job and another one for other jobs are two.
        each = (one for step in fitting for one in _EITHER_STEP.sub(r"\2\n\3", step).split("\n"))
        advised = dict.fromkeys(map(_general_text, each))
        if advised and "case" in case:
            yield _wrap(f"If {case['case'][0]}:")
        for is_sentence, group in groupby(advised, remedies.is_sentence):
            if is_sentence:
                yield from map(_wrap, group)
            else:
                yield "\n".join(("```", *group, "```"))
