"""The table of machine faults and the findings that they explain.

If a file shows a fault on a host of a finding that it explains, the finding takes its words, its fix and its line. If
the log shows no effect, most faults are ignored; those that are sure to affect NCCL become clues of the rule that the
fault names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.judging.evidence import machines
from nccl_inspect.judging.evidence.machines import GIB, Finder, Sighting, cards_in_use, items
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.remedies import EFA_IN_POD, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.machine import Item

# Counters of NICs in two files: they only grow, so the values show which file is later

LINK = re.compile(
    r"link_downed|link_error_recovery|port_rcv_errors|local_link_integrity_errors|excessive_buffer_overrun_errors"
    r"|link_down_events_phy|rx_crc_errors_phy"
)
"""Counters of a bad cable, transceiver or remote port."""
LOSS = re.compile(
    r"local_ack_timeout_err|packet_seq_err|out_of_sequence|implied_nak_seq_err|rnr_nak_retry_err|rx_icrc_encapsulated"
    r"|[rt]x_discards_phy|port_xmit_discards|rx_drops|retrans_timeout_events|unresponsive_remote_events"
    r"|impaired_remote_conn_events"
)
"""Counters of lost packets: congestion, RoCE without PFC or ECN, a bad link elsewhere."""
_Place = tuple[str | None, str, str]
_Values: TypeAlias = "dict[str, dict[str, Item]]"


def grown(which: re.Pattern[str]) -> Finder:
    """NICs with such counters that grew from one file to the other."""

    def find(facts: Facts) -> Iterator[Sighting]:
        cards = cards_in_use(facts)
        for (host, card, _), files in _by_card(facts).items():
            in_use = cards.get(host or "")
            if len(files) < 2 or (in_use and card and card not in in_use and not card.startswith(("eth", "en", "ib"))):
                continue
            ordered = sorted(files.items(), key=lambda entry: sum(item.values["value"] for item in entry[1].values()))
            (_, first), (name, last) = ordered[0], ordered[-1]
            grew = {
                counter: (item, item.values["value"] - first[counter].values["value"])
                for counter, item in last.items()
                if counter in first
            }
            if any(change < 0 for _, change in grew.values()):
                continue  # reset in between
            bad = {counter: (item, by) for counter, (item, by) in grew.items() if by and which.fullmatch(counter)}
            if bad:
                item, by = next(iter(bad.values()))
                words = list_words([f"{counter} by {change}" for counter, (_, change) in bad.items()], limit=3)
                text = f"{item.text} ({item.values['value'] - by} before)"
                yield Sighting(
                    f"{card or 'a NIC'} counted errors ({words})", host, Evidence(name, item.line, text), card
                )

    return find


@once
def _by_card(facts: Facts) -> dict[_Place, _Values]:
    """Return the counters of each port of a card, by file and name."""
    counters: dict[_Place, _Values] = {}
    for name, item in items(facts, "counter"):
        file = counters.setdefault((item.host, item.name, item.values["port"]), {}).setdefault(name, {})
        file.setdefault(item.values["counter"], item)
    return counters


# The table

CERTAIN, LIKELY = "certain", "likely"
_TRANSFERS = (
    "ib-timeout-err12",
    "ib-completion-error",
    "nic-failed",
    "ib-async-event",
    "transfer-failed",
    "ib-call-failed",
)
"""Findings of a faulty NIC or link."""
_FEWER_NICS = (
    *("socket-instead-of-ib", "socket-instead-of-rdma", "network-not-found", "nic-asymmetry", "nic-unused"),
    *("mixed-networks", "ib-bad-device"),
)
_GPU_FAILED = ("gpu-hardware-error", "cuda-failure-in-launch", "cuda-call-failed", "unhandled-cuda-error")
_NO_NVLINK = ("nvlink-not-used", "shm-instead-of-p2p", "p2p-disabled-driver", "nvls-fabric-manager", "bandwidth-low")


@frozen
class Fault(Frozen):
    """A possible fault of a machine."""

    find: Finder
    explains: Mapping[str, str]
    """Rules whose findings it explains, each with the confidence."""
    fix: tuple[str, ...]
    where_it_hurts: bool = True
    """Whether only hosts of the finding count; otherwise any host, such as the other end of a transfer."""
    unless: str = ""
    """A pattern in the lines of findings that have another reason."""
    against: Finder | None = None
    """Finds evidence against the fault."""
    clue: str = ""
    """The rule that reports it if it explains no finding; empty for none."""
    costs: str = ""
    """The impact, for a clue."""


def _confidence_by_rule(*groups: tuple[tuple[str, ...], str]) -> dict[str, str]:
    return {rule: confidence for rules, confidence in groups for rule in rules}


_LINK_FIX = (
    "mlxlink -d <NIC> -m -e; ibstat <NIC>   # cable and transceiver; then reseat or replace them, or use another port",
    "Take the host out of the job until the port is sound: kubectl cordon <node>.",
)
_BAD_GPU_FIX = (
    "nvidia-smi -r   # reset the GPU, or reboot: pending repairs are made then",
    "dcgmi diag -r 3   # if it comes back: drain the host and replace the GPU",
)
_NVLINK_FIX = (
    "systemctl status nvidia-fabricmanager; dmesg -T | grep -iE 'xid|sxid'   # on that host",
    "nvidia-smi -r   # reset all GPUs of the host, or reboot; links that stay inactive: replace the GPU or the board",
)

FAULTS = (
    Fault(
        machines.ports_down,
        _confidence_by_rule(
            (_TRANSFERS, CERTAIN), (("collective-unfinished", "bandwidth-low", "ib-gid-index"), LIKELY)
        ),
        _LINK_FIX,
        where_it_hurts=False,
        clue="nic-link-bad",
        costs="NCCL chose this port when the job started: transfers over it fail, and with them the job",
    ),
    Fault(
        machines.ports_missing,
        _confidence_by_rule((_FEWER_NICS, CERTAIN)),
        (
            "ip link set <interface> up; opensm or the fabric's subnet manager   # RoCE; InfiniBand in state Init",
            *_LINK_FIX,
        ),
    ),
    Fault(
        machines.ports_slow,
        _confidence_by_rule((("bandwidth-low", "nic-asymmetry", "straggler"), LIKELY)),
        _LINK_FIX,
        clue="nic-link-bad",
        costs="the slowest NIC sets the pace of every collective that crosses hosts",
    ),
    Fault(
        machines.gids_missing,
        _confidence_by_rule((("ib-gid-index",), CERTAIN), (("ib-timeout-err12",), LIKELY)),
        ("show_gids   # a row with v2 and an IPv4 address? None: ip addr add <address> dev <interface>",),
    ),
    Fault(
        grown(LINK),
        _confidence_by_rule((_TRANSFERS, LIKELY), (("bandwidth-low", "collective-unfinished"), LIKELY)),
        _LINK_FIX,
        where_it_hurts=False,
    ),
    Fault(
        grown(LOSS),
        _confidence_by_rule((_TRANSFERS, LIKELY), (("bandwidth-low", "efa-completion-error"), LIKELY)),
        ("ethtool -S <interface> | grep -iE 'pause|discard'   # RoCE, both ends; PFC, ECN: mlnx_qos -i <interface>",),
        where_it_hurts=False,
    ),
    Fault(
        machines.not_loaded("nvidia_peermem", "nv_peer_mem"),
        _confidence_by_rule((("gdr-disabled", "gdr-one-sided"), LIKELY)),
        ("modprobe nvidia-peermem   # and: echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf",),
        against=machines.present("module", "nvidia_peermem", "nv_peer_mem"),
    ),
    Fault(
        machines.not_loaded("gdrdrv"),
        _confidence_by_rule((("gdrcopy-failed",), CERTAIN)),
        ("modprobe gdrdrv   # on the host; it comes with GDRCopy",),
        against=machines.present("module", "gdrdrv"),
    ),
    Fault(
        machines.not_loaded("efa"),
        _confidence_by_rule(
            (("socket-instead-of-efa", "efa-provider-missing", "efa-init-failed", "network-not-found"), CERTAIN)
        ),
        ("modprobe efa; ls /sys/class/infiniband   # on the host; the EFA installer brings it",),
        against=machines.present("module", "efa"),
    ),
    Fault(
        machines.not_loaded("ib_uverbs"),
        _confidence_by_rule((("socket-instead-of-ib", "network-not-found"), CERTAIN)),
        ("modprobe -a ib_uverbs mlx5_ib   # on the host; MLNX_OFED or rdma-core bring them",),
    ),
    Fault(
        machines.no_provider("efa"),
        _confidence_by_rule((("socket-instead-of-efa", "efa-provider-missing", "efa-init-failed"), CERTAIN)),
        (EFA_IN_POD, "lsmod | grep ^efa; ls /dev/infiniband   # driver on the node, devices in the container"),
        against=machines.present("provider", "efa"),
    ),
    Fault(
        machines.limit_below("memlock", GIB, 1024, "the limit on locked memory (memlock) is {} KiB"),
        _confidence_by_rule((("ib-memlock",), CERTAIN), (("memory-registration-failed", "efa-init-failed"), LIKELY)),
        (RDMA_IN_DOCKER, LOCKED_MEMORY_IN_POD, "LimitMEMLOCK=infinity   # systemd unit of slurmd or containerd"),
        against=machines.no_limit("memlock", "there is no limit on locked memory (memlock)"),
    ),
    Fault(
        machines.limit_below("nofile", 1 << 16, 1, "the limit on open files (nofile) is {}"),
        _confidence_by_rule((("open-files-limit",), CERTAIN)),
        ("ulimit -n 1048576   # before the program starts; or LimitNOFILE in the unit of slurmd or containerd",),
    ),
    Fault(
        machines.limit_below("nproc", 1 << 14, 1, "the limit on processes and threads (nproc) is {}"),
        _confidence_by_rule((("process-limit",), CERTAIN)),
        ("ulimit -u unlimited   # before the program starts; or LimitNPROC, and pids_limit of the container",),
    ),
    Fault(
        machines.shared_memory(is_small=True),
        _confidence_by_rule((("shm-segment-failed", "shm-attach-failed"), CERTAIN)),
        (),
        against=machines.shared_memory(is_small=False),
        unless=r"error: (?!No space left on device)",
    ),
    Fault(
        machines.gpu_values(
            "Fabric/State",
            bad=lambda value: value not in ("Completed", "N/A"),
            words="fabric state of {gpu} is {value}",
        ),
        _confidence_by_rule(
            (("fabric-manager-down", "nvls-fabric-manager", "p2p-nvlink-fault"), CERTAIN),
            (("cuda-init-error", "nvlink-not-used"), LIKELY),
        ),
        ("systemctl restart nvidia-fabricmanager   # its release must be that of the driver",),
    ),
    Fault(
        machines.nvlinks_down,
        _confidence_by_rule((("p2p-nvlink-fault",), CERTAIN), ((*_NO_NVLINK, "straggler"), LIKELY)),
        _NVLINK_FIX,
        clue="gpu-degraded",
        costs="rings and trees over this GPU have less bandwidth, and they set the pace of all ranks",
    ),
    Fault(
        machines.nvlinks_off,
        _confidence_by_rule((("nvlink-not-used", "p2p-nvlink-fault"), CERTAIN), (_NO_NVLINK[1:], LIKELY)),
        _NVLINK_FIX,
    ),
    Fault(
        machines.nvlink_errors,
        _confidence_by_rule((("p2p-nvlink-fault", "gpu-hardware-error", "bandwidth-low"), LIKELY)),
        _NVLINK_FIX,
    ),
    Fault(
        machines.gpu_values(
            *("Remapped Rows/Pending", "Remapped Rows/Remapping Failure Occurred"),
            *("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending"),
            bad=lambda value: value == "Yes",
            words="memory of GPU {gpu} is broken ({key}: {value})",
        ),
        _confidence_by_rule((_GPU_FAILED, CERTAIN), (("wrong-results",), LIKELY)),
        _BAD_GPU_FIX,
    ),
    Fault(
        machines.gpu_values(
            *("Volatile/DRAM Uncorrectable", "Volatile/SRAM Uncorrectable", "Volatile/Double Bit/Total"),
            *("Volatile/SRAM Uncorrectable Parity", "Volatile/SRAM Uncorrectable SEC-DED"),
            bad=lambda value: value.isdigit() and int(value) > 0,
            words="GPU {gpu} counts memory errors that ECC cannot correct ({key}: {value})",
        ),
        _confidence_by_rule((_GPU_FAILED, CERTAIN), (("wrong-results",), LIKELY)),
        _BAD_GPU_FIX,
    ),
    Fault(
        machines.gpu_values(
            *("Reasons/HW Slowdown/HW Thermal Slowdown", "Reasons/HW Slowdown/HW Power Brake Slowdown"),
            *("Reasons/HW Thermal Slowdown", "Reasons/HW Power Brake Slowdown", "Reasons/SW Thermal Slowdown"),
            bad=lambda value: value == "Active",
            words="GPU {gpu} is held down ({key})",
        ),
        _confidence_by_rule((("bandwidth-low", "straggler"), LIKELY)),
        ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER   # fans, air and power supply of that host",),
    ),
    Fault(
        machines.pcie_narrow,
        _confidence_by_rule((("bandwidth-low", "straggler"), LIKELY)),
        ("sudo lspci -vv -s <busId> | grep LnkSta   # reseat the card; a riser or slot that is broken",),
        clue="gpu-degraded",
        costs="data between this GPU and NICs or the host moves more slowly than on the others",
    ),
)
