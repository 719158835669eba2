"""Roles: what kind of line a production is stands in the grammar, and rules ask for the kind."""

import re
from functools import cache
from pathlib import Path

import pytest

import nccl_inspect
from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar import engine, files
from nccl_inspect.grammar.layers import ROLES
from nccl_inspect.judging.engine import list_rules

PRODUCTIONS = engine.load_grammar().productions
MODULES = sorted(Path(nccl_inspect.__file__).parent.rglob("*.py"))
_QUALIFIED = re.compile(r"[a-z-]+/[a-z0-9-]+[a-z0-9]")
_OTHER_MEANINGS = {"trees", "xid", "p2p-disabled"}
"""A key of the JSON, a field of an event, a reason of an event."""


def test_each_role_is_described_and_used() -> None:
    used = {role for production in PRODUCTIONS for role in production.roles}
    assert used == set(ROLES)
    assert all(sentence.endswith(".") for sentence in ROLES.values())
    assert not ROLES.keys() & {production.name for production in PRODUCTIONS}


def test_an_unknown_role_is_refused() -> None:
    text = "dialect: nccl\n\nproduction: lost\nline: lost {rank}\nrole: survivable lost-peer\n"
    with pytest.raises(
        GrammarError, match=r"own\.grammar: production 'lost' has the unknown role 'lost-peer'; choose from "
    ):
        files.read(text, "own.grammar")


def test_python_names_productions_with_their_dialect() -> None:
    known = {f"{production.dialect}/{production.name}" for production in PRODUCTIONS}
    dialects = tuple(f"{production.dialect}/" for production in PRODUCTIONS)
    named = {text for text in _texts() if _QUALIFIED.fullmatch(text) and text.startswith(dialects)}
    assert named <= known, "no production of these names"
    rules = {entry.rule.name for entry in list_rules()}
    bare = {production.name for production in PRODUCTIONS} & _texts() - rules - _OTHER_MEANINGS
    assert not bare, "say dialect/name"


def test_no_rule_is_asked_for_as_a_production() -> None:
    calls = (call for module in MODULES for call in _NOTICES.findall(module.read_text(encoding="utf-8")))
    asked = {name for call in calls for name in _TEXT.findall(call)}
    assert len(asked) > 50
    assert all("/" in name for name in asked)


def test_each_role_is_asked_for() -> None:
    pages = (page.read_text(encoding="utf-8") for page in (Path(nccl_inspect.__file__).parent / "rules").glob("*.md"))
    asked = {role for page in pages for roles in _OF_PAGE.findall(page) for role in roles.split()}
    assert ROLES.keys() <= _texts(but="roles.py") | asked


_TEXT = re.compile(r'"([^"\n]*)"')
_OF_PAGE = re.compile(r"^(?:about|beside|when|unless): role ([^#\n]*)", re.MULTILINE)
_NOTICES = re.compile(r"\.notices\(([^()]*)\)")


@cache
def _texts(but: str = "") -> frozenset[str]:
    """Return the texts in quotes of all modules."""
    files = (module.read_text(encoding="utf-8") for module in MODULES if module.name != but)
    return frozenset(text for file in files for text in _TEXT.findall(file))
