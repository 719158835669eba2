"""Two machines have the same host name."""

from __future__ import annotations

from itertools import pairwise
from operator import eq

from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, ranks_in
from nccl_inspect.judging.networks.interfaces import Interface, listed_interfaces
from nccl_inspect.model.job import Selection
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="duplicate-hostname",
    category="bootstrap",
    layer=Layer.SETTING,
    title="Two machines or containers have the same host name",
    may_cause=("wait", "loss", "call", "stage", "resource", "no-gpu-access"),
    supersedes=("net-instead-of-p2p",),
)

_FIX = (
    "hostnamectl set-hostname <name>   # a unique name for each machine; containers: docker run --hostname <name>",
    "NCCL_HOSTID=<name>   # a unique value for each machine and container; unset it if all have the same",
)
_FAR, _NEAR = 10_000, 2_000
"""Distances between pids of two machines, and of one."""


@frozen
class _SharedName(Frozen):
    """A host name that several machines seem to have."""

    host: str
    used: list[Interface]
    """Different addresses on the same interface."""
    unshared: list[Notice]
    """Failures to share memory."""

    @property
    def addresses(self) -> str:
        """The addresses in words."""
        return listed(interface.address for interface in self.used)

    @property
    def notices(self) -> list[Notice]:
        """The lines with the addresses."""
        return [interface.notice for interface in self.used]


def judge(facts: Facts) -> Results:
    """Judge a host name whose processes have different addresses on the same interface.

    NCCL identifies machines by host name and, from 2.5 on, boot id. The log shows only the name.
    """
    addresses, unshared = _addresses(facts), _sharing_failures(facts)
    for host in facts.hosts():
        name = _SharedName(host, _different_addresses(addresses.get(host, {})), unshared)
        if not facts.job.paths and unshared and (name.used or _pids_apart(facts, host)):
            yield _sharing_clue(name)
            return
        if not name.used:
            continue
        if not facts.job.paths:
            yield _address_clue(name)
            return
        paths = _paths_between(facts, name.used)
        local = paths.where(lambda kind: kind.transport in ("P2P", "SHM"))
        if not paths or (local and not facts.job.failed and not unshared):
            continue  # they share memory: containers or addresses of one machine
        yield _collision(name, local, paths.without(local)) if local else _harmless(name, paths)
        return


def _addresses(facts: Facts) -> dict[str, dict[str, dict[str, Interface]]]:
    """The interfaces in use, by host, name and address."""
    by_host: dict[str, dict[str, dict[str, Interface]]] = {}
    for interface in listed_interfaces(facts):
        if interface.address and not interface.is_of_one_machine and not interface.is_loopback:
            for host in interface.notice.hosts:
                by_host.setdefault(host, {}).setdefault(interface.name, {}).setdefault(interface.address, interface)
    return by_host


def _different_addresses(interfaces: dict[str, dict[str, Interface]]) -> list[Interface]:
    """The addresses of the first interface for which processes have different ones."""
    return next((list(addresses.values()) for addresses in interfaces.values() if len(addresses) > 1), [])


def _paths_between(facts: Facts, used: list[Interface]) -> Selection:
    """Paths within that host name between ranks with different addresses."""
    address = {rank: index for index, interface in enumerate(used) for rank in interface.notice.ranks}
    near = facts.job.paths.only(("src_host", "dst_host"), eq)
    return near.only(
        ("src", "dst"), lambda src, dst: src in address and dst in address and address[src] != address[dst]
    )


def _sharing_failures(facts: Facts) -> list[Notice]:
    """Failures to share memory; a segment that could not be created has other causes."""
    attaching = [notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") != "creating"]
    return [*attaching, *facts.notices("nccl/shm-register-failed-old", "nccl/p2p-ipc-handle-failed")]


def _pids_apart(facts: Facts, host: str) -> bool:
    """Whether the processes of a host fall into two groups of pids that are far from each other.

    A launcher starts the ranks of a machine one after another: two such groups are hardly on one machine.
    """
    pids = sorted({last.process.pid for last in facts.job.last_lines if last.process.host == host})
    gaps = [(later - pid, later) for pid, later in pairwise(pids)]
    if not gaps:
        return False
    widest, begin = max(gaps)
    groups = [pid for pid in pids if pid < begin], [pid for pid in pids if pid >= begin]
    return widest > _FAR and all(group[-1] - group[0] < _NEAR for group in groups)


def _sharing_clue(name: _SharedName) -> Finding:
    """The clue if memory cannot be shared, and the log ends before it shows between which ranks."""
    return RULE.clue(
        f"host name {name.host} may belong to several machines: its processes cannot share memory and have "
        + (f"several addresses ({name.addresses})" if name.used else "pids far from each other"),
        cause="machines, or containers of one machine, have the same host name; NCCL treats an equal name and boot id "
        "as one machine (up to 2.4 the name alone)",
        impact="ranks try to share memory that they cannot share: the job fails while connecting",
        fix=_FIX,
        confirm="Run 'cat /proc/sys/kernel/random/boot_id' beside each rank: different ids mean different machines.",
        confidence="likely" if name.used else "possible",
        ranks=ranks_in([*name.notices, *name.unshared]),
        hosts=[name.host],
        evidence=first_evidence([*name.notices[:2], *name.unshared]),
    )


def _address_clue(name: _SharedName) -> Finding:
    """The clue if the log shows no connection, and nothing failed."""
    return RULE.clue(
        _summary(name),
        cause="machines or containers have the same host name; a machine with several addresses on one interface "
        "looks the same",
        impact="none if their boot ids differ; containers of one machine, and releases before 2.5, try to share memory "
        "that they cannot share",
        fix=_FIX,
        confirm="Run 'hostname; cat /proc/sys/kernel/random/boot_id' beside each rank: are they on one machine?",
        severity="info",
        ranks=ranks_in(name.notices),
        hosts=[name.host],
        evidence=first_evidence(name.notices[:2]),
    )


def _collision(name: _SharedName, local: Selection, others: Selection) -> Finding:
    return RULE.finding(
        f"{_summary(name)}; NCCL treats them as one machine: {count(len(local), 'local path')} between them",
        cause="machines or containers have the same host name. NCCL treats an equal name and boot id as one machine: "
        "containers of one machine, NCCL_HOSTID set to the same value, or a release before 2.5",
        impact="ranks try to share memory that they cannot share: the job fails while connecting",
        fix=_FIX,
        confidence="likely",
        ranks=ranks_in(name.notices),
        hosts=[name.host],
        evidence=_evidence(name, local),
        fatal=True,
        paths=local,
        open_paths=others,  # counted as paths within a host
    )


def _harmless(name: _SharedName, paths: Selection) -> Finding:
    return RULE.finding(
        _summary(name),
        cause="machines or containers have the same host name",
        impact="none for NCCL, which also compares the boot id; this report counts them as one host, so paths between "
        "them appear as paths within it",
        fix=_FIX,
        severity="info",
        confidence="likely",
        ranks=ranks_in(name.notices),
        hosts=[name.host],
        evidence=_evidence(name, paths),
        open_paths=paths,
    )


def _summary(name: _SharedName) -> str:
    return f"host name {name.host} has {len(name.used)} addresses ({name.addresses})"


def _evidence(name: _SharedName, paths: Selection) -> list[Evidence]:
    return [*first_evidence([*name.notices[:2], *name.unshared[:1]]), *first_lines(paths)[:2]]
