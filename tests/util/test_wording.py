"""Ranks and names in few words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.util.wording import (
    _runs,
    expand,
    folded,
    range_word,
    range_words,
    ranges,
    read_range,
    some_names,
    some_ranks,
)


def numbers_of(text: str) -> set[int]:
    found: set[int] = set()
    for word in text.split(",") if text else ():
        part = read_range(word)
        assert part is not None, word
        found |= set(part)
    return found


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1, 2, 3, 7), "0-3,7"),
        ((0, 8, 16, 24), "0,8,16,24"),
        (range(0, 1017, 8), "0-1016:8"),
        ((*range(8), *range(64, 72)), "0-7,64-71"),
        ({*range(0, 121, 8)} - {64}, "0-56:8,72-120:8"),
        ({*range(0, 1017, 8)} | {1}, "0-1016:8,1"),
        ([rank for rank in range(1024) if rank % 8 < 2], "0-1016:8,1-1017:8"),
        ([rank for rank in range(1024) if rank % 8 < 2 and rank != 8], "0,1-1017:8,16-1016:8"),
        ([*range(0, 64, 8), *range(100, 110)], "0-56:8,100-109"),
    ],
)
def test_ranks_are_short(ranks: set[int], words: str) -> None:
    assert ranges(ranks) == words


STRIDES = st.builds(
    lambda start, steps, step: set(range(start, start + steps * step, step)),
    st.integers(0, 2000),
    st.integers(1, 60),
    st.integers(1, 70),
)
RANKS = st.one_of(
    st.sets(st.integers(0, 300)),
    st.lists(STRIDES, max_size=4).map(lambda parts: set().union(*parts)),
    st.tuples(STRIDES, st.sets(st.integers(0, 2000), max_size=8)).map(lambda both: both[0] - both[1]),
)


@given(RANKS)
def test_ranks_are_read_back(ranks: set[int]) -> None:
    assert numbers_of(ranges(ranks)) == ranks
    assert sum(len(read_range(word) or ()) for word in range_words(ranks)) == len(ranks)
    assert len(ranges(ranks)) <= len(",".join(map(range_word, _runs(sorted(ranks)))))


def test_of_many_scattered_ranks_the_others_are_counted() -> None:
    ranks = [number * number for number in range(40)]
    words, _, more = some_ranks(ranks).partition(",… ")
    assert len(numbers_of(words)) + int(more.removesuffix(" more")) == 40


@pytest.mark.parametrize("word", ["", "a", "7-3", "0-8:0", "-3", "0-7/2", "0-7:", "1:2"])
def test_what_is_no_range(word: str) -> None:
    assert read_range(word) is None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"mlx5_{at}" for at in range(8)], ["mlx5_[0-7]"]),
        ([f"gpu-node-{at:04}" for at in range(128)], ["gpu-node-[0000-0127]"]),
        ([f"ip-10-0-1-{at}" for at in range(12, 20)], ["ip-10-0-1-[12-19]"]),
        ([f"rack{rack}-node{at:02}" for rack in (1, 2) for at in range(1, 17)], ["rack[1-2]-node[01-16]"]),
        ([f"rack3-node{at:02}" for at in range(1, 17)] + ["rack4-node01"], ["rack3-node[01-16]", "rack4-node01"]),
        ([f"n{at}" for at in range(8, 12)], ["n[8-11]"]),
        (["n08", "n09", "n10", "n8"], ["n[08-10]", "n8"]),
        (["login", "n1", "n2"], ["login", "n[1-2]"]),
        ([f"rdmap{at}s0" for at in (16, 79, 110)], ["rdmap[16,79,110]s0"]),
        (["a[1", "a[2"], ["a[1", "a[2"]),
        (["n1", "n1"], ["n1"]),
        ([f"n{at}.example.com" for at in range(0, 20, 2)], ["n[0-18:2].example.com"]),
    ],
)
def test_names_are_folded(names: list[str], words: list[str]) -> None:
    assert folded(names) == words


NAMES = st.lists(st.from_regex(r"[a-c]?(-?[0-9]{1,4}[a-b]?){0,3}", fullmatch=True), unique=True)


@given(NAMES)
def test_folded_names_are_read_back(names: list[str]) -> None:
    back = [name for word in folded(names) for name in expand(word)]
    assert sorted(back) == sorted(names)


def test_a_few_names_stay_as_they_are() -> None:
    assert some_names(["n1", "n2", "n3"]) == "n1, n2, n3"
    assert some_names([f"n{at}" for at in range(9)]) == "n[0-8]"
    assert some_names(["a1", "a2", "b", "c", "d3", "d4"]) == "a[1-2], b, c, … 2 more"
    assert some_names(["a[1]", "b", "c", "d[0-9]"]) == "a[1], b, c, … 1 more"


@pytest.mark.parametrize("name", ["n[]", "n[3-1]", "n[a]", "n[1-", "n", "n[0-999999999]"])
def test_what_stands_for_itself(name: str) -> None:
    assert expand(name) == [name]
