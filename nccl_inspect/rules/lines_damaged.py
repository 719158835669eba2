"""Torn and interleaved lines, and lines with an unknown prefix."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-damaged",
    category="log quality",
    severity="info",
    title="Lines of the log are torn or run together",
)
_SHARE = 0.01
_NEARLY_ALL = 0.9
"""Even in torn blocks most lines are whole."""
_ANY = ANY.decode("ascii")
_TWO = later(rf"NCCL (?:{_ANY}) .*NCCL (?:{_ANY}) ")
"""A line into which another one was written."""


def judge(facts: Facts) -> Results:
    """Judge the share of torn NCCL lines, repaired or not."""
    sources = facts.job.sources
    lost = sum(source.damaged_lines for source in sources)
    repaired = sum(source.repaired_lines for source in sources)
    lines = sum(source.nccl_lines for source in sources)
    if lost + repaired <= lines * _SHARE or not (lost or repaired):
        return
    if _are_alike(facts, lost, repaired, lines):
        yield RULE.finding(
            f"{lost:,} of {lines:,} lines cannot be read, all alike: the text before NCCL is not a known prefix",
            cause="a collector put each line in a format that nccl-inspect does not know, or host names were removed",
            impact=f"{count(lost, 'line')} skipped: this report is based on the few others",
            fix=[
                "kubectl logs <pod> > job.log   # the log as the job printed it, before a collector wraps it",
                "nccl-inspect anonymize job.log > shareable.log   # replaces names and keeps lines readable",
            ],
            confidence="likely",
            evidence=facts.job.damaged,
        )
        return
    yield RULE.finding(
        f"{lost + repaired} of {lines:,} lines {'is' if lost + repaired == 1 else 'are'} torn or run together"
        + (f"; {repaired} could be repaired" if repaired else ""),
        cause="several processes write to one pipe or file in blocks of 4,096 bytes, which end in the middle of a line",
        impact=f"{count(lost, 'line')} skipped: connections, settings and warnings that only they show are missing"
        if lost
        else "none: all of them were repaired",
        fix=[
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # gives each process a file of its own",
            "torchrun --log-dir /logs --redirects 3 <script>   # mpirun --output-filename <file>; srun --output=log.%t",
            "stdbuf -oL <command>   # makes standard output line-buffered",
        ],
        evidence=facts.job.damaged or facts.job.repaired,
    )


def _are_alike(facts: Facts, lost: int, repaired: int, lines: int) -> bool:
    """Whether nearly all lines are unreadable though none was written into another: a pipe does not do that."""
    examples = facts.job.damaged
    return lost >= _NEARLY_ALL * lines and not repaired and not any(_TWO.search(example.text) for example in examples)
