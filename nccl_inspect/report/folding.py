"""What a report leaves to ``--verbose``, so that the essentials fit on a screen."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

MOST_STEPS = 4
"""Steps of a fix that are shown; later ones are less likely to help, or cost more."""
_FIRST_EVIDENCE = 3
"""Lines of evidence of the first finding; the others show one."""
MORE = "-v shows all of each"


def is_brief(finding: Finding, job: Job, verbose: bool) -> bool:
    """Whether a finding takes one line.

    In a failed job: findings that do not explain the failure. Otherwise: info findings, unless there is no verdict.
    """
    if verbose:
        return False
    if job.verdict == "failed":
        return not finding.fatal and any(other.fatal for other in job.findings)
    return finding.severity == "info" and job.verdict != "unknown"


def in_one_line(finding: Finding) -> str:
    """A finding without its details."""
    return f"{finding.severity.upper()} {finding.rule}: {finding.summary}"


class AlreadyShown:
    """Steps and lines that the report has shown already, so that it does not repeat them.

    Args:
        verbose: repeat them anyway.
    """

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._steps: dict[str, str] = {}
        self._lines: set[tuple[str, int]] = set()
        self._is_first = True

    def steps(self, finding: Finding, steps: Iterable[str], most: int = MOST_STEPS) -> list[str]:
        """The first few new steps of a fix, and a word about the others."""
        steps = list(steps)
        if self._verbose:
            return steps
        fresh = [step for step in steps if step not in self._steps]
        above = list(dict.fromkeys(self._steps[step] for step in steps if step in self._steps))
        self._steps.update(dict.fromkeys(fresh[:most], finding.rule))
        more = len(fresh) - most
        shown = fresh[:most] + ([f"Also as above under {', '.join(above)}."] if fresh and above else [])
        shown = shown or ([f"As above under {', '.join(above)}."] if above else [])
        return shown + ([f"{more} more with -v."] if more > 0 else [])

    def evidence(self, evidence: Iterable[Evidence], most: int = _FIRST_EVIDENCE) -> list[Evidence]:
        """The first few new lines; one line for later findings."""
        evidence = list(evidence)
        if self._verbose:
            return evidence
        fresh = [line for line in evidence if (line.source, line.order) not in self._lines]
        shown = fresh[: most if self._is_first else 1]
        self._is_first = False
        self._lines.update((line.source, line.order) for line in shown)
        return shown
