"""A setting whose value NCCL cannot read."""

import re
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, lines_of, unset, words_of
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="setting-invalid",
    category="environment",
    severity="info",
    title="A setting has a value that NCCL cannot read or use",
    local=True,
)
_VARIABLE = re.compile(r"\b(?:OFI_NCCL|NCCL|RCCL)_[A-Z0-9_]+")
_NUMBERS, _LIST, _RINGS = (
    ("nccl/env-invalid", "tcpxo/fastrak-env-invalid"),
    "nccl/algo-setting-invalid",
    "nccl/rings-invalid-old",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of numbers that are none (src/misc/param.cc), and of lists (src/graph/tuning.cc)."""
    if lists := facts.notices(_LIST):
        yield _not_a_list(facts, lists)
    if rings := facts.notices(_RINGS):
        yield _not_rings(facts, rings)
    own = (*_NUMBERS, _LIST, _RINGS)
    if corrected := [one for one in facts.leading_to(RULE.name) if one.production not in own]:
        yield _corrected(facts, corrected)
    said = facts.notices(*_NUMBERS)
    if not said:
        return
    yield RULE.finding(
        f"NCCL cannot read {listed(map(_words, said))}",
        cause="the value is not a number, and NCCL takes numbers only for it: a typing error, a unit (4M) or a comment",
        impact="the setting does nothing: NCCL goes on with its default",
        fix=[
            *(f"{value(notice, 'name')}=<number>   # without unit; or unset it" for notice in _once(said)),
            "Look at /etc/nccl.conf and ~/.nccl.conf as well.",
        ],
        notices=said,
        explains_errors=said,
    )


def _not_rings(facts: Facts, said: list[Notice]) -> Finding:
    """Until 2.4 rings could be given by hand (src/misc/rings.cc)."""
    given = facts.chosen("NCCL_RINGS")
    return RULE.finding(
        f"NCCL cannot use the rings of {words_of(given) if given else 'NCCL_RINGS'}",
        cause="they do not hold each rank of the job once: written for another number of GPUs",
        impact="the setting does nothing: NCCL looks for rings itself",
        fix=unset(given) or ["unset NCCL_RINGS"],
        notices=said,
        evidence=[*first_said(said), *lines_of(given, 1)],
    )


def _not_a_list(facts: Facts, said: list[Notice]) -> Finding:
    """A word in NCCL_ALGO or NCCL_PROTO that NCCL does not know: since 2.24 the initialisation fails for it."""
    given = facts.chosen("NCCL_ALGO", "NCCL_PROTO")
    named = words_of(given) if given else "NCCL_ALGO or NCCL_PROTO"
    return RULE.finding(
        f"NCCL cannot read {named}: {said[0].message}",
        cause=f"{named} is not written as NCCL wants it: a typing error, a name that this release does not know, or a "
        "list for several collectives without the name in front of each",
        impact="the communicator is not built: since 2.24 NCCL stops there, releases before passed over such words",
        fix=[
            *(unset(given) or ["unset NCCL_ALGO NCCL_PROTO"]),
            'NCCL_ALGO="ring;allreduce:tree,ring"   # how a list is written; NCCL_PROTO likewise: LL, LL128, Simple',
        ],
        severity="error",
        notices=said,
        evidence=[*first_said(said), *lines_of(given, 1)],
        fatal=True,
    )


def _corrected(facts: Facts, said: list[Notice]) -> Finding:
    """A value that NCCL or a plugin passes over, or replaces by the nearest one that it can use."""
    names = dict.fromkeys(name for one in said for name in _VARIABLE.findall(one.message))
    return RULE.finding(
        f"a setting does not do what it says: {said[0].message}",
        cause="the value is out of range, misspelled, or not possible with this release or on this machine",
        impact="NCCL goes on with its default, or with the nearest value that it can use",
        fix=[
            *([f"unset {' '.join(names)}   # or give a value that this release knows"] if names else []),
            "env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf   # inside the container; a program may set it, too",
        ],
        notices=said,
        explains_errors=said,
    )


def _once(said: list[Notice]) -> list[Notice]:
    return list({value(notice, "name"): notice for notice in said}.values())


def _words(notice: Notice) -> str:
    given, default = value(notice, "given"), value(notice, "default")
    return f"{value(notice, 'name')}={given} and uses its default ({default})"
