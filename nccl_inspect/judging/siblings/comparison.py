"""The comparison: which of several siblings differs from the others. It knows nothing of NCCL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.paths.table import Selection
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, Record, Slotted, frozen, record
from nccl_inspect.util.wording import list_words, ranks_word

ABSENT = "none"
"""The value of a sibling that is known to state none."""
_MAJORITY = 4
"""Siblings of which one that differs is likely the odd one; of fewer the worse one possibly is."""
_SHARE = 8
"""One sibling of that many may be odd, and always one."""
_OTHER_MACHINE = 2
"""A host that differs in that much of its equipment is a machine of another kind, as it may be meant to be."""


@frozen
class Attribute(Frozen):
    """Something that siblings must agree on."""

    label: str
    check: str
    """The step that finds out why they do not."""
    told_by: tuple[str, ...]
    """Categories of findings that tell the same, if they name the same ranks or hosts."""
    worse: Callable[[Any, Any], bool] | None = None
    """Whether the first value is worse than the second: then only a worse one is odd."""
    least: int = _MAJORITY
    """Siblings that must be there."""
    is_narrow: bool = False
    """Whether an odd rank explains that its host is odd."""
    is_equipment: bool = False
    """Whether it is of the machine."""


@record
class Sibling(Slotted):
    """One of a group, with what it stands for."""

    kind: str
    """``host``, ``rank``, ``pair`` (of ranks), ``process`` or ``communicator``."""
    name: str
    hosts: frozenset[str]
    ranks: frozenset[int]
    lines: Callable[[], Iterable[Evidence]]
    """Finds the lines that show its value."""
    paths: Callable[[], Selection] | None = None
    """Finds its slow paths."""


@record
class Odd(Record):
    """Siblings that differ from the others of their group."""

    attribute: Attribute
    label: str
    siblings: list[Sibling]
    """The odd ones, as they are called."""
    found: list[Sibling]
    """The same as they were found, and after them those that are only connected to them: all have slow paths."""
    group: str
    """What all of them are called."""
    values: Mapping[Sibling, Hashable]
    """Of all of them."""
    usual: Hashable
    like: Sibling
    """One of the others."""
    others: int
    is_likely: bool
    """Whether there are enough siblings to show which one is odd."""

    @property
    def value(self) -> Hashable:
        """Return the value of the odd ones."""
        return self.values[self.found[0]]

    @property
    def hosts(self) -> frozenset[str]:
        """Return the hosts that are odd, or have what is."""
        return frozenset().union(*(sibling.hosts for sibling in self.siblings))

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks, likewise."""
        return frozenset().union(*(sibling.ranks for sibling in self.siblings))

    def lines(self) -> list[Evidence]:
        """Return a line of the odd one, and one of its siblings."""
        return [line for one in (self.found[0], self.like) for line in list(one.lines())[:1]]


def find_odd(
    attribute: Attribute, values: Mapping[Sibling, Hashable], group: str, label: str = "", *, may_lack: bool = True
) -> Odd | None:
    """Return what is odd in a group of siblings, if anything is.

    Args:
        attribute: in which they are compared.
        values: what each has.
        group: what they are called.
        label: of the attribute, if it is several.
        may_lack: whether it counts that one has nothing.
    """
    counts = Counter(values.values())
    worse = attribute.worse
    if len(counts) < 2 or len(values) < attribute.least:
        return None
    usual = counts.most_common(1)[0][0]
    if worse and len(values) == 2:
        usual = next((value for value in counts if not any(worse(value, other) for other in counts)), usual)
    odd = [sibling for sibling, value in values.items() if value != usual]
    is_odd = len(odd) <= max(1, len(values) // _SHARE) and all(not worse or worse(values[one], usual) for one in odd)
    if not is_odd or (values[odd[0]] == ABSENT and not may_lack):
        return None
    like = next(sibling for sibling, value in values.items() if value == usual)
    return Odd(
        attribute=attribute,
        label=label or attribute.label,
        siblings=odd,
        found=odd,
        group=group,
        values=values,
        usual=usual,
        like=like,
        others=len(values) - len(odd),
        is_likely=len(values) >= _MAJORITY,
    )


def _keep_common_host(found: Iterable[Odd]) -> list[Odd]:
    """Return what is odd on the only host that all slow paths touch: the others are only connected to it."""
    kept = []
    for entries in group_values((one.label, one) for one in found).values():
        paths = [sibling.paths and sibling.paths() for one in entries for sibling in one.found]
        ends = [set(pair) for some in paths for pair in (some.distinct("src_host", "dst_host") if some else [()])]
        common = set.intersection(*ends)
        for one in entries:
            there = [sibling for sibling in one.found if sibling.hosts == common]
            if there:  # the slow paths of the others are the same, or lead there, too
                kept.append(one.with_fields(siblings=there, found=sorted(one.found, key=lambda o: o not in there)))
            elif len(common) != 1:
                kept.append(one)
    return kept


def join(found: Iterable[Odd], ranks_of: Mapping[str, frozenset[int]]) -> list[list[Odd]]:
    """Return what is odd by who is odd, the narrowest statement first.

    Args:
        found: in all groups.
        ranks_of: hosts.
    """
    alike = group_values(((one.label, one.hosts, one.is_likely), one) for one in _keep_common_host(found)).values()
    by_hosts = group_values((one.hosts, one) for one in (_merge(entries, ranks_of) for entries in alike)).values()
    results = []
    for entries in by_hosts:
        ordered = sorted(entries, key=lambda one: (one.is_likely, -len(one.ranks)))
        by_label = {one.label: one for one in ordered}
        if sum(one.attribute.is_equipment for one in by_label.values()) < _OTHER_MACHINE:
            results.append([one for one in reversed(ordered) if by_label[one.label] is one])
    return results


def _merge(entries: list[Odd], ranks_of: Mapping[str, frozenset[int]]) -> Odd:
    """Join entries of one attribute: the rank that all have in common, or the host of which all ranks are odd."""
    narrow = [one for one in entries if one.siblings[0].kind != "host"]
    entries = narrow if narrow and entries[0].attribute.is_narrow else entries
    first, ranks = entries[0], [one.ranks for one in entries]
    common, every = frozenset.intersection(*ranks), frozenset.union(*ranks)
    found = [sibling for one in entries for sibling in one.found]
    odd = {(sibling.kind, sibling.name): sibling for one in entries for sibling in one.siblings}
    siblings, group = list(odd.values()), first.group
    others = first.others
    if len(siblings) > 1 and len(common) == 1:
        siblings = [first.found[0].with_fields(kind="rank", name=str(min(common)), ranks=common)]
        group = group.replace("pairs of", "ranks with")
    elif len(siblings) > 1 and all(ranks_of.get(host, {-1}) <= every for host in first.hosts):
        like, group = first.found[0], "hosts"
        others = next((one.others for one in entries if one.siblings[0].kind == "host"), others)
        siblings = [
            like.with_fields(kind="host", name=host, hosts=frozenset((host,)), ranks=ranks_of[host])
            for host in sorted(first.hosts)
        ]
    return first.with_fields(siblings=siblings, found=found, group=group, others=others)


def tell(entries: list[Odd]) -> str:
    """Return who differs from whom, and in what."""
    first = entries[0]
    by_kind = group_values((sibling.kind, sibling) for sibling in first.siblings)
    who = list_words(
        ranks_word(rank for one in some for rank in one.ranks)
        if kind == "rank"
        else f"{kind if len(some) == 1 else f'{kind}s'} {list_words(one.name for one in some)}"
        for kind, some in by_kind.items()
    )
    others = f"the {first.others} other" if first.others > 1 else "the other one of two"
    words = "; ".join(_difference(one) for one in entries)
    verb = "differs" if len(first.siblings) == 1 else "differ"
    return f"{who} {verb} from {others} {first.group} ({words})"


def _difference(odd: Odd) -> str:
    value, usual = odd.value, odd.usual
    if isinstance(value, frozenset) and isinstance(usual, frozenset):  # of lines
        own, theirs = (list_words(f"'{line}'" for line in sorted(some)) for some in (value - usual, usual - value))
        return f"it says {own} instead of {theirs}".replace("{}", "N")
    return f"{odd.label}: {value} instead of {usual}"
