"""A host has fewer EFA devices than its GPUs have on this machine type."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, hosts_in
from nccl_inspect.judging.remedies import EFA_CHECK
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.platforms import Platform
from nccl_inspect.util.wording import count

RULE = Rule(
    name="efa-nics-missing",
    category="network",
    cloud="AWS",
    severity="warning",
    title="The plugin finds fewer EFA devices than the machine has for these GPUs",
)
_SEVERE = 4
"""How many times fewer devices make an error of it."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge hosts whose traffic leaves them over EFA, by the number of devices that aws-ofi-nccl found."""
    machine = facts.platform
    if not machine or machine.network != "efa" or not machine.nics or not machine.gpus or not facts.rdma():
        return
    ranks = {host.name: len(host.ranks) for host in facts.job.hosts}
    short = []
    for notice in facts.said(OfiProvider):
        gpus = min((ranks.get(host, 0) for host in hosts_in([notice])), default=0)
        match notice.event:
            case OfiProvider(provider="efa", nics=int(found)) if gpus and 0 < found < _share(machine, gpus):
                short.append((gpus, found, notice))
    if not short:
        return
    gpus, found, _ = short[0]
    meant = _share(machine, gpus)
    said = [notice for _, _, notice in short]
    yield RULE.finding(
        f"aws-ofi-nccl finds {count(found, 'EFA device')} where {machine.name} has {meant} for {count(gpus, 'GPU')}",
        cause="devices are missing: in Kubernetes the pod asks for fewer of vpc.amazonaws.com/efa than the node has, "
        "in docker not all of /dev/infiniband was passed in; else the instance was started with fewer EFA interfaces",
        impact=f"at most {found}/{meant} of the bandwidth between hosts: all GPUs share the NICs that are there",
        fix=[
            f"resources: {{limits: {{vpc.amazonaws.com/efa: {meant}}}}}   # pod spec, of the container: all that the "
            "node has for these GPUs",
            EFA_CHECK,
            "aws ec2 describe-instances --instance-ids <id> --query "
            "'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'   # how many interfaces are efa?",
        ],
        severity="error" if meant >= _SEVERE * found else None,
        confidence="likely",
        notices=said,
        evidence=[*first_said(facts.said(OfiPlatform)[:1]), *first_said(said[:2])],
    )


def _share(machine: Platform, gpus: int) -> int:
    """The devices that as many GPUs have on a machine, rounded down: half a machine may have half of them."""
    return max((machine.nics or 0) * min(gpus, machine.gpus or 1) // (machine.gpus or 1), 1)
