"""aws-ofi-nccl finds fewer EFA devices than the machine type has for the GPUs of the job."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiPlatform, OfiProvider
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.platforms import Platform

_SEVERE = 4
"""Factor of missing devices from which it is an error."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find hosts that communicate over EFA with fewer devices than their machine has for these GPUs."""
    machine = facts.platform
    if machine is None or machine.network != "efa" or not (machine.nics and machine.gpus):
        return
    ranks = {host.name: len(host.ranks) for host in facts.job.hosts}
    short = []
    for notice in facts.with_event(OfiProvider) if facts.inter_host_rdma_paths() else ():
        gpus = min((ranks.get(host, 0) for host in notice.hosts), default=0)
        match notice.event:
            case OfiProvider(provider="efa", nics=int(nics)) if gpus and 0 < nics < _share(machine, gpus):
                short.append((gpus, nics, notice))
    if short:
        gpus, nics, _ = short[0]
        notices, expected = [notice for _, _, notice in short], _share(machine, gpus)
        named = {
            "nics": nics,
            "machine": machine.name,
            "expected": expected,
            "gpus": gpus,
            "severe": expected >= _SEVERE * nics,
        }
        yield Hit(notices, named, evidence=first_evidence([*facts.with_event(OfiPlatform)[:1], *notices[:2]]))


def _share(machine: Platform, gpus: int) -> int:
    """Return the devices of a machine for this number of GPUs, rounded down: half of it may have half of them."""
    return max((machine.nics or 0) * min(gpus, machine.gpus or 1) // (machine.gpus or 1), 1)
