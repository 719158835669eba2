"""Many ranks and many names in few words, and back: ``0-1016:8``, ``gpu-node-[0000-0127]``.

Both follow Slurm, whose users read such lists daily: a step follows a colon, as in ``sbatch --array=0-15:4`` (and
in ``taskset -c 0-31:2``), and numbers that differ are in brackets, as ``scontrol show hostlist`` folds them.
Neither has a blank, so that what a report prints can be typed behind an option as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from math import prod
from operator import sub

from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.patterns import compile_later

_LEAST_STEPS = 5  # ranks from which a stride is easier to read than the ranks themselves
_LEAST_IN_STRIDE = 4  # ranks of a stride where they are split into several
_MOST_STEPS_TRIED = 2
_RANGE = compile_later(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_NUMBER = compile_later(r"([0-9]+)")
_BRACKETS = compile_later(r"\[([0-9A-Za-z][0-9A-Za-z,:/-]*)\]")
_SPAN = compile_later(r"([A-Za-z]*)([0-9]{1,9})(?:-\1([0-9]{1,9})(?:[:/]([0-9]{1,9}))?)?")
_MAX_DIGITS = 9  # of a number that names count with; longer ones are identifiers
_MAX_EXPANDED = 100_000


def ranges(numbers: Iterable[int]) -> str:
    """Return ranks in words, as short as can be: ``0-3,7``, ``0-1016:8``."""
    return ",".join(map(range_word, _parts(numbers)))


def some_ranks(numbers: Iterable[int], limit: int = 12) -> str:
    """Return ranks in words; of those that are many and scattered the first, with the number of the others."""
    parts = _parts(numbers)
    more = sum(map(len, parts[limit:]))
    return ",".join(map(range_word, parts[:limit])) + (f",… {more} more" if more else "")


def read_range(word: str) -> range | None:
    """Return what one part names, ``3``, ``0-7`` or ``0-1016:8``; None where it is none of these."""
    match = _RANGE.fullmatch(word)
    if not match:
        return None
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    return range(first, last + 1, step) if first <= last and step else None


def range_word(part: range, width: int = 0) -> str:
    """Return a range in words, with zeros in front up to a width."""
    first = f"{part[0]:0{width}}"
    if len(part) == 1:
        return first
    return f"{first}-{part[-1]:0{width}}" + (f":{part.step}" if part.step > 1 else "")


def _parts(numbers: Iterable[int]) -> list[range]:
    """Return numbers as ranges: one after the other, or by strides that lie within each other, whatever is shorter."""
    ordered = sorted(set(numbers))
    simple = _runs(ordered)
    if len(simple) < _LEAST_STEPS:
        return simple
    gaps = Counter(after[0] - before[0] for before, after in pairwise(simple))
    strides = [_split_strides(ordered, step) for step, _ in gaps.most_common(_MOST_STEPS_TRIED) if step > 1]
    return min([simple, *strides], key=lambda parts: sum(len(range_word(part)) + 1 for part in parts))


def _runs(ordered: Sequence[int]) -> list[range]:
    ends = [at for at, step in enumerate(map(sub, ordered[1:], ordered), 1) if step != 1]
    borders = [0, *ends, len(ordered)] if ordered else []
    return [range(ordered[begin], ordered[end - 1] + 1) for begin, end in pairwise(borders)]


def _split_strides(ordered: Sequence[int], step: int) -> list[range]:
    """Return numbers by their remainder for a step (``0-1016:8,1-1017:8``: two GPUs of each host), and the others."""
    strides: list[range] = []
    others: list[int] = []
    for rest, members in group_values((number % step, number // step) for number in ordered).items():
        for run in _runs(members):
            stride = range(run[0] * step + rest, run[-1] * step + rest + 1, step)
            if len(run) >= _LEAST_IN_STRIDE:
                strides.append(stride)
            else:
                others += stride
    return sorted([*strides, *_runs(sorted(others))], key=lambda part: part.start)


def fold_names(names: Iterable[str]) -> list[str]:
    """Return names that differ in numbers only, as one: ``mlx5_[0-7]``, ``rack[1-2]-node[01-16]``.

    Folding goes from the last number to the first, so that names come together that have the same numbers behind.
    Names with brackets or commas of their own stay as they are.
    """
    groups = [tuple(_NUMBER.split(name)) for name in dict.fromkeys(names)]
    most = max(map(len, groups), default=0)
    for place in range(most - 1 - most % 2, 0, -2):
        alike: dict[tuple[bool, tuple[str, ...]], list[tuple[str, ...]]] = {}
        for group in groups:
            counts = place < len(group) and len(group[place]) <= _MAX_DIGITS  # a number that brackets can hold
            counts = counts and not any(mark in text for text in group[::2] for mark in "[],")
            key = counts, (*group[:place], *group[place + 1 :]) if counts else group
            alike.setdefault(key, []).append(group)
        groups = []
        for members in alike.values():
            words = _fold_numbers([member[place] for member in members]) if len(members) > 1 else []
            groups += [(*members[0][:place], word, *members[0][place + 1 :]) for word in words] or members
    return ["".join(group) for group in groups]


def _fold_numbers(numbers: Sequence[str]) -> list[str]:
    """Return numbers in brackets: those filled up with zeros to one width together, all others together."""
    widths = {len(number) for number in numbers if len(number) > 1 and number.startswith("0")}
    by_width = group_values((len(number) if len(number) in widths else 0, int(number)) for number in numbers)
    words = []
    for width, members in by_width.items():
        parts = _parts(members)
        text = ",".join(range_word(part, width) for part in parts)
        words.append(f"[{text}]" if len(parts) > 1 or len(parts[0]) > 1 else text)
    return words


def expand(name: str) -> list[str]:
    """Return the names that a folded one, or one of a host list, stands for; itself where it is none."""
    texts = _BRACKETS.split(name)
    choices = [_numbers(text) if at % 2 else [text] for at, text in enumerate(texts)]
    is_list = 0 < prod(map(len, choices)) <= _MAX_EXPANDED
    return ["".join(parts) for parts in product(*choices)] if is_list else [name]


def _numbers(text: str) -> list[str]:
    """Return the numbers of brackets, with letters and zeros before them; empty where it is not a list of numbers."""
    numbers: list[str] = []
    for word in text.split(","):
        if not (match := _SPAN.fullmatch(word)):
            return []
        front, first, last, step = match.groups()
        part = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        if not 0 < len(part) <= _MAX_EXPANDED:
            return []
        width = len(first) if first.startswith("0") else 0
        numbers += [f"{front}{number:0{width}}" for number in part]
    return numbers


def some_names(names: Iterable[str], limit: int = 3) -> str:
    """Return names in a row; where they are more than a few, folded, with the number of those left out."""
    names = list(dict.fromkeys(names))
    parts = fold_names(names) if len(names) > limit else names
    own = set(names)
    limit += len(parts) == limit + 1  # a name is no longer than "… 1 more"
    more = sum(1 if part in own else len(expand(part)) for part in parts[limit:])
    return ", ".join(parts[:limit]) + (f", … {more} more" if more else "")


STATES = {  # how far communicators came, for people: the keys are those of the JSON
    "started": "initialisation not finished",
    "complete": "initialised",
    "connected": "connected",
    "destroyed": "ended in order",
    "aborted": "aborted",
}


def ranks_word(ranks: Iterable[int]) -> str:
    """Return ranks with the noun in the right form: ``rank 3``, ``ranks 0-3``."""
    distinct = set(ranks)
    return f"rank{'s' * (len(distinct) > 1)} {some_ranks(distinct)}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the right form: ``1 pair``, ``2 pairs``, ``3 processes``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def conjugate(number: int, verb: str) -> str:
    """Return a verb in the form that fits a number: ``1 pair uses``, ``2 pairs use``; ``has`` and ``have``."""
    return verb if number != 1 else "has" if verb == "have" else f"{verb}s"


def is_or_are(number: int) -> str:
    """Return the verb that fits a number."""
    return "is" if number == 1 else "are"


def capitalize(words: str) -> str:
    """Return words as the beginning of a sentence."""
    return f"{words[:1].upper()}{words[1:]}"


def list_words(words: Iterable[str], limit: int = 4) -> str:
    """Return some words in a row, with the number of those left out."""
    words = list(dict.fromkeys(words))
    more = len(words) - limit
    return ", ".join(words[:limit]) + (f" and {more} more" if more > 0 else "")
