"""Roles: what kind of line a production is stands in the grammar, and rules ask for the kind."""

import pytest

from nccl_inspect.errors import GrammarError
from nccl_inspect.grammar import engine, files
from nccl_inspect.grammar.roles import ROLES

PRODUCTIONS = engine.shipped().productions


def test_each_role_is_described_and_used() -> None:
    used = {role for production in PRODUCTIONS for role in production.roles}
    assert used == set(ROLES)
    assert all(sentence.endswith(".") for sentence in ROLES.values())


def test_an_unknown_role_is_refused() -> None:
    text = "dialect: nccl\n\nproduction: lost\nline: lost {rank}\nrole: survivable lost-peer\n"
    with pytest.raises(
        GrammarError, match=r"own\.grammar: production 'lost' has the unknown role 'lost-peer'; roles: "
    ):
        files.read(text, "own.grammar")


def test_a_production_may_have_several_roles() -> None:
    (production,) = files.read("dialect: nccl\n\nproduction: lost\nline: lost\nrole: survivable probe\n")
    assert production.roles == {"survivable", "probe"}
    assert engine.roles_of("torch", "nccl-error") >= {"propagated-error"}
    assert not engine.roles_of("torch", "no-such-production")
