"""A transfer failed, or could not be handed to the network, and nothing says why."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import LIBFABRIC_SAYS
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="transfer-failed",
    category="network",
    severity="error",
    title="The network refused or lost a transfer",
    echoes=("collective-unfinished", "gin-failed", "internal-error", "internal-limit-reached", "ucx-failed"),
    symptom=True,
)
_OF_LIBFABRIC = "aws-ofi-nccl"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge calls that post, poll or end a transfer: most often the peer is gone, and then peer-death leads."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in said)
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a transfer failed: {said[0].message}",
        cause="the line does not tell. Most often the peer is gone and this is how the others see it; else the NIC "
        "or its "
        "driver refuses the call: queues or memory of the NIC are used up, or the card is in trouble",
        stops="the connection is lost, and with it the job",
        fix=(
            "Look which rank failed first: its log, its pod, dmesg on its host.",
            "dmesg -T | grep -iE 'mlx5|efa|ena|bnxt'; ibstat   # on the host of this rank: is its NIC in trouble?",
            *((LIBFABRIC_SAYS,) if is_libfabric else ()),
            "ulimit -l   # in the container: must say unlimited where the error is 'Cannot allocate memory'",
        ),
        confirm="Compare how the logs of all ranks end: the one that ends first, or with another error, is the cause.",
        confidence="possible",
    )
