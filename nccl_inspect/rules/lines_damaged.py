"""Torn and interleaved lines, and lines of which what stands in front is not known."""

import re
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-damaged",
    category="log quality",
    severity="info",
    title="Lines of the log are torn or run together",
)
_SHARE = 0.01
_NEARLY_ALL = 0.9
"""Of torn blocks most lines are whole."""
_ANY = ANY.decode("ascii")
_TWO = re.compile(rf"NCCL (?:{_ANY}) .*NCCL (?:{_ANY}) ")
"""What a line holds into which another one was written."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the share of NCCL lines that are torn, whether they could be put together again or not."""
    sources = facts.job.sources
    lost = sum(source.damaged_lines for source in sources)
    mended = sum(source.repaired_lines for source in sources)
    lines = sum(source.nccl_lines for source in sources)
    if lost + mended <= lines * _SHARE or not (lost or mended):
        return
    if _are_alike(facts, lost, mended, lines):
        yield RULE.finding(
            f"{lost:,} of {lines:,} lines cannot be read, all alike: what stands before NCCL is not known",
            cause="something put around each line that nccl-inspect does not know, or host names that were taken out",
            impact=f"{count(lost, 'line')} left out: what this report says comes from the few others",
            fix=[
                "kubectl logs <pod> > job.log   # the log as the job printed it, before a collector wraps it",
                "nccl-inspect anonymize job.log > shareable.log   # replaces names and keeps lines that can be read",
            ],
            confidence="likely",
            evidence=facts.job.damaged,
        )
        return
    yield RULE.finding(
        f"of {lines:,} lines {lost + mended} {'is' if lost + mended == 1 else 'are'} torn or run together"
        + (f"; {mended} could be repaired" if mended else ""),
        cause="several processes write to one pipe or file in blocks of 4,096 bytes, which end inside a line",
        impact=f"{count(lost, 'line')} left out, and with it what nothing else shows: connections, settings, warnings"
        if lost
        else "none: all of them could be repaired",
        fix=[
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # gives each process a file of its own",
            "torchrun --log-dir /logs --redirects 3 <script>   # mpirun --output-filename <file>; srun --output=log.%t",
            "stdbuf -oL <command>   # makes standard output line-buffered",
        ],
        evidence=facts.job.damaged or facts.job.repaired,
    )


def _are_alike(facts: Facts, lost: int, mended: int, lines: int) -> bool:
    """Whether nearly no line can be read though none was written into another: no pipe does that."""
    examples = facts.job.damaged
    return lost >= _NEARLY_ALL * lines and not mended and not any(_TWO.search(one.text) for one in examples)
