"""Changes of paths: pair by pair where ranks mean the same in both runs, else kind by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import cache
from typing import NamedTuple

from nccl_inspect.extras.gate.differences import Change
from nccl_inspect.model.job import Job, PathKind, Selection
from nccl_inspect.util.wording import count, listed

_SAME = {"direct shared memory": "SHM/direct/direct", "SHM/direct": "SHM/direct/direct"}
"""One mechanism in the words of several releases (until 2.12; from 2.30)."""
_MAX_EVIDENCE = 3


def changes(a: Job, b: Job, pairwise: bool, silent: Set[int] = frozenset()) -> list[Change]:
    """Return what changed in transports, GPUDirect, NICs and channels, grouped; nothing where a run has no paths.

    Args:
        a: before.
        b: after.
        pairwise: whether ranks mean the same in both.
        silent: ranks of which one log is missing.
    """
    if not len(a.paths) or not len(b.paths):
        return []
    if not pairwise:
        return list(_kinds(a, b))
    before, after = (job.paths.only(("src", "dst"), lambda *ends: silent.isdisjoint(ends)) for job in (a, b))
    kinds = {(src, dst): kind for src, dst, kind in before.distinct("src", "dst", "kind")}
    new = after.only(("src", "dst"), lambda *ends: ends not in kinds)
    both = [_Pair((src, dst), kinds[src, dst], kind) for src, dst, kind in after.without(new).distinct(*_PAIR)]
    grouped = [
        *_grouped(both, _way, b),
        *_grouped(both, lambda kind: count(len(kind.channels), "channel"), b),
        *_other_nics(both, b),
    ]
    there = set(after.distinct("src", "dst"))
    grouped += _only(before.only(("src", "dst"), lambda *ends: ends not in there), is_new=False)
    grouped += _only(new, is_new=True)
    return grouped


class _Pair(NamedTuple):
    """Two ranks that both runs connect."""

    ends: tuple[int, int]
    old: PathKind
    new: PathKind


_PAIR = ("src", "dst", "kind")


def _between(pairs: Iterable[_Pair], job: Job) -> Selection:
    """The paths of some pairs."""
    ends = {pair.ends for pair in pairs}
    return job.paths.only(("src", "dst"), lambda *both: both in ends)


def _way(path: PathKind) -> str:
    """Transport and GPUDirect, in the words of one release."""
    detail = path.detail.replace("NET/AWS Libfabric", "NET/Libfabric")
    gdr = {True: " with GPUDirect", "partial": " with GPUDirect on some channels"}.get(path.gdr or False, "")
    return _SAME.get(detail, detail) + gdr


def _grouped(both: Iterable[_Pair], word: Callable[[PathKind], str], job: Job) -> Iterator[Change]:
    """Pairs that changed alike are one change."""
    word = cache(word)
    groups: dict[tuple[str, str, str], list[_Pair]] = {}
    for pair in both:
        if word(pair.old) != word(pair.new):
            groups.setdefault((pair.new.scope, word(pair.old), word(pair.new)), []).append(pair)
    for (scope, before, after), members in sorted(groups.items()):
        kinds = {kind for pair in members for kind in (pair.old, pair.new)}
        yield _change(scope, before, after, _between(members, job), kinds)


def _other_nics(both: Iterable[_Pair], job: Job) -> Iterator[Change]:
    """Pairs whose sender uses another NIC, all of a scope in one change: each has names of its own."""
    moved = [pair for pair in both if pair.old.nic and pair.new.nic and pair.old.nic != pair.new.nic]
    for scope in sorted({pair.new.scope for pair in moved}):
        members = [pair for pair in moved if pair.new.scope == scope]
        before, after = (
            listed(map(str, nics), 3) for nics in zip(*((m.old.nic, m.new.nic) for m in members), strict=True)
        )
        yield _change(scope, f"NIC {before}", f"NIC {after}", _between(members, job))


def _only(paths: Selection, is_new: bool) -> Iterator[Change]:
    """Pairs that only one run connects, by their way."""
    for (scope, way), members in sorted(_by_way(paths).items()):
        yield _change(scope, None if is_new else way, way if is_new else None, members)


def _kinds(a: Job, b: Job) -> Iterator[Change]:
    """Ways that only one run uses."""
    ours, theirs = _by_way(a.paths), _by_way(b.paths)
    for (scope, way), members in sorted({**ours, **theirs}.items()):
        if (scope, way) not in theirs:
            yield _change(scope, way, None, members)
        elif (scope, way) not in ours:
            yield _change(scope, None, way, members)


def _by_way(paths: Selection) -> dict[tuple[str, str], Selection]:
    kinds: dict[tuple[str, str], list[PathKind]] = {}
    for kind in paths.kinds:
        kinds.setdefault((kind.scope, _way(kind)), []).append(kind)
    return {way: paths.where(alike.__contains__) for way, alike in kinds.items()}


def _change(
    scope: str, before: str | None, after: str | None, paths: Selection, judged: Iterable[PathKind] | None = None
) -> Change:
    rules = {rule for kind in (paths.kinds if judged is None else judged) for rule in kind.rules}
    return Change(
        area="paths",
        what=scope,
        before=before,
        after=after,
        pairs=[(src, dst) for src, dst in paths.values("src", "dst")],
        ranks=sorted(paths.ends()),
        rules=sorted(rules),
        evidence=paths.first_lines()[:_MAX_EVIDENCE],
    )
