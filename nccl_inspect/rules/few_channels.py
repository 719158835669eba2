"""A communicator has far fewer channels than the links of its machine can serve."""

from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.facts import first_lines, global_ranks, nics_used
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD
from nccl_inspect.model.job import CommunicatorInfo, Selection
from nccl_inspect.util.wording import count

RULE = Rule(
    name="few-channels",
    category="topology",
    severity="warning",
    title="Fewer channels than NVLink or the NICs can serve",
    may_cause=("slow",),
    nest_under_effect=True,
    shows=("few-channels",),
)
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


def judge(facts: Facts) -> Results:
    """Judge communicators on one host by their NVLinks, those over whole nodes by the number of NICs."""
    if facts.user_settings(*_LIMITS):
        return  # channel-limit-by-env judges settings, and the program's own limit is intended
    unknown = []
    for comm in facts.job.communicators:
        paths = facts.paths_of(comm)
        if comm.channels is None or comm.nranks < 2 or not paths:
            continue
        if len(comm.hosts) == 1 and comm.nnodes in (None, 1):
            if comm.channels > _FEW or any(kind.transport != "P2P" for kind in paths.kinds):
                continue
            switched = _is_on_nvswitch(facts, paths)
            if switched is None:
                unknown.append(comm)
            elif switched:
                yield _finding(facts, comm, paths, "24 are usual between GPUs on an NVSwitch")
                return
        elif finding := _between_hosts(facts, comm, paths):
            yield finding
            return
    if unknown:
        yield RULE.undecided(
            f"{count(unknown[0].channels or 0, 'channel')} in communicator {unknown[0].id}: few for NVLink, usual "
            "for PCIe; the log does not show which of them connects the GPUs",
            Needs(platform=True, topology=True),
        )


def _between_hosts(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> Finding | None:
    if expected := _nics(facts, comm, paths):
        return _finding(facts, comm, paths, f"fewer than the {expected} NICs that each node has for its GPUs")
    shared = _one_nic(facts, comm, paths)
    return _clue(comm, shared) if shared else None


def _is_on_nvswitch(facts: Facts, paths: Selection) -> bool | None:
    """Whether the GPUs are on an NVSwitch; None if unknown."""
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
    """The network devices of a node, if whole nodes have fewer channels than that.

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
    """Paths over EFA that share one NIC of each host, on instance types that have four or more.

    Those with GPUDirect RDMA and eight GPUs connected by P2P are p4d and later.
    """
    if facts.platform or comm.channels is None or comm.channels > _FEW:
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


def _clue(comm: CommunicatorInfo, net: Selection) -> Finding:
    return RULE.clue(
        f"{count(comm.channels or 0, 'channel')} in communicator {comm.id}, all over one NIC of each host",
        cause="NCCL sees one NIC: instance types with EFA, GPUDirect RDMA and 8 GPUs have 4 or more, but the container "
        "or the instance has only one",
        impact="bandwidth between hosts is limited to that of one NIC",
        fix=[
            EFA_CHECK,
            EFA_IN_POD,
            "aws ec2 describe-instances --instance-ids <id> --query "
            "'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'   # how many interfaces are efa?",
        ],
        confirm="Look for 'Selected provider is efa … (found n nics)', or name the machine with --platform.",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout.channels(), *comm.evidence[:2], *first_lines(net)[:2]],
    )


def _finding(facts: Facts, comm: CommunicatorInfo, paths: Selection, comparison: str) -> Finding:
    machine = f" of {facts.platform.name}" if facts.platform else ""
    return RULE.finding(
        f"{count(comm.channels or 0, 'channel')} in communicator {comm.id}: {comparison}",
        cause="unknown from this log; likely: "
        f"NCCL's topology search saw fewer links than the hardware{machine} has (NICs or GPUs that the container "
        "does not see, a topology file or a virtual machine that hides them), or the program requested few "
        "(ncclConfig_t maxCTAs)",
        impact="bandwidth grows with the number of channels until the links are full; the log does not show the loss",
        fix=[
            "nvidia-smi topo -m; ls /dev/infiniband   # inside the container: are all GPUs and NICs there?",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH   # shows what the search found",
            "all_reduce_perf -b 8 -e 4G -f 2 -g 8   # nccl-tests: compare with the bare machine",
        ],
        confidence="likely",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout.channels(), *comm.evidence[:2], *first_lines(paths)[:2]],
        paths=paths,
    )
