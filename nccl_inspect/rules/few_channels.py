"""A communicator has far fewer channels than the links of its machine can serve."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import first_lines, global_ranks, nics_used
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import CommunicatorInfo, Selection

_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "Max CTAs")
"""Settings, and the limit that a program sets in ncclConfig_t."""
_FEW = 4
"""NCCL's number over shared memory; between GPUs on an NVSwitch it uses 24 (A100 to H200, any number of them)."""
_WHOLE = 8
"""GPUs of the machines that have GPUDirect RDMA on EFA, except the smallest."""
_BOARD = 8
"""This many GPUs that are all connected to each other have an NVSwitch."""
_LINKS = 12
"""Links of an A100; a GPU with all its links to every other GPU is on an NVSwitch."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators on one host by their NVLinks, those over whole nodes by the number of NICs."""
    if facts.user_settings(*_LIMITS):
        return  # channel-limit-by-env judges settings, and the program's own limit is intended
    unknown: list[Hit] = []
    for comm in facts.job.communicators:
        paths = facts.paths_of(comm)
        if comm.channels is None or comm.nranks < 2 or not paths:
            continue
        named = {"channels": comm.channels, "comm": comm.id, "machine": facts.platform.name if facts.platform else ""}
        hit = Hit([], named, ranks=global_ranks(comm, range(comm.nranks)), hosts=comm.hosts)
        lines = [*comm.layout.channels(), *comm.evidence[:2]]
        switched = _is_on_nvswitch(facts, comm, paths)
        if switched is None:
            unknown.append(Hit(named={**named, "unknown link": True}))
        elif switched or (nics := None if _is_local(comm) else _nics(facts, comm, paths)):
            named["nics"] = 0 if switched else nics
            yield hit.with_fields(paths=paths, evidence=[*lines, *first_lines(paths)[:2]])
            return
        elif shared := None if _is_local(comm) else _one_nic(facts, comm, paths):
            yield hit.with_fields(known=("one NIC",), evidence=[*lines, *first_lines(shared)[:2]])
            return
    yield from unknown[:1]


def _is_local(comm: CommunicatorInfo) -> bool:
    return len(comm.hosts) == 1 and comm.nnodes in (None, 1)


def _is_on_nvswitch(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> bool | None:
    """Whether the few channels of a communicator on one host are between GPUs on an NVSwitch; None if unknown."""
    if not _is_local(comm) or (comm.channels or 0) > _FEW or any(kind.transport != "P2P" for kind in paths.kinds):
        return False
    classes = [kind.pair_class for kind in paths.kinds]
    if all(classes):
        return all(name is not None and name[2:].isdigit() and int(name[2:]) >= _LINKS for name in classes)
    machine = facts.platform
    if machine is None or (machine.nvlink is None and machine.nvlink_pairs is None):
        return None
    if not machine.nvlink:
        return False
    return None if machine.gpus is None else machine.gpus >= _BOARD


def _nics(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> int | None:
    """Return the network devices of a node, if whole nodes have fewer channels than that.

    Plugins merge the NICs of one GPU into one device, so there are at most as many devices as GPUs.
    """
    machine = facts.platform
    if machine is None or machine.nics is None or machine.gpus is None or comm.channels is None:
        return None
    whole = comm.local_ranks == machine.gpus
    net = paths.where(lambda kind: kind.transport == "NET")
    slow = any(kind.net == "Socket" or kind.transport == "SHM" for kind in paths.kinds)
    devices = min(machine.nics, machine.gpus)
    return devices if whole and net and not slow and comm.channels < devices else None


def _one_nic(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> Selection | None:
    """Return paths over EFA that share one NIC of each host, on instance types that have four or more.

    Those with GPUDirect RDMA and eight GPUs connected by P2P are p4d and later.
    """
    if facts.platform or (comm.channels or 0) > _FEW:
        return None
    net = paths.where(lambda kind: kind.transport == "NET")
    on_efa = net and all("Libfabric" in (kind.net or "") and kind.gdr is True for kind in net.kinds)
    local = paths.where(lambda kind: kind.scope == "intra" and kind.transport == "P2P")
    if not on_efa or not local or slingshot.signs(facts):
        return None
    members = set(comm.ranks)
    gpus = [len(members.intersection(host.ranks)) for host in facts.job.hosts if host.ranks]
    is_whole = min(gpus, default=0) >= _WHOLE
    return net if is_whole and all(len(nics) == 1 for nics in nics_used(net).values()) else None
