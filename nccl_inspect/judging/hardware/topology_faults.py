"""NCCL's errors about a topology that it cannot use, with possible causes: src/graph and src/init.cc."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import entry_for_role
from nccl_inspect.model.job import Notice
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Fault(Frozen):
    """The meaning of a statement, with steps to try before comparing the nodes."""

    what: str
    cause: str
    fix: tuple[str, ...] = ()


_LINKS = (
    "nvidia-smi nvlink -s; nvidia-smi topo -m   # is a link down, or seen from one end only?",
    "dmesg -T | grep -iE 'xid|sxid'; systemctl status nvidia-fabricmanager   # NVLink and NVSwitch errors",
)
_VISIBLE = "ls /sys/class/pci_bus /sys/devices/system/node; nvidia-smi -L   # in the container: are all devices there?"
_MISSING = Fault(
    "this rank's topology lacks a device that another rank or the search expects",
    "the ranks do not see the same GPUs, NICs or hosts, or a link is seen from one end only: containers with only some "
    "of the devices, a topology file of another machine, or a bug in this release",
    (_VISIBLE,),
)
_HOSTS = Fault(
    "NCCL cannot determine which ranks share a host",
    "processes changed after they identified their host (a fork, a namespace), or two machines or containers share an "
    "identity (host name and boot id, or NCCL_HOSTID)",
    (
        "cat /etc/hostname /proc/sys/kernel/random/boot_id   # in each container: does it differ between machines?",
        "unset NCCL_HOSTID   # or set a different value on each machine",
    ),
)
_UNSUITABLE = Fault(
    "NCCL cannot use the topology that it found",
    "the ranks do not see the same GPUs, NICs or hosts, or the topology file is for another machine",
    (_VISIBLE,),
)
_OF_ROLES = {"topology-incomplete": _MISSING, "host-identity": _HOSTS}
_FAULTS = {
    "nccl/topology-reverse-path": Fault(
        "an NVLink is seen from one end only",
        "a link or NVSwitch is broken, a GPU of the board is not visible here, or the release is older than the GPU "
        "and does not support all of its links (Hopper needs 2.15.1, A100 2.7.3)",
        _LINKS,
    ),
    "nccl/nvlink-add-failed": Fault(
        "an NVLink leads to a GPU that is not in the topology",
        "the container or virtual machine has only a part of the board, or the topology file is for another machine",
        (_VISIBLE, *_LINKS),
    ),
    "rccl/rccl-xgmi-missing": Fault(
        "an xGMI link leads to a GPU that is not in the topology",
        "the container or virtual machine has only some of the GPUs, or the topology file is for another machine",
        (
            "rocm-smi --showtopo; ls /dev/dri /sys/class/kfd/kfd/topology/nodes   # in the container: are all GPUs "
            "there?",
        ),
    ),
    "nccl/pci-add-failed": Fault(
        "a PCIe switch is missing from the topology",
        "a container or virtual machine that hides a part of the PCI tree, or a topology file for another machine",
        (_VISIBLE,),
    ),
    "nccl/topology-cpu-unknown": Fault(
        "NCCL cannot determine which CPU the GPUs and NICs belong to",
        "a virtual machine or sandbox that hides /sys or its NUMA nodes, or a topology file without them",
        (_VISIBLE,),
    ),
    "nccl/topology-too-large": Fault(
        "the machine has more devices than this release supports",
        "many PCI devices, virtual functions or NICs, more GPUs than it supports, or a topology file with that many",
        (
            "Install a newer NCCL: later releases raised these limits several times.",
            "NCCL_IB_HCA='=<NICs of the job>'   # limits NCCL to these NICs",
        ),
    ),
    "nccl/topology-fault-31": Fault(
        "the topology that NCCL built contradicts itself",
        "a network plugin that reports impossible properties of its devices, more rails than NCCL supports, or nodes "
        "that differ",
    ),
    "nccl/topology-netmask": Fault(
        "GPUs that should be equivalent see different NICs",
        "releases 2.18.1 and 2.18.3 do not support GPUs of one node that reach different NICs over NVLink",
        ("Install NCCL 2.18.5 or later.", "NCCL_PXN_DISABLE=1   # workaround until then"),
    ),
    "nccl/nvls-nic-missing": Fault(
        "a rank has no NIC in the order for NVLink SHARP",
        "the search did not assign a NIC to every rank of the node: nodes with different GPUs or NICs, or only a part "
        "of a node",
        ("NCCL_NVLS_ENABLE=0   # on all ranks: NCCL then continues without it",),
    ),
    "nccl/multi-rank-limit": Fault(
        "one host has more ranks than this release can check for shared GPUs",
        "releases 2.30.3 and 2.30.4 have a list of limited length; many containers with the same host name also fill "
        "it",
        ("Install NCCL 2.30.7 or later.",),
    ),
}
"""By production. All are WARN lines, and the call that prints them returns an error."""


def fault_of(notice: Notice) -> Fault:
    """Return the fault of the topology that a statement reports."""
    return _FAULTS.get(notice.production) or entry_for_role(notice, _OF_ROLES) or _UNSUITABLE


def finished_init(facts: Facts) -> bool:
    """Return whether ranks finished their initialization all the same."""
    came_up = bool(facts.job.paths) or any(comm.completed for comm in facts.job.communicators)
    return came_up and not facts.job.failed
