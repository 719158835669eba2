"""A card is visible but cannot be used."""

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, value
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.networks.ib_errors import AT_START, REFUSED
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="ib-bad-device",
    category="network",
    title="An InfiniBand or RoCE card is visible but cannot be used",
    may_cause=("mixed-networks", "no-network", "uneven-nics", "no-efa", "no-ib"),
    shows=("setting",),
    nest_under_effect=True,
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge by effect: info if the card is not missed, an error if hosts use TCP or NCCL stops."""
    calls = facts.notices("nccl/ib-call-failed")
    refused = [n for n in calls if value(n, "error") in REFUSED and value(n, "name") not in AT_START]
    unusable = facts.notices("nccl/ib-device-not-usable")
    if not refused and not unusable:
        return
    notices = [*refused, *unusable, *(n for n in calls if value(n, "name") in AT_START)]
    names = listed(str(name) for n in unusable if (name := value(n, "device")))
    outcome = _outcome(facts, is_refused=bool(refused))
    connecting = any(value(notice, "name") == "modify_qp" for notice in refused)
    yield RULE.finding(
        _summary(refused, names),
        cause="the process lacks access to the card, or its driver does not respond: the device node is not in "
        "the container, the libraries of the image do not match the driver of the host, or the card is broken"
        + ("; with RoCE, its network interface is in another network namespace" if connecting else ""),
        impact=outcome.impact,
        fix=[
            "ls -l /dev/infiniband; ibv_devinfo   # inside the container; compare with the host",
            *(["hostNetwork: true   # pod spec, for RoCE (docker: --network=host); or SR-IOV"] * connecting),
            "dmesg -T | grep -i mlx5; ibstat   # does it also fail on the host? Same MOFED in host and image?",
            RDMA_IN_DOCKER,
            RDMA_IN_POD,
            "NCCL_IB_HCA='=mlx5_0,mlx5_1'   # only the cards for this job; '^=mlx5_2' excludes one",
        ],
        severity=outcome.severity,
        confidence="certain" if outcome.is_fatal or outcome.severity == "info" else "likely",
        notices=notices,
        fatal=outcome.is_fatal,
    )


def _outcome(facts: Facts, *, is_refused: bool) -> Outcome:
    if is_refused and (facts.job.failed or not facts.job.paths):
        return Outcome("error", "NCCL stops with an error", is_fatal=True)
    if tcp_paths(facts):
        return Outcome("error", "NCCL skips the card, and hosts talk over TCP")
    unnoticed = "NCCL skips the card; nothing in this log shows that it is missed"
    return Outcome("warning" if is_refused else "info", unnoticed)


def _summary(refused: list[Notice], names: str) -> str:
    if refused:
        return f"a card rejects calls: {refused[0].message}"
    return f"{names or 'a port'} cannot be opened or queried"
