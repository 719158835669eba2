"""What changed between two runs, and which change likely explains which.

Hosts and process ids differ from run to run, so jobs are compared by rank, as far as :mod:`.structure` allows.
:func:`nccl_inspect.extras.gate.differences.compare.compare` is the entry point.
"""

from __future__ import annotations

from dataclasses import field

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Job
from nccl_inspect.util.records import Frozen, Record, frozen, record

AREAS = ("verdict", "versions", "network", "world", "environment", "communicators", "paths", "bandwidth", "findings")
"""What is compared, causes before effects."""


@record
class Change(Record):
    """One difference between the runs."""

    area: str
    what: str
    """A variable, a communicator, a rule, …; for paths the scope."""
    before: str | None
    """None where run A does not have it."""
    after: str | None
    """None where run B does not have it."""
    pairs: list[tuple[int, int]] = field(default_factory=list)
    """The rank pairs of a change of paths."""
    ranks: list[int] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """Rules whose findings are about it, in the run that has them."""
    evidence: list[Evidence] = field(default_factory=list)
    """Lines that show it, those of B first."""
    severity: str = ""
    """Of a finding, in the run that has it; empty for all else."""
    is_slower: bool = False
    """Of a bandwidth or a training, in B."""
    fix: list[str] = field(default_factory=list)
    """For a finding that only B has: the steps to fix it."""

    @property
    def kind(self) -> str:
        """``new`` (only in B), ``gone`` (only in A) or ``changed``."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"


@frozen
class CausalChain(Frozen):
    """A chain from a cause to its effects, as findings and their evidence show it."""

    causes: list[Change]
    """Changes shown by the evidence of the first finding; may be empty."""
    findings: list[Change]
    """New or gone findings, the cause before what it explains."""
    effects: list[Change]
    """Changes of the network and of paths that these findings are about."""
    fix: list[str]
    """How to make B like A: the first step for the first finding, and how to revert the causes."""


@record
class Difference(Record):
    """Two runs compared."""

    a: Job
    b: Job
    changes: list[Change]
    explanations: list[CausalChain]
    renamed: dict[str, str]
    """Hosts of A and the hosts of B that have the same ranks and another name."""
    open: list[str]
    """What could not be compared, and why."""

    def of(self, area: str) -> list[Change]:
        """The changes of one area."""
        return [change for change in self.changes if change.area == area]
