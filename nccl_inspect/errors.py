"""Errors that a user can act on; every one is shown as a single line, never as a traceback."""

from collections.abc import Iterable


class NcclInspectError(Exception):
    """Something the user can fix: what happened, and what to do about it.

    Args:
        message: what happened and where, in the user's words.
        hint: the option, command or setting that fixes it; may be empty.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class NoInputError(NcclInspectError):
    """No input could be read, or it holds no NCCL line."""

    exit_code = 3


class NoPathError(NcclInspectError, KeyError):
    """The log has no connection line for a pair of ranks."""


class GrammarError(NcclInspectError):
    """A grammar file breaks the notation; only developers of the grammar see this."""


class PageError(NcclInspectError):
    """The page of a rule breaks the notation; only developers of rules see this."""


class TopologyError(NcclInspectError):
    """A topology file cannot be understood."""


def suggestion(word: str, candidates: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a question that names words alike, from 0 to 1 by at least the cutoff; empty if there are none."""
    from difflib import get_close_matches  # only for the error

    similar = get_close_matches(word, list(candidates), n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(similar)}?" if similar else ""
