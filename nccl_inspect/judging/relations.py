"""Which findings explain, lead and supersede others: the effects that rules declare, looked up by effect.

A rule names its effects, so a new cause is a new file and edits none of them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from functools import cache

from nccl_inspect.judging.engine import Rule, registered

_GLOB = frozenset("*?[")


class Relations:
    """The relations of some rules.

    Args:
        rules: all rules, in the order in which causes are named.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._echoes = self._inverse(lambda rule: rule.echoes)
        self._causes = self._inverse(lambda rule: rule.causes)
        self._specific = self._inverse(lambda rule: rule.supersedes)

    def leading(self, name: str) -> tuple[str, ...]:
        """Rules whose findings have those of this rule as their echoes."""
        return tuple(self._echoes.get(name, ()))

    def causes(self, name: str) -> tuple[str, ...]:
        """Rules whose findings may explain those of this rule."""
        return tuple(self._causes.get(name, ()))

    def superseding(self, name: str) -> tuple[str, ...]:
        """More specific rules, whose findings replace those of this rule."""
        return tuple(self._specific.get(name, ()))

    def _inverse(self, effects: Callable[[Rule], Iterable[str]]) -> dict[str, list[str]]:
        causes: dict[str, list[str]] = {}
        for rule in self._rules.values():
            for name in dict.fromkeys(name for pattern in effects(rule) for name in self._matching(pattern)):
                if name != rule.name:
                    causes.setdefault(name, []).append(rule.name)
        return causes

    def _matching(self, pattern: str) -> Iterable[str]:
        if _GLOB.isdisjoint(pattern):
            return (pattern,) if pattern in self._rules else ()
        return fnmatch.filter(self._rules, pattern)


@cache
def relations() -> Relations:
    """The relations of all rules."""
    return Relations(entry.rule for entry in registered())
