"""Parts of answers that several tools share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from nccl_inspect.extras.assistant.quotes import MAX_NAME, shown
from nccl_inspect.model.finding import Finding
from nccl_inspect.util.wording import ranks_word, some_names, some_ranks

_MAX_STEP = 500
"""Characters of a step of a fix: commands must not be cut."""
_MAX_CULPRITS = 3


class BriefFinding(BaseModel):
    """A finding in brief; the tool ``evidence`` returns all of it."""

    rule: str
    severity: str = Field(description="error, warning or info.")
    confidence: str = Field(description="certain, likely or possible: say so when you report it.")
    summary: str
    root: bool = Field(description="False if it is only an effect of another finding.")
    because: list[str] = Field(description="Rules of the findings that explain it.")
    action: str = Field(description="What to do about the job: drain-host, fix-then-restart, restart, wait or none.")
    where: str = Field(description="The affected ranks and hosts, or what they have in common.")
    first_fix: str


class KindOfPath(BaseModel):
    """Rank pairs with the same kind of path."""

    scope: str = Field(description="intra (within a host), inter (between hosts) or unknown.")
    path: str = Field(description="Transport and mechanism: P2P/CUMEM, SHM/direct, NET/IB, NET/Socket, ...")
    pairs: int = Field(description="Directed pairs of ranks.")
    gdr: str = Field(description="GPUDirect RDMA: yes, no, partial, or - if it does not apply.")
    channels: str
    verdict: str = Field(description="ok, fallback (should be faster) or unknown.")


def brief_finding(finding: Finding) -> BriefFinding:
    """A finding in brief."""
    return BriefFinding(
        rule=finding.rule,
        severity=finding.severity,
        confidence=finding.confidence,
        summary=shown(finding.summary),
        root=finding.root,
        because=finding.because,
        action=finding.action,
        where=where(finding),
        first_fix=step(next(iter(finding.fix), "")),
    )


def where(finding: Finding) -> str:
    """Return whom a finding is about."""
    if finding.where:
        return shown(finding.where)
    parts = [ranks_word(finding.ranks) if finding.ranks else "", some_names(finding.hosts, 3) if finding.hosts else ""]
    return shown(" on ".join(filter(None, parts)))


def step(text: str) -> str:
    """A step of a fix."""
    return shown(text, _MAX_STEP)


def ranks(numbers: list[int]) -> str:
    """Ranks in words: ``0-1023``."""
    return some_ranks(numbers)


def kind_of_path(row: list[str]) -> KindOfPath:
    """A row of the table of kinds."""
    scope, path, pairs, gdr, channels, verdict = row
    return KindOfPath(
        scope=scope,
        path=shown(path, MAX_NAME),
        pairs=int(pairs.replace(",", "")),
        gdr=gdr,
        channels=channels,
        verdict=verdict,
    )


def culprits(finding: Finding) -> list[dict[str, Any]]:
    """Return what the bad paths or ranks have in common, the best few."""
    return [
        {"kind": culprit.kind, "name": shown(culprit.name, MAX_NAME), "bad": culprit.bad, "of": culprit.of}
        for culprit in finding.culprits[:_MAX_CULPRITS]
    ]
