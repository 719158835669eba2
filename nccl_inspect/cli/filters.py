"""Options that choose parts of a log: what they name must be there, else the user is told what is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import click

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.model.job import Job, Path
from nccl_inspect.rules.engine import selected
from nccl_inspect.rules.facts import ends, listed
from nccl_inspect.text import printable
from nccl_inspect.wording import expand, range_word, read_range, some_names, some_ranks

_Command = TypeVar("_Command", bound=Callable[..., Any])
_TRANSPORTS = ("p2p", "shm", "net", "collnet", "ib", "socket")
"""Words that are good to ask for, also where the log has no such path."""
_IS_GLOB = re.compile(r"[*?\[]")
_MAX_NAMES = 6


def communicators(default: str = "") -> Callable[[_Command], _Command]:
    """The option that chooses communicators.

    Args:
        default: what is shown without it, as a sentence of the help.
    """
    words = f"Only these communicators: name or glob. May be repeated. {default}".rstrip()
    return click.option("--communicator", "names", multiple=True, metavar="NAME", help=words)


class Places(NamedTuple):
    """Ranks and hosts that options name."""

    ranks: list[range]
    hosts: tuple[str, ...]

    def of(self, job: Job) -> Callable[[Iterable[int], Iterable[str | None]], bool]:
        """What tells whether ranks and hosts are among them: one of each that is named.

        Raises:
            NcclInspectError: the log has none of them.
        """
        require_numbers("rank", self.ranks, {*job.ranks_seen, *range(job.world_size or 0), *ends(job.paths)})
        hosts = set(names_known("host", self.hosts, [host.name for host in job.hosts]))

        def fits(ranks: Iterable[int], names: Iterable[str | None]) -> bool:
            is_rank = not self.ranks or any(rank in some for rank in ranks for some in self.ranks)
            return is_rank and (not hosts or not hosts.isdisjoint(names))

        return fits


def places(of_ranks: str, on_hosts: str) -> Callable[[_Command], _Command]:
    """The options that choose ranks and hosts; they become the argument ``places``.

    Args:
        of_ranks: what is chosen by ranks, for the help: ``Only paths from or to these ranks``.
        on_hosts: likewise by hosts.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def packed(wanted_ranks: tuple[str, ...], wanted_hosts: tuple[str, ...], **options: Any) -> object:
            return command(**options, places=Places(ranges_of("rank", wanted_ranks), wanted_hosts))

        named = f"{on_hosts}: name, glob or node-[01-16]."
        host = click.option("--host", "wanted_hosts", multiple=True, metavar="NAME", help=named)
        rank = click.option("--rank", "wanted_ranks", multiple=True, metavar="R", help=f"{of_ranks}: 3, 0-7 or 0-56:8.")
        return rank(host(cast(_Command, packed)))

    return decorate


def rules_known(patterns: Sequence[str]) -> set[str]:
    """The names of the rules that patterns fit; empty without one.

    Raises:
        NcclInspectError: a pattern fits no rule.
    """
    return {entry.rule.name for entry in selected(patterns)} if patterns else set()


def transports_known(words: Sequence[str], paths: Iterable[Path]) -> set[str]:
    """The transports, as tables print them, that words fit: the beginning of one or of a part of it, in any case.

    Raises:
        NcclInspectError: a word is no transport, and the log has none that begins so.
    """
    kinds = {(path.transport, path.detail) for path in paths} if words else set()
    found: set[str] = set()
    for word in words:
        start = word.lower()
        fits = {
            detail
            for transport, detail in kinds
            if transport.lower() == start or any(part.startswith(start) for part in _parts(detail))
        }
        if not fits and start not in _TRANSPORTS:
            there = sorted({detail for _, detail in kinds})
            has = f"the log has {printable(listed(there, _MAX_NAMES))}" if there else "the log has none"
            raise NcclInspectError(f"no transport '{word}'", suggestion(word, there) or has)
        found |= fits
    return found


def _parts(detail: str) -> list[str]:
    """``net/ib`` and ``ib`` of ``NET/IB``."""
    parts = detail.lower().split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def ranges_of(noun: str, words: tuple[str, ...]) -> list[range]:
    """The numbers that an option names: ``3``, ``0-7``, ``0-56:8``, or several with commas.

    Raises:
        NcclInspectError: a word is none of these.
    """
    found = []
    for word in ",".join(words).split(",") if words else ():
        some = read_range(word)
        if some is None:
            raise NcclInspectError(f"--{noun} {word}: not a {noun}", "write 3, 0-7 or 0-56:8")
        found.append(some)
    return found


def require_numbers(noun: str, wanted: Sequence[range], known: Iterable[int]) -> None:
    """Make sure that something of each range is there.

    Raises:
        NcclInspectError: one has nothing of it.
    """
    there = set(known) if wanted else set()
    for some in wanted:
        if there.isdisjoint(some):
            named = f"{noun}{'s' * (len(some) > 1)} {range_word(some)}"
            has = f"the log has {noun}s {some_ranks(there)}" if there else "the log has none"
            raise NcclInspectError(f"no {named}", has)


def names_known(noun: str, patterns: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names that patterns fit.

    Raises:
        NcclInspectError: a pattern fits none.
    """
    there = list(dict.fromkeys(known)) if patterns else []
    found: list[str] = []
    for pattern in patterns:
        # Numbers in brackets as reports write them; to a glob they are characters: node-[10-12] is node-0 to node-2.
        ones = {pattern, *expand(pattern)}
        globs = [one for one in expand(pattern) if _IS_GLOB.search(one)]
        fits = [name for name in there if name in ones or any(fnmatchcase(name, one) for one in globs)]
        if not fits:
            has = f"the log has {printable(some_names(there, _MAX_NAMES))}" if there else "the log has none"
            raise NcclInspectError(f"no {noun} '{pattern}'", suggestion(pattern, there) or has)
        found += fits
    return found


def communicators_named(job: Job, patterns: tuple[str, ...]) -> list[str]:
    """The names of the communicators that an option chooses.

    Raises:
        NcclInspectError: a pattern fits none.
    """
    return names_known("communicator", patterns, (comm.id for comm in job.communicators))
