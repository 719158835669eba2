"""Selects parts of a job; unknown names are errors that list the known ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from fnmatch import fnmatchcase
from typing import NamedTuple

from nccl_inspect import platforms
from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.judging import impact
from nccl_inspect.judging.engine import select_rules
from nccl_inspect.model.job import Job, Selection
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, expand, list_words, range_word, read_range, some_names, some_ranks

_TRANSPORTS = ("p2p", "shm", "net", "collnet", "ib", "socket")
"""Valid names of transports, even if the log has no such path."""
_IS_GLOB = re.compile(r"[*?\[]")
_MAX_NAMES = 6
_BADNESS = {"fallback": 0, "unknown": 1, "ok": 2}


Fits = Callable[[Iterable[int], Iterable[str | None]], bool]  # a test of ranks and hosts


class PlaceFilter(NamedTuple):
    """Ranks and hosts that options name."""

    ranks: list[range]
    hosts: tuple[str, ...]

    def make_test(self, job: Job) -> Fits:
        """Return a test whether ranks and hosts match: one of each that is named."""
        require_numbers("rank", self.ranks, {*job.ranks_seen, *range(job.world_size or 0), *job.paths.ends()})
        hosts = set(match_names("host", self.hosts, [host.name for host in job.hosts]))

        def fits(ranks: Iterable[int], names: Iterable[str | None]) -> bool:
            is_rank = not self.ranks or any(rank in some for rank in ranks for some in self.ranks)
            return is_rank and (not hosts or not hosts.isdisjoint(names))

        return fits


def select_paths(
    job: Job,
    places: PlaceFilter,
    scope: str | None,
    transports: Sequence[str],
    verdicts: Sequence[str],
    rules: Set[str],
) -> Selection:
    """Return the paths that options select, also those that findings of some rules are about; empty ones select all."""
    fits = places.make_test(job)
    kinds = {(kind.transport, kind.detail) for kind in job.paths.kinds} if transports else set()
    details: set[str] = set()  # of the transports that words match: a prefix of one or of its parts, ignoring case
    for word in transports:
        start = word.lower()
        fitting = {
            detail  # NET/IB, by net/ib or ib
            for transport, detail in kinds
            if transport.lower() == start or f"/{start}" in f"/{detail}".lower()
        }
        if not fitting and start not in _TRANSPORTS:
            there = sorted({detail for _, detail in kinds})
            has = f"the log has {escape_controls(list_words(there, _MAX_NAMES))}" if there else "the log has none"
            raise NcclInspectError(f"no transport '{word}'", suggestion(word, there) or has)
        details |= fitting
    paths = job.paths.where(
        lambda kind: (
            scope in (None, kind.scope)
            and (not transports or kind.detail in details)
            and (not verdicts or kind.verdict in verdicts)
            and (not rules or not rules.isdisjoint(kind.rules))
        )
    )
    return paths.filter_values(("src", "dst", "src_host", "dst_host"), lambda src, dst, *hosts: fits((src, dst), hosts))


def sort_slowest_first(paths: Selection, job: Job) -> Selection:
    """Return the slowest first; among equals, those that should be better."""
    platform = platforms.find(job.platform) if job.platform else None
    return paths.sort_by(lambda kind: (impact.usual(kind, platform), _BADNESS[kind.verdict]))


def explain_no_path(job: Job, verdicts: Sequence[str]) -> str:
    """Return why no path is selected, given the wanted verdicts."""
    if not len(job.paths):
        return "no path: the log has no connection line"
    there = Counter(job.paths.values(lambda kind: kind.verdict))
    what = "no path matches"
    if verdicts and not any(there[verdict,] for verdict in verdicts):
        what = f"no path is {' or '.join('a fallback' if one == 'fallback' else one for one in verdicts)}"
    else:
        there = Counter(job.paths.values(lambda kind: f"{kind.scope} {kind.transport}"))
    counted = ", ".join(f"{number} {kind}" for (kind,), number in sorted(there.items()))
    return f"{what}; the log has {count(len(job.paths), 'path')}: {counted}"


def match_rules(patterns: Sequence[str]) -> set[str]:
    """Return the names of the rules that match patterns; empty without patterns."""
    return {entry.rule.name for entry in select_rules(patterns)} if patterns else set()


def parse_ranges(noun: str, words: tuple[str, ...]) -> list[range]:
    """Return the numbers that an option names: ``3``, ``0-7``, ``0-56:8``, or several with commas."""
    ranges = []
    for word in ",".join(words).split(",") if words else ():
        some = read_range(word)
        if some is None:
            raise NcclInspectError(f"--{noun} {word}: not a {noun}", "write 3, 0-7 or 0-56:8")
        ranges.append(some)
    return ranges


def require_numbers(noun: str, wanted: Sequence[range], present: Iterable[int]) -> None:
    """Check that each range has at least one number that is present."""
    there = set(present) if wanted else set()
    for some in wanted:
        if there.isdisjoint(some):
            named = f"{noun}{'s' * (len(some) > 1)} {range_word(some)}"
            has = f"the log has {noun}s {some_ranks(there)}" if there else "the log has none"
            raise NcclInspectError(f"no {named}", has)


def match_names(noun: str, patterns: Sequence[str], present: Iterable[str]) -> list[str]:
    """Return the names that match patterns."""
    there = list(dict.fromkeys(present)) if patterns else []
    names: list[str] = []
    for pattern in patterns:
        # Numbers in brackets as reports write them; to a glob they are characters: node-[10-12] is node-0 to node-2.
        ones = {pattern, *expand(pattern)}
        globs = [glob for glob in expand(pattern) if _IS_GLOB.search(glob)]
        fits = [name for name in there if name in ones or any(fnmatchcase(name, glob) for glob in globs)]
        if not fits:
            has = f"the log has {escape_controls(some_names(there, _MAX_NAMES))}" if there else "the log has none"
            raise NcclInspectError(f"no {noun} '{pattern}'", suggestion(pattern, there) or has)
        names += fits
    return names


def match_communicators(job: Job, patterns: tuple[str, ...]) -> list[str]:
    """Return the names of the communicators that an option selects."""
    return match_names("communicator", patterns, (comm.id for comm in job.communicators))
