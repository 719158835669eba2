"""Changes of paths: pair by pair where ranks mean the same in both runs, else kind by kind."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from nccl_inspect.differences import Change
from nccl_inspect.model.job import Job, Path, PathKind, Selection
from nccl_inspect.util.wording import count, listed

_SAME = {"direct shared memory": "SHM/direct/direct", "SHM/direct": "SHM/direct/direct"}
"""One mechanism in the words of several releases (until 2.12; from 2.30)."""
_MAX_EVIDENCE = 3


def changes(a: Job, b: Job, pairwise: bool, silent: Container[int] = ()) -> list[Change]:
    """What changed in transports, GPUDirect, NICs and channels, grouped; nothing where a run has no paths at all.

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
    before, after = (
        {(path.src, path.dst): path for path in job.paths if path.src not in silent and path.dst not in silent}
        for job in (a, b)
    )
    both = [(before[pair], after[pair]) for pair in before if pair in after]
    found = [*_grouped(both, _way), *_grouped(both, _channels), *_other_nics(both)]
    found += _only([path for pair, path in before.items() if pair not in after], is_new=False)
    found += _only([path for pair, path in after.items() if pair not in before], is_new=True)
    return found


def _way(path: Path | PathKind) -> str:
    """Transport and GPUDirect, in the words of one release."""
    detail = path.detail.replace("NET/AWS Libfabric", "NET/Libfabric")
    gdr = {True: " with GPUDirect", "partial": " with GPUDirect on some channels"}.get(path.gdr or False, "")
    return _SAME.get(detail, detail) + gdr


def _channels(path: Path) -> str:
    return count(len(path.channels), "channel")


def _grouped(both: Iterable[tuple[Path, Path]], word: Callable[[Path], str]) -> Iterator[Change]:
    """Pairs that changed alike are one change."""
    groups: dict[tuple[str, str, str], list[tuple[Path, Path]]] = {}
    for old, new in both:
        if word(old) != word(new):
            groups.setdefault((new.scope, word(old), word(new)), []).append((old, new))
    for (scope, before, after), members in sorted(groups.items()):
        yield _change(scope, before, after, [new for _, new in members], [path for both in members for path in both])


def _other_nics(both: Iterable[tuple[Path, Path]]) -> Iterator[Change]:
    """Pairs whose sender uses another NIC, all of a scope in one change: each has names of its own."""
    moved = [(old, new) for old, new in both if old.nic and new.nic and old.nic != new.nic]
    for scope in sorted({new.scope for _, new in moved}):
        members = [(old, new) for old, new in moved if new.scope == scope]
        before, after = (listed((str(pair[side].nic) for pair in members), 3) for side in (0, 1))
        yield _change(scope, f"NIC {before}", f"NIC {after}", [new for _, new in members])


def _only(paths: Iterable[Path], is_new: bool) -> Iterator[Change]:
    """Pairs that only one run connects, by their way."""
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        groups.setdefault((path.scope, _way(path)), []).append(path)
    for (scope, way), members in sorted(groups.items()):
        yield _change(scope, None if is_new else way, way if is_new else None, members)


def _kinds(a: Job, b: Job) -> Iterator[Change]:
    """Ways that only one run uses."""
    ours, theirs = _by_kind(a), _by_kind(b)
    for (scope, way), members in sorted({**ours, **theirs}.items()):
        if (scope, way) not in theirs:
            yield _change(scope, way, None, members)
        elif (scope, way) not in ours:
            yield _change(scope, None, way, members)


def _by_kind(job: Job) -> dict[tuple[str, str], Selection]:
    kinds: dict[tuple[str, str], list[PathKind]] = {}
    for kind in job.paths.kinds:
        kinds.setdefault((kind.scope, _way(kind)), []).append(kind)
    return {way: job.paths.where(alike.__contains__) for way, alike in kinds.items()}


def _change(
    scope: str, before: str | None, after: str | None, paths: list[Path], judged: Iterable[Path] | None = None
) -> Change:
    rules = {rule for path in (paths if judged is None else judged) for rule in path.rules}
    return Change(
        area="paths",
        what=scope,
        before=before,
        after=after,
        pairs=[(path.src, path.dst) for path in paths],
        ranks=sorted({rank for path in paths for rank in (path.src, path.dst)}),
        rules=sorted(rules),
        evidence=[path.evidence[0] for path in paths if path.evidence][:_MAX_EVIDENCE],
    )
