"""Roles: what kind of line a production is stands in the grammar, and rules ask for the kind."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import nccl_inspect
from nccl_inspect.errors import GrammarError
from nccl_inspect.event.types import Message
from nccl_inspect.grammar import engine, files
from nccl_inspect.grammar.roles import ROLES
from nccl_inspect.judging.engine import registered

PRODUCTIONS = engine.shipped().productions
MODULES = sorted(Path(nccl_inspect.__file__).parent.rglob("*.py"))
_QUALIFIED = re.compile(r"[a-z-]+/[a-z0-9-]+[a-z0-9]")
_OTHER_MEANINGS = {"trees", "xid", "p2p-disabled"}
"""A key of the JSON, a field of an event, a reason of an event."""


def test_each_role_is_described_and_used() -> None:
    used = {role for production in PRODUCTIONS for role in production.roles}
    assert used == set(ROLES)
    assert all(sentence.endswith(".") for sentence in ROLES.values())


def test_an_unknown_role_is_refused() -> None:
    text = "dialect: nccl\n\nproduction: lost\nline: lost {rank}\nrole: survivable lost-peer\n"
    with pytest.raises(
        GrammarError, match=r"own\.grammar: production 'lost' has the unknown role 'lost-peer'; choose from "
    ):
        files.read(text, "own.grammar")


def test_a_production_may_have_several_roles() -> None:
    (production,) = files.read("dialect: nccl\n\nproduction: lost\nline: lost\nrole: survivable probe\n")
    assert production.roles == {"survivable", "probe"}
    assert engine.roles_of(Message(dialect="torch", production="nccl-error")) >= {"propagated-error"}
    assert not engine.roles_of(Message(dialect="torch", production="no-such-production"))


def test_no_role_has_the_name_of_a_production() -> None:
    assert not ROLES.keys() & {production.name for production in PRODUCTIONS}


def test_python_names_productions_with_their_dialect() -> None:
    known = {f"{production.dialect}/{production.name}" for production in PRODUCTIONS}
    dialects = tuple(f"{production.dialect}/" for production in PRODUCTIONS)
    named = {text for text in _constants() if _QUALIFIED.fullmatch(text) and text.startswith(dialects)}
    assert named <= known, "no production of these names"
    rules = {entry.rule.name for entry in registered()}
    bare = {production.name for production in PRODUCTIONS} & _constants() - rules - _OTHER_MEANINGS
    assert not bare, "say dialect/name"


def test_no_rule_is_asked_for_as_a_production() -> None:
    asked = {
        argument.value
        for tree in map(_tree, MODULES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "notices"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    assert len(asked) > 50
    assert all("/" in str(name) for name in asked)


def test_each_role_is_asked_for() -> None:
    others = (module for module in MODULES if module.name != "roles.py")
    asked = {text for module in others for text in _texts(module)}
    assert ROLES.keys() <= asked


_OWN = """dialect: nccl
family: own
subsys: INIT

production: own-connect
line: ownConnect to {peer:w} gave up: {error:t}
event: Notice tone=error
says: A release of tomorrow words a connection that it gave up in its own way.
role: connection-failed
sample: ownConnect to 10.0.0.2<40000> gave up: Connection refused

production: own-destroyed
line: the communicator {comm:p} is past its end
event: Notice tone=error
says: A release of tomorrow words the use of a destroyed communicator in its own way.
role: dead-communicator
rule: invalid-usage
sample: the communicator 0x7f00 is past its end
"""


@pytest.fixture
def _with_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shipped grammar with one more file, and no other edit."""
    own = tmp_path / "own.grammar"
    own.write_text(_OWN, encoding="utf-8")
    shipped = list(files.shipped())
    monkeypatch.setattr(files, "shipped", lambda: [*shipped, own])
    engine.shipped.cache_clear()
    yield
    monkeypatch.undo()
    engine.shipped.cache_clear()


@pytest.mark.usefixtures("_with_own_lines")
@pytest.mark.parametrize(
    ("lines", "rule", "words"),
    [
        (
            "a:1:1 [0] NCCL WARN ownConnect to 10.0.0.2<40000> gave up: Connection refused",
            "bootstrap-connect-refused",
            "nothing listens at that address",
        ),
        (
            "a:1:1 [0] NCCL WARN the communicator 0x7f00 is past its end",
            "invalid-usage",
            "destroyed, corrupted or not ready",
        ),
    ],
)
def test_a_new_line_of_a_known_kind_is_one_block_of_grammar(lines: str, rule: str, words: str) -> None:
    job = nccl_inspect.read(f"{lines}\n".encode())
    assert job.findings[0].rule == rule
    assert words in job.findings[0].cause


def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def _texts(module: Path) -> Iterator[str]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def _constants() -> frozenset[str]:
    return frozenset(text for module in MODULES for text in _texts(module))
