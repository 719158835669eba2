"""Which findings explain, lead and replace which: what rules declare as causes, seen from their effects.

A rule names its effects, so a new cause is a new file and edits none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cache

from nccl_inspect.judging.engine import Rule, registered

_GLOB = frozenset("*?[")


class Relations:
    """The relations of some rules.

    Args:
        rules: all there are, in the order in which causes are to be named.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._echoes = self._inverse(lambda rule: rule.echoes)
        self._causes = self._inverse(lambda rule: rule.causes)
        self._specific = self._inverse(lambda rule: rule.supersedes)

    def leads(self, name: str) -> tuple[str, ...]:
        """Of these rules the finding of that one is an echo."""
        return tuple(self._echoes.get(name, ()))

    def causes(self, name: str) -> tuple[str, ...]:
        """Rules whose findings may explain those of that one."""
        return tuple(self._causes.get(name, ()))

    def specific(self, name: str) -> tuple[str, ...]:
        """Rules that replace that one where they find something."""
        return tuple(self._specific.get(name, ()))

    def unknown(self) -> list[str]:
        """Names and globs in declarations that fit no rule."""
        declared = {name for rule in self._rules.values() for name in (*rule.causes, *rule.echoes, *rule.supersedes)}
        return sorted(name for name in declared if not self._fitting(name))

    def _inverse(self, effects: Callable[[Rule], Iterable[str]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for rule in self._rules.values():
            for name in dict.fromkeys(name for pattern in effects(rule) for name in self._fitting(pattern)):
                if name != rule.name:
                    found.setdefault(name, []).append(rule.name)
        return found

    def _fitting(self, pattern: str) -> Iterable[str]:
        if _GLOB.isdisjoint(pattern):
            return (pattern,) if pattern in self._rules else ()
        return [name for name in self._rules if fnmatchcase(name, pattern)]


@cache
def relations() -> Relations:
    """Those of all rules."""
    return Relations(entry.rule for entry in registered())
