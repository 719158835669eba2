"""Which hosts have several GPUs of which every process sees its own only."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.fold.fold import Burst, ProcessLog

_FIRST = 0
"""The CUDA device of a process that sees one GPU."""
_SEVERAL = 2


def hosts(processes: Iterable[ProcessMembers]) -> list[str]:
    """Hosts where all ranks have CUDA device 0 and different GPUs, by their initialisation or by what they print."""
    by_host: dict[str, list[ProcessMembers]] = {}
    for process in processes:
        by_host.setdefault(process.log.process[0], []).append(process)
    return [host for host, members in by_host.items() if host and (_by_init(members) or _by_lines(members))]


def _by_init(processes: Iterable[ProcessMembers]) -> bool:
    seen = {(member.init.cuda_dev, member.init.bus_id) for process in processes for member in process.members}
    return {cuda_dev for cuda_dev, _ in seen} == {_FIRST} and len({bus_id for _, bus_id in seen}) > 1


def _by_lines(processes: Iterable[ProcessMembers]) -> bool:
    """Whether several processes with connections of different ranks print all their lines on device 0.

    Two ranks on one GPU have no connections: NCCL refuses them before.
    """
    logs = [process.log for process in processes if not process.members]
    connecting = {log.process: _ranks(log) for log in logs}
    ranks = {rank for own in connecting.values() for rank in own}
    several = sum(bool(own) for own in connecting.values()) >= _SEVERAL and len(ranks) >= _SEVERAL
    return several and all(_devices(log) <= {_FIRST} for log in logs)


def _ranks(log: ProcessLog) -> set[int]:
    """The ranks that print connections there; in a process with one GPU it is one."""
    return {step.key.rank for step in log.steps if isinstance(step, Burst)}


def _devices(log: ProcessLog) -> set[int | None]:
    """The CUDA devices that the prefixes of its lines name."""
    origins = [log.opening, log.final, *(step.origin for step in log.steps)]
    return {origin.device for origin in origins}
