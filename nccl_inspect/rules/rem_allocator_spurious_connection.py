"""A helper of old releases took a connection of a stranger for a request of memory."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, value

RULE = Rule(
    name="rem-allocator-spurious-connection",
    category="environment",
    layer=Layer.CALL,
    title="A helper of an old release took a stranger's connection for a request",
    local=True,
)
_SEGMENTS = 128
"""Entries of the helper's table (``MAX_SEGMENTS`` in src/bootstrap.cc)."""


def judge(facts: Facts) -> Results:
    """Judge requests that failed while the table had room: whoever connects is served, and what arrives is a size."""
    refused = facts.errors_of_rule(RULE.name)
    if not refused:
        return
    full = [notice for notice in refused if value(notice, "segment") == _SEGMENTS]
    helped = [f"Use fewer communicators at once: a process serves {_SEGMENTS} buffers."] if full else []
    yield RULE.clue(
        f"the helper that allocates memory for other ranks failed: {refused[0].message}",
        cause="its table is full: too many buffers of other ranks at once"
        if full
        else "the helper of NCCL 2.8 to 2.11 serves whoever connects: a port scanner, a health check or another job "
        "sends no request, or its first bytes are taken for a size that no GPU has. If a rank of this host asked for "
        "the memory, the GPU is full",
        impact="none if a stranger connected: the helper continues; otherwise the rank that asked fails",
        fix=[
            *helped,
            "pip install -U nvidia-nccl-cu12   # 2.12 or later has no such helper; or a newer image",
            "NCCL_SOCKET_IFNAME=<interface>   # one that scanners and other hosts do not reach",
        ],
        confirm="Does the job continue, and does no other rank of the host report an error? Then it is harmless.",
        confidence="possible" if facts.job.failed or full else "likely",
        notices=refused,
        explains_errors=refused,
    )
