"""MSCCL++ failed."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="mscclpp-failed",
    category="failures",
    title="MSCCL++ failed",
    layer=Layer.CALL,
)


def judge(facts: Facts) -> Results:
    """Judge its exceptions: each has its reason in front of the code."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"MSCCL++ failed: {find_text(errors[0]).removeprefix('what():').strip()}",
        cause="see the message: an interface or a NIC that is not there, memory that cannot be shared, or a peer that "
        "did not answer. MSCCL++ has settings of its own",
        stops="the program ends, or uses NCCL instead",
        fix=(
            "MSCCLPP_SOCKET_IFNAME=<interface> MSCCLPP_HCA_DEVICES=mlx5_0,mlx5_1   # one NIC for each GPU",
            "MSCCLPP_DEBUG=INFO   # what happens before it; MSCCLPP_LOG_LEVEL=INFO in newer releases",
            "Leave it out to compare: --enable-mscclpp (SGLang), RCCL_MSCCLPP_ENABLE=0 (RCCL).",
        ),
        confirm="Check whether the program continued with NCCL.",
        confidence="likely" if facts.job.failed else "possible",
    )
