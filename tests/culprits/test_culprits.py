"""What bad pairs have in common, and who is odd, whatever they are; the logs with labels show it of each fault."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.judging import culprits
from nccl_inspect.judging.culprits import Trait
from nccl_inspect.judging.siblings import Attribute, Odd, Sibling, find_odd, join, tell

KINDS = ("host", "gpu")
Units = list[tuple[tuple[int, int], bool]]


@st.composite
def jobs(draw: st.DrawFn) -> Units:
    hosts = draw(st.integers(2, 20))
    bad = draw(st.sets(st.integers(0, hosts - 1), max_size=4))
    pairs = draw(st.lists(st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)), max_size=120))
    noise = draw(st.sets(st.integers(0, 119), max_size=3))
    return [((a, b), bool({a, b} & bad) != (at in noise)) for at, (a, b) in enumerate(pairs) if a != b]


def group(units: Units, names: Callable[[int], int]) -> tuple[culprits.Population, list[Trait]]:
    """Return pairs of hosts; the numbers of traits and their names follow the names of the hosts."""
    traits = [Trait("host", f"{host:03}") for host in range(64)]
    sets = [({names(a), names(b)}, bad) for (a, b), bad in units]
    bad, good = ([one for one, is_bad in sets if is_bad is kind] for kind in (True, False))
    return culprits.Population(bad, lambda wanted: (one & wanted for one in good), len(good)), traits


@given(jobs(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_culprits_with_these_names(units: Units, random: Random) -> None:
    order = list(range(64))
    random.shuffle(order)
    plain, traits = group(units, lambda host: host)
    renamed, _ = group(units, order.__getitem__)
    before, after = (culprits.explain(one, traits, KINDS) for one in (plain, renamed))
    assert before.explained == after.explained
    counts = [sorted((count.bad, count.good) for count in one.culprits) for one in (before, after)]
    assert counts[0] == counts[1]
    if len(set(counts[0])) == len(counts[0]):
        assert [order[count.trait] for count in before.culprits] == [count.trait for count in after.culprits]


@given(jobs())
def test_counts_add_up(units: Units) -> None:
    compared, traits = group(units, lambda host: host)
    found = culprits.explain(compared, traits, KINDS)
    covered: set[int] = set()
    for count in found.culprits:
        having = [at for at, ((a, b), _) in enumerate(units) if count.trait in (a, b)]
        assert count.bad == sum(units[at][1] for at in having)
        assert count.good == len(having) - count.bad
        assert count.good < compared.goods, "there are good ones without it"
        covered.update(at for at in having if units[at][1])
    assert found.explained == len(covered)
    assert not found.culprits or found.explained >= 0.95 * len(compared.bad)


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
