"""Two compared runs in words, for all formats."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.differences import CausalChain, Change, Difference
from nccl_inspect.model.job import Job
from nccl_inspect.report import digest
from nccl_inspect.report.words import shortened
from nccl_inspect.util.wording import count, listed

SIGNS = {"new": "+", "gone": "-", "changed": "~"}
_MAX_HOSTS = 3


def headline(difference: Difference) -> str:
    """Whether the runs differ."""
    if changes := len(difference.changes):
        return f"DIFFERENT: {count(changes, 'change')}"
    limits = " as far as they can be compared" if difference.open else ""
    what = "versions, network, world, environment, communicators, paths and findings"
    return f"SAME: no difference in {what}{limits}"


def renamed(difference: Difference) -> str:
    """Return which hosts are the same; empty where all have the same names."""
    if not difference.renamed:
        return ""
    names = shortened((f"{name} is {other}" for name, other in difference.renamed.items()), _MAX_HOSTS)
    return f"hosts have different names in B and are compared by rank: {names}"


def run(job: Job) -> str:
    """One of the runs, in a line."""
    names = shortened([source.name for source in job.sources], 2)
    size = count(job.world_size, "rank") if job.world_size else "world size not in the log"
    hosts = count(len(job.hosts), "host")
    read = f"; partial: {digest.describe_interruption(job)}" if job.partial else ""
    return f"{job.verdict.upper()}: {names}: {size} on {hosts}, NCCL {', '.join(job.nccl_versions) or 'unknown'}{read}"


def chain_words(chain: CausalChain) -> str:
    """A chain from its causes to its effects."""
    steps = [list(map(_step, chain.causes)), *_waves(chain.findings), list(map(_step, chain.effects))]
    return " -> ".join(_together(step) for step in steps if step)


def _waves(findings: list[Change]) -> Iterator[list[str]]:
    """The findings of a chain in steps: effects of the same cause together, their effects in the next step."""
    wave: list[Change] = []
    for change in findings:
        if any(cause.what in change.rules for cause in wave):
            yield list(map(_finding, wave))
            wave = []
        wave.append(change)
    yield list(map(_finding, wave))


def _together(words: list[str]) -> str:
    """Words as a list: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _step(change: Change) -> str:
    """A change within a chain."""
    what = f"{_pairs(change)} " if change.pairs else f"{change.what} "
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={change.before or change.after} is {change.kind}"
    if change.kind == "changed":
        return f"{what}{change.before} => {change.after}"
    return f"{what}{change.before or change.after} ({change.kind})"


def _finding(change: Change) -> str:
    return change.what if change.kind == "new" else f"{change.what} ({change.kind})"


def proof(chain: CausalChain) -> list[str]:
    """The line that proves the chain."""
    lines = chain.findings[0].evidence
    shared = [line for cause in chain.causes for line in cause.evidence if line in lines]
    return [f"{line.source}:{line.line}: {line.text}" for line in (shared or lines)[:1]]


def unexplained(difference: Difference) -> list[Change]:
    """Findings of B with a fix that are in no chain."""
    explained = {id(change) for chain in difference.explanations for change in chain.findings}
    return [change for change in difference.of("findings") if change.fix and id(change) not in explained]


def change_words(change: Change) -> str:
    """A change in the list of its area."""
    if change.area == "paths":
        only = {"new": " only in B", "gone": " only in A"}.get(change.kind, "")
        return f"{_pairs(change)}: {_arrow(change)}{only}"
    if change.area == "environment" and change.kind != "changed":
        return f"{change.what}={_arrow(change)}"
    if change.area == "verdict" or (change.area == "communicators" and change.kind != "changed"):
        return _arrow(change)
    if change.area == "findings" and change.kind == "new":
        where = f"; {change.evidence[0].source}:{change.evidence[0].line}" if change.evidence else ""
        return f"{change.what}: {change.after}{where}"
    return f"{change.what}: {_arrow(change)}"


def _arrow(change: Change) -> str:
    if change.kind == "changed":
        return f"{change.before} => {change.after}"
    return str(change.before or change.after)


def _pairs(change: Change) -> str:
    some = listed((f"{src}->{dst}" for src, dst in change.pairs), 3)
    scope = f" {change.what}" if change.what != "unknown" else ""
    return f"{count(len(change.pairs), 'pair')}{scope} ({some})"
