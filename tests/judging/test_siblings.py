"""Siblings of one job are compared in whatever order they printed."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations

from nccl_inspect.judging.siblings import Attribute, Odd, Sibling, find_odd, join, tell


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


def test_odd_ones_are_told_as_what_they_have_in_common() -> None:
    """Two hosts of many, the rank of two odd pairs, and the host of which all ranks are odd."""
    channels = Attribute("channels", "", ("topology",), is_less)
    hosts = [Sibling("host", f"n{at}", frozenset({f"n{at}"}), frozenset({at}), list) for at in range(16)]
    two = find_odd(channels, {host: 8 - (at > 13) for at, host in enumerate(hosts)}, "hosts", "channels")
    assert two is not None
    assert tell([two]) == "hosts n14, n15 differ from the 14 other hosts (channels: 7 instead of 8)"

    def find_odd_pair(odd: tuple[int, int], *others: tuple[int, int]) -> Odd:
        pairs = {
            Sibling("pair", f"{a}-{b}", frozenset({"n0"}), frozenset({a, b}), list): 8 - ((a, b) == odd)
            for a, b in (odd, *others)
        }
        found = find_odd(channels, pairs, "pairs of host n0", "channels")
        assert found is not None
        return found

    around = ((2, 3), (4, 5), (6, 7))
    shared = [find_odd_pair((0, 1), *around), find_odd_pair((0, 2), *around)]
    all_ranks = {"n0": frozenset(range(8))}
    assert [tell(one) for one in join(shared, all_ranks)] == [
        "rank 0 differs from the 3 other ranks with host n0 (channels: 7 instead of 8)"
    ]
    apart = [find_odd_pair((0, 1), *around), find_odd_pair((2, 3), (0, 4), *around[1:])]
    assert [tell(one) for one in join(apart, {"n0": frozenset(range(4))})] == [
        "host n0 differs from the 3 other hosts (channels: 7 instead of 8)"
    ]
    assert [tell(one) for one in join(apart, all_ranks)] == [
        "pairs 0-1, 2-3 differ from the 3 other pairs of host n0 (channels: 7 instead of 8)"
    ]
