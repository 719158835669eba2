"""aws-ofi-nccl finds fewer EFA devices than the machine type has for the GPUs of the job."""

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.remedies import EFA_CHECK
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count

RULE = Rule(
    name="efa-nics-missing",
    category="network",
    cloud="AWS",
    severity="warning",
    title="The plugin finds fewer EFA devices than the machine has for these GPUs",
    shows=("no-efa-device", "few-efa-devices"),
)
_SEVERE = 4
"""Factor of missing devices from which it is an error."""


def judge(facts: Facts) -> Results:
    """Judge hosts that communicate over EFA, by the number of devices that aws-ofi-nccl found."""
    machine = facts.platform
    if (
        not machine
        or machine.network != "efa"
        or not machine.nics
        or not machine.gpus
        or not facts.inter_host_rdma_paths()
    ):
        return
    ranks = {host.name: len(host.ranks) for host in facts.job.hosts}
    short = []
    for notice in facts.with_event(OfiProvider):
        gpus = min((ranks.get(host, 0) for host in hosts_in([notice])), default=0)
        match notice.event:
            case OfiProvider(provider="efa", nics=int(nics)) if gpus and 0 < nics < _share(machine, gpus):
                short.append((gpus, nics, notice))
    if not short:
        return
    gpus, nics, _ = short[0]
    expected = _share(machine, gpus)
    notices = [notice for _, _, notice in short]
    yield RULE.finding(
        f"aws-ofi-nccl finds {count(nics, 'EFA device')} where {machine.name} has {expected} for {count(gpus, 'GPU')}",
        cause="devices are missing: in Kubernetes the pod requests fewer vpc.amazonaws.com/efa than the node has, in "
        "Docker not all of /dev/infiniband was passed in; otherwise the instance has fewer EFA interfaces",
        impact=f"at most {nics}/{expected} of the bandwidth between hosts: all GPUs share the available NICs",
        fix=[
            f"resources: {{limits: {{vpc.amazonaws.com/efa: {expected}}}}}   # pod spec, of the container: as many as "
            "the node has for these GPUs",
            EFA_CHECK,
            "aws ec2 describe-instances --instance-ids <id> --query "
            "'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'   # how many interfaces are efa?",
        ],
        severity="error" if expected >= _SEVERE * nics else None,
        confidence="likely",
        notices=notices,
        evidence=[*first_evidence(facts.with_event(OfiPlatform)[:1]), *first_evidence(notices[:2])],
    )


def _share(machine: Platform, gpus: int) -> int:
    """The devices that a machine has for this number of GPUs, rounded down: half a machine may have half of them."""
    return max((machine.nics or 0) * min(gpus, machine.gpus or 1) // (machine.gpus or 1), 1)
