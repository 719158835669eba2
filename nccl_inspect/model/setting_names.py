"""Settings that a release of NCCL prints in the words of another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.model.versions import order


class Alike(NamedTuple):
    """A setting that may follow another one on its line."""

    name: str
    value: str
    printed: str
    """What NCCL prints for it, as in a shell."""
    first: tuple[int, int]
    """The first release that does so."""
    last: tuple[int, int]

    @property
    def note(self) -> str:
        """Return when both print alike, in words."""
        return f"until NCCL {'.'.join(map(str, self.last))} both print as {self.printed}"


_ALIKE = (Alike("NCCL_P2P_DISABLE", "1", "NCCL_P2P_LEVEL=LOC", first=(2, 6), last=(2, 22)),)
"""ncclGetLevel in src/graph/paths.cc prints the name of the level for both. Before 2.6 and since 2.23 each has its own.
All other variables print their own name: NCCL_PARAM in src/misc/param.cc, and the INFO beside each ncclGetEnv."""


def find_related(name: str, value: str, releases: Iterable[str]) -> Alike | None:
    """Return what else may have been set where a log shows this setting.

    Args:
        name: of the variable.
        value: as printed.
        releases: that wrote the log; where none is known it may be any.
    """
    numbers = [order(release)[:2] for release in releases]
    for alias in _ALIKE:
        fits_release = not numbers or any(alias.first <= number <= alias.last for number in numbers)
        if alias.printed == f"{name}={value}" and fits_release:
            return alias
    return None
