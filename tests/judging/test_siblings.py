"""Siblings of one job are compared in whatever order they printed."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations

from nccl_inspect.judging.siblings import Attribute, Sibling, find_odd


def is_less(value: Hashable, usual: Hashable) -> bool:
    return isinstance(value, int) and isinstance(usual, int) and value < usual


def test_the_worse_of_two_is_odd_whichever_printed_first() -> None:
    channels = Attribute("channels", "", ("topology",), is_less, least=2)
    hosts = {name: Sibling("host", name, frozenset({name}), frozenset({rank}), list) for rank, name in enumerate("ab")}
    for order in permutations([(hosts["a"], 8), (hosts["b"], 7)]):
        odd = find_odd(channels, dict(order), "hosts")
        assert odd is not None
        assert odd.siblings == [hosts["b"]]
        assert odd.usual == 8
