"""A transfer failed, or could not be passed to the network, and the log does not show why."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.remedies import LIBFABRIC_SAYS

RULE = Rule(
    name="transfer-failed",
    category="network",
    layer=Layer.CALL,
    title="The network refused or lost a transfer",
)
_OF_LIBFABRIC = "aws-ofi-nccl"


def judge(facts: Facts) -> Results:
    """Judge calls that post, poll or end a transfer: most often the peer is gone, and then peer-death leads."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in errors)
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a transfer failed: {errors[0].message}",
        cause="unknown from this line. Most often the peer is gone, and its peers see this error; otherwise the NIC or "
        "its driver refuses the call: the NIC's queues or memory are exhausted, or the NIC is faulty",
        stops="the connection is lost, and with it the job",
        fix=(
            "Find the rank that failed first: check its log, its pod, and dmesg on its host.",
            "dmesg -T | grep -iE 'mlx5|efa|ena|bnxt'; ibstat   # on the host of this rank: is its NIC faulty?",
            *((LIBFABRIC_SAYS,) if is_libfabric else ()),
            "ulimit -l   # in the container: must print unlimited if the error is 'Cannot allocate memory'",
        ),
        confirm="Compare the ends of all ranks' logs: the rank that ended first, or with another error, is the cause.",
        confidence="possible",
    )
