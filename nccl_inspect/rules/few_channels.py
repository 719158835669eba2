"""A communicator has far fewer channels than the links of its machine can serve."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, global_ranks, nics_used
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import CommunicatorInfo, Path
from nccl_inspect.util.wording import count

RULE = Rule(
    name="few-channels",
    category="topology",
    severity="warning",
    title="Fewer channels than NVLink or the NICs can serve",
    causes=("bandwidth-low",),
)
_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "Max CTAs")
"""Settings, and what a program asks for with ncclConfig_t."""
_FEW = 4
"""What NCCL takes over shared memory; between GPUs on an NVSwitch it takes 24 (A100 to H200, any number of them)."""
_WHOLE = 8
"""GPUs of the machines that have GPUDirect RDMA on EFA, but for the smallest."""
_BOARD = 8
"""So many GPUs that are all joined to each other have an NVSwitch."""
_LINKS = 12
"""Links of an A100; a GPU with all its links to every other is on an NVSwitch."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge communicators on one host by their NVLink, those over whole nodes by the number of NICs."""
    if facts.chosen(*_LIMITS):
        return  # channel-limit-by-env judges that, and the program's own limit was meant
    unknown = []
    for comm in facts.job.communicators:
        paths = facts.paths_of(comm)
        if comm.channels is None or comm.nranks < 2 or not paths:
            continue
        if len(comm.hosts) == 1 and comm.nnodes in (None, 1):
            if comm.channels > _FEW or any(path.transport != "P2P" for path in paths):
                continue
            switched = _switched(facts, paths)
            if switched is None:
                unknown.append(comm)
            elif switched:
                yield _finding(facts, comm, paths, "24 are usual between GPUs on an NVSwitch")
                return
        elif found := _between_hosts(facts, comm, paths):
            yield found
            return
    if unknown:
        yield RULE.undecided(
            f"{count(unknown[0].channels or 0, 'channel')} in communicator {unknown[0].id}: few for NVLink, usual "
            "for PCIe; which of them joins the GPUs is not in the log",
            Needs(platform=True, topology=True),
        )


def _between_hosts(facts: Facts, comm: CommunicatorInfo, paths: list[Path]) -> Finding | None:
    if expected := _nics(facts, comm, paths):
        return _finding(facts, comm, paths, f"less than the {expected} NICs that each node has for its GPUs")
    one = _one_nic(facts, comm, paths)
    return _clue(comm, one) if one else None


def _switched(facts: Facts, paths: list[Path]) -> bool | None:
    """Whether the GPUs are on an NVSwitch; None when nothing tells."""
    classes = [facts.pair_class(path) for path in paths]
    if all(classes):
        return all(name is not None and name[2:].isdigit() and int(name[2:]) >= _LINKS for name in classes)
    machine = facts.platform
    if machine is None or (machine.nvlink is None and machine.nvlink_pairs is None):
        return None
    if not machine.nvlink:
        return False
    return None if machine.gpus is None else machine.gpus >= _BOARD


def _nics(facts: Facts, comm: CommunicatorInfo, paths: list[Path]) -> int | None:
    """The network devices of a node when the channels of whole nodes do not even give each of them one.

    A plugin joins the NICs of one GPU to one device, so there are at most as many devices as GPUs.
    """
    machine = facts.platform
    if machine is None or machine.nics is None or machine.gpus is None or comm.channels is None:
        return None
    whole = comm.local_ranks == machine.gpus
    net = [path for path in paths if path.transport == "NET"]
    slow = any(path.net == "Socket" for path in net) or any(path.transport == "SHM" for path in paths)
    devices = min(machine.nics, machine.gpus)
    return devices if whole and net and not slow and comm.channels < devices else None


def _one_nic(facts: Facts, comm: CommunicatorInfo, paths: list[Path]) -> list[Path]:
    """Paths over EFA that share one NIC of each host, where instance types that can do so have four and more.

    Those with GPUDirect RDMA and eight GPUs that reach each other by P2P are p4d and later.
    """
    net = [path for path in paths if path.transport == "NET"]
    local = [path for path in paths if path.scope == "intra" and path.transport == "P2P"]
    on_efa = net and all("Libfabric" in (path.net or "") and path.gdr is True for path in net)
    members = set(comm.ranks) if on_efa else set()
    gpus = [len(members.intersection(host.ranks)) for host in facts.job.hosts if host.ranks]
    if facts.platform or not on_efa or slingshot.signs(facts) or not local or min(gpus, default=0) < _WHOLE:
        return []
    few = comm.channels is not None and comm.channels <= _FEW
    return net if few and all(len(nics) == 1 for nics in nics_used(net).values()) else []


def _clue(comm: CommunicatorInfo, net: list[Path]) -> Finding:
    return RULE.clue(
        f"{count(comm.channels or 0, 'channel')} in communicator {comm.id}, all over one NIC of each host",
        cause="NCCL sees one NIC: instance types with EFA, GPUDirect RDMA and 8 GPUs have 4 or more, and the container "
        "or the instance was given one",
        impact="bandwidth between hosts is that of one NIC",
        fix=[
            EFA_CHECK,
            EFA_IN_POD,
            "aws ec2 describe-instances --instance-ids <id> --query "
            "'Reservations[].Instances[].NetworkInterfaces[].InterfaceType'   # how many interfaces are efa?",
        ],
        confirm="Look for 'Selected provider is efa … (found n nics)', or name the machine with --platform.",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout_lines.channels, *comm.evidence[:2], *first_lines(net)[:2]],
    )


def _finding(facts: Facts, comm: CommunicatorInfo, paths: list[Path], against: str) -> Finding:
    machine = f" of {facts.platform.name}" if facts.platform else ""
    return RULE.finding(
        f"{count(comm.channels or 0, 'channel')} in communicator {comm.id}: {against}",
        cause="unknown from this log; likely: "
        f"the search saw fewer links than the hardware{machine} has (NICs or GPUs that the "
        "container does not see, a topology file or a virtual machine that hides them), or the program asked for "
        "few (ncclConfig_t maxCTAs)",
        impact="bandwidth grows with the number of channels until the links are full; the loss is not in the log",
        fix=[
            "nvidia-smi topo -m; ls /dev/infiniband   # inside the container: all GPUs and NICs there?",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH   # shows what the search found",
            "all_reduce_perf -b 8 -e 4G -f 2 -g 8   # nccl-tests: compare with the bare machine",
        ],
        confidence="likely",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout_lines.channels, *comm.evidence[:2], *first_lines(paths)[:2]],
        paths=paths,
    )
