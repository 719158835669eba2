"""The hosts of lines of kernel logs, and the ranks that use the GPUs that these lines name."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice


def hosts_in(facts: Facts, notices: Iterable[Notice]) -> set[str]:
    """The hosts of the job that lines of kernel logs are about: by their syslog prefix, else by the file name."""
    return {host for notice in notices for host in _hosts(facts, notice)}


def ranks_in(facts: Facts, notices: Iterable[Notice]) -> set[int]:
    """The ranks that use a GPU named by the driver."""
    from nccl_inspect.judging.evidence.machines import rank_of  # most jobs have no such line

    return {
        rank
        for notice in notices
        if (bus_id := value(notice, "bus_id"))
        for host in _hosts(facts, notice)
        for rank in rank_of(facts, host, str(bus_id), None)
    }


def _hosts(facts: Facts, notice: Notice) -> set[str]:
    """All hosts that printed the same line."""
    from nccl_inspect.artifacts import kernel, owner  # most logs have no line of the driver

    job_hosts = owner.hosts_of(tuple(facts.hosts()))
    hosts = set(notice.hosts)
    for line in notice.evidence:
        named = kernel.host(line.text)
        hosts.add((job_hosts.same(named) if named else job_hosts.of_path(line.source)) or "")
    return hosts & set(job_hosts.names)
