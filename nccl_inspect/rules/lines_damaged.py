"""Torn and interleaved lines."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count

RULE = Rule(
    name="lines-damaged",
    category="log quality",
    severity="info",
    title="Lines of the log are torn or run together",
)
_SHARE = 0.01


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the share of NCCL lines that are torn, whether they could be put together again or not."""
    sources = facts.job.sources
    lost = sum(source.damaged_lines for source in sources)
    mended = sum(source.repaired_lines for source in sources)
    lines = sum(source.nccl_lines for source in sources)
    if lost + mended <= lines * _SHARE or not (lost or mended):
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
