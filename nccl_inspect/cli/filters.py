"""Options that choose parts of a log: what they name must be there, else the user is told what is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.model.job import Job
from nccl_inspect.text import printable
from nccl_inspect.wording import expand, range_word, read_range, some_names, some_ranks

_Command = TypeVar("_Command", bound=Callable[..., Any])
_IS_GLOB = re.compile(r"[*?\[]")
_MAX_NAMES = 6


def communicators(default: str = "") -> Callable[[_Command], _Command]:
    """The option that chooses communicators.

    Args:
        default: what is shown without it, as a sentence of the help.
    """
    words = f"Only these communicators: name or glob. May be repeated. {default}".rstrip()
    return click.option("--communicator", "names", multiple=True, metavar="NAME", help=words)


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
