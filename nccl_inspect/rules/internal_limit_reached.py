"""A table of fixed size inside NCCL or a plugin is full."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import entry_for_role

RULE = Rule(
    name="internal-limit-reached",
    category="failures",
    layer=Layer.CALL,
    title="A table inside NCCL or a plugin is full: requests, connections or calls",
)
_OF_PROGRAM = "The program puts more calls into one group, or captures more into one graph, than this release supports"
_REQUESTS = (
    "more transfers are in flight on one connection than it has room for: earlier transfers never completed (a "
    "peer that hangs or is gone), or NCCL and the plugin are incompatible"
)
_CONNECTIONS = (
    "more connections or registered buffers are open than the table holds: many communicators, channels or "
    "ranks in one process, or connections that were never closed"
)
_CHANNELS = (
    "the communicator has more channels than the algorithm can run: a setting asks for them (NCCL_MIN_NCHANNELS), or "
    "RCCL chose WarpSpeed for a communicator with many channels"
)
_CAUSES = {
    "channels-full": _CHANNELS,
    "calls-full": _OF_PROGRAM,
    "transfers-full": _REQUESTS,
}
_FIXES = {
    _OF_PROGRAM: "End the group earlier (ncclGroupEnd), or use a newer release of NCCL or RCCL.",
    _REQUESTS: "Look for the first error above and on the other ranks; a peer that hangs leaves its transfers open.",
    _CHANNELS: "RCCL_WARP_SPEED_AUTO=0   # RCCL without WarpSpeed; and unset NCCL_MIN_NCHANNELS",
    _CONNECTIONS: "Use fewer communicators at once, and destroy those no longer needed (destroy_process_group).",
}


def judge(facts: Facts) -> Results:
    """Judge by what the table holds."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    cause = entry_for_role(notices[0], _CAUSES) or _CONNECTIONS
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"a limit inside NCCL or a plugin is reached: {notices[0].message}",
        cause=cause,
        stops="the call fails, and with it the job",
        fix=(
            _FIXES[cause],
            "Use NCCL and the network plugin of the same release or installer.",
            "NCCL_MAX_CTAS=8   # a test: fewer channels need fewer connections (before 2.17: NCCL_MAX_NCHANNELS=8)",
        ),
        confirm="Look for a later exception of this rank.",
        confidence="possible" if cause is _REQUESTS else "likely",
    )
