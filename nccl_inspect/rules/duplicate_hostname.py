"""Two machines have the same host name."""

from collections.abc import Iterator
from itertools import pairwise
from operator import eq

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, first_said, ranks_in
from nccl_inspect.judging.networks.interfaces import Interface, offered
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Selection
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
    "hostnamectl set-hostname <name>   # a name of its own for each machine; containers: docker run --hostname <name>",
    "NCCL_HOSTID=<name>   # another one for each machine and container; unset it where all have the same",
)
_FAR, _NEAR = 10_000, 2_000
"""Between pids of two machines, and of one."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge a host name whose processes have different addresses on the same interface.

    NCCL tells machines by host name and, from 2.5 on, boot id. This tool sees the name only.
    """
    addresses = _addresses(facts)
    unshared = _unshared(facts)
    for host in facts.hosts():
        used = _several(addresses.get(host, {}))
        if not facts.job.paths and unshared and (used or _pids_apart(facts, host)):
            yield _suspected(host, used, unshared)
            return
        if not used:
            continue
        if not facts.job.paths:
            yield _told_apart(host, used)
            return
        apart = _apart(facts, used)
        local = apart.where(lambda kind: kind.transport in ("P2P", "SHM"))
        if not apart or (local and not _fails(facts)):
            continue  # they do share memory: containers or addresses of one machine
        yield _finding(facts, host, used, local, apart)
        return


def _addresses(facts: Facts) -> dict[str, dict[str, dict[str, Interface]]]:
    """The interfaces in use, by host, name and address."""
    known: dict[str, dict[str, dict[str, Interface]]] = {}
    for one in offered(facts):
        if one.address and not one.is_of_one_machine and not one.is_loopback:
            for host in one.said.hosts:
                known.setdefault(host, {}).setdefault(one.name, {}).setdefault(one.address, one)
    return known


def _several(known: dict[str, dict[str, Interface]]) -> list[Interface]:
    """The statements about an interface for which processes have different addresses, if there is one."""
    return next((list(found.values()) for found in known.values() if len(found) > 1), [])


def _apart(facts: Facts, used: list[Interface]) -> Selection:
    """Paths within that host name between ranks of different addresses."""
    address = {rank: index for index, one in enumerate(used) for rank in one.said.ranks}
    near = facts.job.paths.only(("src_host", "dst_host"), eq)
    return near.only(
        ("src", "dst"), lambda src, dst: src in address and dst in address and address[src] != address[dst]
    )


def _fails(facts: Facts) -> bool:
    """Whether the job ended in an error, or sharing memory did."""
    return facts.job.failed or bool(_unshared(facts))


def _unshared(facts: Facts) -> list[Notice]:
    """What says that memory could not be shared; that a segment could not be made has other causes."""
    attaching = [one for one in facts.notices("nccl/shm-segment-failed") if value(one, "what") != "creating"]
    return [*attaching, *facts.notices("nccl/shm-register-failed-old", "nccl/p2p-ipc-handle-failed")]


def _pids_apart(facts: Facts, host: str) -> bool:
    """Whether the processes of a host fall into two groups of pids that are far from each other.

    A launcher starts the ranks of a machine one after the other: two such groups are hardly of one machine.
    """
    pids = sorted({last.process.pid for last in facts.job.last_lines if last.process.host == host})
    gaps = [(later - pid, later) for pid, later in pairwise(pids)]
    if not gaps:
        return False
    widest, begin = max(gaps)
    groups = [pid for pid in pids if pid < begin], [pid for pid in pids if pid >= begin]
    return widest > _FAR and all(group[-1] - group[0] < _NEAR for group in groups)


def _suspected(host: str, used: list[Interface], unshared: list[Notice]) -> Finding:
    """What is said where memory cannot be shared, and the log ends before it shows between which ranks."""
    words = listed(one.address for one in used)
    return RULE.clue(
        f"host name {host} may stand for several machines: memory cannot be shared between its processes, which have "
        + (f"several addresses ({words})" if used else "pids far from each other"),
        cause="NCCL takes equal name and boot id for one machine (up to 2.4 the name alone): machines, or "
        "containers of one machine, that have the same name",
        impact="ranks try to share memory that they do not share: the job fails when it connects",
        fix=_FIX,
        confirm="Run 'cat /proc/sys/kernel/random/boot_id' beside each rank: different ids are different machines.",
        severity="warning",
        confidence="likely" if used else "possible",
        ranks=ranks_in([*(one.said for one in used), *unshared]),
        hosts=[host],
        evidence=first_said([*(one.said for one in used[:2]), *unshared]),
    )


def _told_apart(host: str, used: list[Interface]) -> Finding:
    """What is said where no connection is in the log, and nothing failed."""
    return RULE.clue(
        f"host name {host} stands for {len(used)} addresses ({listed(one.address for one in used)})",
        cause="machines or containers with the same host name; a machine with several addresses at one interface "
        "looks the same",
        impact="none where their boot ids differ; containers of one machine, and releases before 2.5, try to share "
        "memory that they do not share",
        fix=_FIX,
        confirm="Run 'hostname; cat /proc/sys/kernel/random/boot_id' beside each rank: are they of one machine?",
        severity="info",
        confidence="likely",
        ranks=ranks_in(one.said for one in used),
        hosts=[host],
        evidence=first_said([one.said for one in used[:2]]),
    )


def _finding(facts: Facts, host: str, used: list[Interface], local: Selection, apart: Selection) -> Finding:
    words = listed(one.address for one in used)
    return RULE.finding(
        f"host name {host} stands for {len(used)} addresses ({words})"
        + (f"; NCCL takes them for one machine: {count(len(local), 'local path')} between them" if local else ""),
        cause="machines or containers with the same host name"
        + (
            ". NCCL takes equal name and boot id for one machine: containers of one machine, or NCCL_HOSTID set to "
            "the same value, or a release before 2.5"
            if local
            else ""
        ),
        impact="ranks try to share memory that they do not share: the job fails when it connects"
        if local
        else "none for NCCL, which also looks at the boot id; this report counts them as one host, so that paths "
        "between them are told as paths within it",
        fix=_FIX,
        severity="error" if local else "info",
        confidence="likely",
        ranks=ranks_in(one.said for one in used),
        hosts=[host],
        evidence=[
            *first_said([*(one.said for one in used[:2]), *_unshared(facts)[:1]]),
            *first_lines(local or apart)[:2],
        ],
        fatal=bool(local),
        paths=local,
        open_paths=apart.without(local),  # taken for paths within a host
    )
