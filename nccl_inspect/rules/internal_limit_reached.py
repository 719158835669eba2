"""A table of fixed size inside NCCL or a plugin is full."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import of_role
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="internal-limit-reached",
    category="failures",
    severity="error",
    title="A table inside NCCL or a plugin is full: requests, connections or calls",
    symptom=True,
)
_OF_PROGRAM = "The program puts more calls into one group, or captures more into one graph, than this release can keep"
_REQUESTS = (
    "more transfers are under way on one connection than it has room for: transfers before them never ended (a"
    " peer that hangs or is gone), or NCCL and the plugin do not fit together"
)
_CONNECTIONS = (
    "more connections or registered buffers are open than the table holds: many communicators, channels or "
    "ranks in one process, or some that were never closed"
)
_CAUSES = {
    "calls-full": _OF_PROGRAM,
    "transfers-full": _REQUESTS,
}
_FIXES = {
    _OF_PROGRAM: "End the group earlier (ncclGroupEnd), or take a newer release of NCCL or RCCL.",
    _REQUESTS: "Look for the first error above and on the other ranks; a peer that hangs leaves its transfers open.",
    _CONNECTIONS: "Use fewer communicators at once, and destroy those that are done (destroy_process_group).",
}


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge by what the table holds."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    cause = of_role(said[0], _CAUSES) or _CONNECTIONS
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a limit inside NCCL or a plugin is reached: {said[0].message}",
        cause=cause,
        stops="the call fails, and with it the job",
        fix=(
            _FIXES[cause],
            "Take NCCL and the network plugin of one release or installer.",
            "NCCL_MAX_CTAS=8   # a test: fewer channels need fewer connections (before 2.17: NCCL_MAX_NCHANNELS=8)",
        ),
        confirm="Look for an exception of this rank below it.",
        confidence="possible" if cause is _REQUESTS else "likely",
    )
