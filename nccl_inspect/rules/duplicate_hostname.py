"""Two machines have the same host name."""

from itertools import pairwise
from operator import eq

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, ranks_in
from nccl_inspect.judging.networks.interfaces import Interface, listed_interfaces
from nccl_inspect.model.job import Selection
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="duplicate-hostname",
    category="bootstrap",
    severity="error",
    title="Two machines or containers have the same host name",
    causes=("cuda-ipc-isolated-gpus", "p2p-import-failed"),
    echoes=("shm-attach-failed",),
    supersedes=("net-instead-of-p2p",),
)

_FIX = (
    "hostnamectl set-hostname <name>   # a unique name for each machine; containers: docker run --hostname <name>",
    "NCCL_HOSTID=<name>   # a unique value for each machine and container; unset it if all have the same",
)
_FAR, _NEAR = 10_000, 2_000
"""Distances between pids of two machines, and of one."""


def judge(facts: Facts) -> Results:
    """Judge a host name whose processes have different addresses on the same interface.

    NCCL identifies machines by host name and, from 2.5 on, boot id. The log shows only the name.
    """
    addresses = _addresses(facts)
    unshared = _sharing_failures(facts)
    for host in facts.hosts():
        used = _different_addresses(addresses.get(host, {}))
        if not facts.job.paths and unshared and (used or _pids_apart(facts, host)):
            yield _sharing_clue(host, used, unshared)
            return
        if not used:
            continue
        if not facts.job.paths:
            yield _address_clue(host, used)
            return
        paths = _paths_between(facts, used)
        local = paths.where(lambda kind: kind.transport in ("P2P", "SHM"))
        if not paths or (local and not _has_failed(facts)):
            continue  # they share memory: containers or addresses of one machine
        yield _finding(facts, host, used, local, paths)
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


def _has_failed(facts: Facts) -> bool:
    """Whether the job ended in an error, or sharing memory did."""
    return facts.job.failed or bool(_sharing_failures(facts))


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


def _sharing_clue(host: str, used: list[Interface], unshared: list[Notice]) -> Finding:
    """The clue if memory cannot be shared, and the log ends before it shows between which ranks."""
    words = listed(interface.address for interface in used)
    return RULE.clue(
        f"host name {host} may belong to several machines: its processes cannot share memory and have "
        + (f"several addresses ({words})" if used else "pids far from each other"),
        cause="machines, or containers of one machine, have the same host name; NCCL treats an equal name and boot id "
        "as one machine (up to 2.4 the name alone)",
        impact="ranks try to share memory that they cannot share: the job fails while connecting",
        fix=_FIX,
        confirm="Run 'cat /proc/sys/kernel/random/boot_id' beside each rank: different ids mean different machines.",
        severity="warning",
        confidence="likely" if used else "possible",
        ranks=ranks_in([*(interface.notice for interface in used), *unshared]),
        hosts=[host],
        evidence=first_evidence([*(interface.notice for interface in used[:2]), *unshared]),
    )


def _address_clue(host: str, used: list[Interface]) -> Finding:
    """The clue if the log shows no connection, and nothing failed."""
    return RULE.clue(
        f"host name {host} has {len(used)} addresses ({listed(interface.address for interface in used)})",
        cause="machines or containers have the same host name; a machine with several addresses on one interface "
        "looks the same",
        impact="none if their boot ids differ; containers of one machine, and releases before 2.5, try to share memory "
        "that they cannot share",
        fix=_FIX,
        confirm="Run 'hostname; cat /proc/sys/kernel/random/boot_id' beside each rank: are they on one machine?",
        severity="info",
        confidence="likely",
        ranks=ranks_in(interface.notice for interface in used),
        hosts=[host],
        evidence=first_evidence([interface.notice for interface in used[:2]]),
    )


def _finding(facts: Facts, host: str, used: list[Interface], local: Selection, paths: Selection) -> Finding:
    words = listed(interface.address for interface in used)
    return RULE.finding(
        f"host name {host} has {len(used)} addresses ({words})"
        + (f"; NCCL treats them as one machine: {count(len(local), 'local path')} between them" if local else ""),
        cause="machines or containers have the same host name"
        + (
            ". NCCL treats an equal name and boot id as one machine: containers of one machine, NCCL_HOSTID set to the "
            "same value, or a release before 2.5"
            if local
            else ""
        ),
        impact="ranks try to share memory that they cannot share: the job fails while connecting"
        if local
        else "none for NCCL, which also compares the boot id; this report counts them as one host, so paths between "
        "them appear as paths within it",
        fix=_FIX,
        severity="error" if local else "info",
        confidence="likely",
        ranks=ranks_in(interface.notice for interface in used),
        hosts=[host],
        evidence=[
            *first_evidence([*(interface.notice for interface in used[:2]), *_sharing_failures(facts)[:1]]),
            *first_lines(local or paths)[:2],
        ],
        fatal=bool(local),
        paths=local,
        open_paths=paths.without(local),  # counted as paths within a host
    )
