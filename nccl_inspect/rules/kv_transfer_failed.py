"""A KV cache could not be moved between the servers of an inference job."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="kv-transfer-failed",
    category="failures",
    title="A KV cache could not be moved between prefill and decode",
    shows=("no-kv-transfer",),
    layer=Layer.CALL,
)


def judge(facts: Facts) -> Results:
    """Judge what NIXL, Mooncake and the servers themselves say of transfers."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a KV cache could not be moved: {find_text(errors[0])}",
        cause="unknown from this line; likely: the other server is gone or not reachable (address, port, firewall), "
        "its "
        "NIC or GID is not the right one, or memory could not be registered. NCCL takes no part in it",
        stops="requests that need this KV cache fail or wait",
        fix=(
            "Look at the log of the other server at the same time: the one that fails first is the cause.",
            "nc -vz <other server> <port>   # the port of the handshake or of the bootstrap server",
            "show_gids; ibstat   # on both hosts: which NICs reach each other, and with which GID?",
            "ib_write_bw -d <nic> -x <gid index>   # between the two NICs that the message names",
        ),
        confirm="Check whether requests fail, or only this one was given up.",
        confidence="likely" if facts.job.failed else "possible",
    )
