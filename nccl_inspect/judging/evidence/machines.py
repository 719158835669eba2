"""Faults in files from machines that concern the job: ports, modules, limits, GPUs.

Each function finds sightings of one kind. :data:`FAULTS` has the findings that they explain: if a file shows a fault on
a host of such a finding, the finding takes its words, its fix and its line. If the log shows no effect, most faults are
ignored; those that are sure to affect NCCL become clues of the rule that the fault names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.artifacts.machine import Item, Report, number
from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.remedies import EFA_IN_POD, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.topology import bus_number
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.machine import Item


MIB, GIB = 1 << 20, 1 << 30
_UP = {"ACTIVE", ""}
_LINKED = {"LINKUP", ""}
_FEWEST_INODES = 16
"""Files that a rank may have to create."""
_SHM = "/dev/shm"  # noqa: S108 - it is not opened


@frozen
class Sighting(Frozen):
    """A fault seen on a machine."""

    words: str
    """The fault, for the middle of a sentence."""
    host: str | None
    """None if the host of the file is unknown."""
    evidence: Evidence
    part: str = ""
    """The name of the NIC concerned, if any: statements about other NICs are unrelated."""
    ranks: tuple[int, ...] = ()
    """The ranks that use the GPU concerned, if any."""
    is_in_use: bool = True
    """Whether the job is known to use the NIC: otherwise it only counts if a line names it."""


Finder = Callable[[Facts], Iterator[Sighting]]


def items(facts: Facts, *parts: str) -> list[tuple[str, Item]]:
    """Return the items of such parts, with the names of their files."""
    return [(name, item) for part in parts for name, item in _by_part(facts).get(part, ())]


@once
def _by_part(facts: Facts) -> dict[str, list[tuple[str, Item]]]:
    reports = [(one.name, one.value) for one in facts.job.artifacts if isinstance(one.value, Report)]
    return group_values((item.part, (name, item)) for name, report in reports for item in report.items)


def sighting(name: str, item: Item, words: str, part: str = "", ranks: Iterable[int] = ()) -> Sighting:
    """Create a sighting from an item of a file.

    Args:
        name: of the file.
        item: of the file.
        words: the fault, without the host.
        part: the NIC concerned.
        ranks: that use the part.
    """
    return Sighting(words, item.host, Evidence(name, item.line, item.text), part, tuple(ranks))


@once
def cards_in_use(facts: Facts) -> dict[str, set[str]]:
    """Return the InfiniBand and RoCE cards that NCCL lists on each host."""
    by_host: dict[str, set[str]] = {}
    for notice in facts.with_event(NetDevices, lambda event: event.net == "IB"):
        names = {str(device[1]) for device in getattr(notice.event, "devices", ()) if len(device) > 1}
        for host in notice.hosts:
            by_host.setdefault(host, set()).update(part for name in names for part in name.split("+"))
    return by_host


def all_cards(facts: Facts) -> set[str]:
    """Return all cards named in the log or a file."""
    names = {item.name for _, item in items(facts, "port", "gid", "counter") if item.name}
    return names.union(*cards_in_use(facts).values())


def _is_down(item: Item) -> bool:
    return item.values.get("state", "") not in _UP or item.values.get("physical", "") not in _LINKED


def ports_down(facts: Facts) -> Iterator[Sighting]:
    """Ports that NCCL listed at the start and that are down now; all that are down if the log has no list."""
    in_use = cards_in_use(facts)
    for name, item in items(facts, "port"):
        listed = in_use.get(item.host or "")
        if _is_down(item) and (listed is None or item.name in listed):
            seen = sighting(name, item, _state(item), item.name)
            yield replace(seen, is_in_use=listed is not None)


def ports_missing(facts: Facts) -> Iterator[Sighting]:
    """Ports that are down and that NCCL does not list, if other hosts list them or all ports of the host are down."""
    in_use = cards_in_use(facts)
    elsewhere = {card for names in in_use.values() for card in names}
    ports = items(facts, "port")
    alive = {item.host for _, item in ports if not _is_down(item)}
    for name, item in ports:
        own = in_use.get(item.host or "", set())
        if _is_down(item) and item.name not in own and (item.name in elsewhere or item.host not in alive):
            yield sighting(name, item, _state(item))


def _state(item: Item) -> str:
    physical = str(item.values.get("physical", ""))
    state = str(item.values.get("state", "")).capitalize()
    more = "" if physical in _LINKED else f" (physical state {physical.capitalize()})"
    return f"{item.name} port {item.values['port']} is {state}{more}"


def ports_slow(facts: Facts) -> Iterator[Sighting]:
    """Ports in use with a lower rate than most of their kind."""
    in_use = cards_in_use(facts)
    used = [
        (name, item)
        for name, item in items(facts, "port")
        if not _is_down(item) and item.values.get("rate") and item.name in in_use.get(item.host or "", ())
    ]
    for name, item, usual in _find_lower(
        used, lambda item: (item.values.get("model"), item.values.get("layer")), "rate"
    ):
        words = f"{item.name} runs at {item.values['rate']:g} Gb/s, and others of its kind at {usual:g}"
        yield sighting(name, item, words, item.name)


def _find_lower(
    entries: Sequence[tuple[str, Item]], kind: Callable[[Item], object], key: str
) -> Iterator[tuple[str, Item, float]]:
    """Yield items with a lower value than most of their kind, with the value of these."""
    groups: dict[object, Counter[float]] = {}
    for _, item in entries:
        groups.setdefault(kind(item), Counter())[item.values[key]] += 1
    for name, item in entries:
        counts = groups[kind(item)]
        usual, number = max(counts.items(), key=lambda entry: (entry[1], entry[0]))
        if item.values[key] < usual and counts[item.values[key]] < number:
            yield name, item, usual


def gids_missing(facts: Facts) -> Iterator[Sighting]:
    """Yield NICs in use without RoCE v2 and an IPv4 address in the configured row of the GID table, else in any row."""
    chosen = {s.value for s in facts.user_settings("NCCL_IB_GID_INDEX") if s.value.isdigit()}
    index = int(chosen.pop()) if len(chosen) == 1 else None
    in_use = cards_in_use(facts)
    rows = group_values(
        ((name, item.host, item.name, item.values["port"]), item)
        for name, item in items(facts, "gid")
        if not in_use.get(item.host or "") or item.name in in_use[item.host or ""]
    )
    for (name, _, card, _), table in rows.items():
        good = [row.values["index"] for row in table if row.values["ipv4"] and row.values["version"] in ("v2", "v2.0")]
        wrong = next((row for row in table if row.values["index"] == index), table[0])
        advice = f"; rows {', '.join(map(str, good))} are" if good else "; no row is"
        if index is not None and index not in good:
            words = f"row {index} of the GID table of {card} is not RoCE v2 with an IPv4 address{advice}"
            yield sighting(name, wrong, words, card)
        elif index is None and not good:
            yield sighting(name, wrong, f"the GID table of {card} has no row of RoCE v2 with an IPv4 address", card)


def not_loaded(*modules: str) -> Finder:
    """Return hosts without any of these kernel modules."""
    return _absent("module", modules, f"the kernel module {modules[0]} is not loaded")


def no_provider(*providers: str) -> Finder:
    """Return hosts where libfabric has none of these providers."""
    return _absent("provider", providers, f"fi_info shows no provider {providers[0]}")


def _absent(part: str, wanted: Sequence[str], words: str) -> Finder:
    def find(facts: Facts) -> Iterator[Sighting]:
        present = {(name, item.host) for name, item in items(facts, part) if item.name in wanted}
        for name, item in items(facts, "list"):
            if item.name == part and (name, item.host) not in present:
                yield sighting(name, replace(item, text=f"{item.text}; no {part} {' or '.join(wanted)}"), words)

    return find


def present(part: str, *wanted: str) -> Finder:
    """Yield hosts with one of these modules or providers."""

    def find(facts: Facts) -> Iterator[Sighting]:
        for name, item in items(facts, part):
            if item.name in wanted:
                yield sighting(name, item, f"the {part} {item.name} is present")

    return find


def no_limit(limit: str, words: str) -> Finder:
    """Yield hosts without this limit."""

    def find(facts: Facts) -> Iterator[Sighting]:
        for name, item in items(facts, "limit"):
            if item.name == limit and item.values["value"] is None:
                yield sighting(name, item, words)

    return find


def limit_below(limit: str, least: int, unit: int, shown: str) -> Finder:
    """Yield hosts with a limit that is too low.

    Args:
        limit: its name.
        least: the lowest acceptable value.
        unit: divides the value in the text.
        shown: the text, with ``{}`` for the value.
    """

    def find(facts: Facts) -> Iterator[Sighting]:
        for name, item in items(facts, "limit"):
            value = item.values["value"]
            if item.name == limit and value is not None and value < least:
                yield sighting(name, item, shown.format(value // unit))

    return find


def shared_memory(is_small: bool) -> Finder:
    """Yield hosts and containers whose /dev/shm is small or full, or else has room."""

    def find(facts: Facts) -> Iterator[Sighting]:
        inodes = [(name, item) for name, item in items(facts, "inodes") if item.name == _SHM]
        # Some file systems do not count them.
        without = [(n, one) for n, one in inodes if one.values["size"] and one.values["free"] < _FEWEST_INODES]
        for name, item in without if is_small else ():
            yield sighting(name, item, f"{_SHM} has {item.values['free']} of {item.values['size']:,} inodes free")
        full = {item.host for _, item in without}
        for name, item in items(facts, "filesystem"):
            size, free = item.values["size"], item.values["free"]
            if item.host in full:
                continue
            if item.name == _SHM and (size < GIB or free < 64 * MIB) == is_small:
                yield sighting(name, item, f"{_SHM} has {_size(size)}, {_size(free)} of it free")

    return find


def _size(size: int) -> str:
    return f"{size / GIB:.3g} GiB" if size >= GIB else f"{size / MIB:.3g} MiB"


def rank_of(facts: Facts, host: str | None, bus_id: str | None, index: int | None) -> tuple[int, ...]:
    """Return the ranks on a host that use a GPU, given by its bus id or else its index."""
    on_host = _ranks_by_host(facts).get(host or "", [])
    wanted = bus_number(_with_function(bus_id)) if bus_id else None
    ranks = []
    for rank in sorted(on_host):
        gpu = facts.job.gpus.get(rank)
        by_bus = gpu and gpu.bus_id and wanted is not None and bus_number(_with_function(gpu.bus_id)) == wanted
        by_index = gpu and wanted is None and index is not None and gpu.nvml_dev == index
        if by_bus or by_index:
            ranks.append(rank)
    return tuple(ranks)


@once
def _ranks_by_host(facts: Facts) -> dict[str, list[int]]:
    return {host.name: host.ranks for host in facts.job.hosts}


def _with_function(bus_id: str) -> str:
    """Return a bus id with its function, which an Xid omits: ``0000:18:00`` is ``0000:18:00.0``."""
    return bus_id if bus_id.count(".") or bus_id.count(":") == 0 else f"{bus_id}.0"


def gpu_values(*paths: str, bad: Callable[[str], bool], words: str) -> Finder:
    """GPUs of ranks with a bad value in ``nvidia-smi -q``.

    Args:
        paths: suffixes of the headings and keys.
        bad: whether a value is a fault.
        words: with ``{gpu}``, ``{key}`` and ``{value}``.
    """

    def find(facts: Facts) -> Iterator[Sighting]:
        for part, entries in _by_part(facts).items():
            for name, item in entries if part.startswith("gpu ") and part.endswith(paths) else ():
                value = item.values["value"]
                ranks = rank_of(facts, item.host, item.values["bus_id"], None) if bad(value) else ()
                if bad(value) and (ranks or not item.host):
                    text = words.format(gpu=item.name, key=part.rpartition("/")[2], value=value)
                    yield sighting(name, item, text, ranks=ranks)

    return find


def pcie_narrow(facts: Facts) -> Iterator[Sighting]:
    """GPUs of ranks with fewer PCIe lanes than the other GPUs."""
    widths = [
        (name, replace(item, values={**item.values, "lanes": lanes}))
        for name, item in items(facts, "gpu PCI/GPU Link Info/Link Width/Current")
        if (lanes := number(item.values["value"]))
    ]
    for name, item, usual in _find_lower(widths, lambda _: None, "lanes"):
        if ranks := rank_of(facts, item.host, item.values["bus_id"], None):
            words = f"GPU {item.name} has {item.values['lanes']:g} PCIe lanes, and others have {usual:g}"
            yield sighting(name, item, words, ranks=ranks)


def nvlinks_down(facts: Facts) -> Iterator[Sighting]:
    """GPUs with fewer active NVLinks than most GPUs of the job."""
    active, last = _active_links(facts)
    gpus = [(name, Item("", gpu, {"links": active[name, host, gpu]}, 1, "", host)) for name, host, gpu in active]
    for name, odd, usual in _find_lower(gpus, lambda _: None, "links"):
        item = last[name, odd.host, odd.name]
        ranks = rank_of(facts, item.host, None, item.values["index"])
        if ranks or item.host is None:
            links = odd.values["links"]
            words = f"{usual - links:g} NVLinks of {odd.name} are inactive, and {links} are active"
            yield sighting(name, item, words, ranks=ranks)


def nvlinks_off(facts: Facts) -> Iterator[Sighting]:
    """Machines without any active NVLink."""
    active, last = _active_links(facts)
    for file, host in dict.fromkeys((name, host) for name, host, _ in active):
        own = {place: number for place, number in active.items() if place[:2] == (file, host)}
        if not any(own.values()):
            yield sighting(file, last[next(iter(own))], "no NVLink of any GPU is active")


_Place = tuple[str, str | None, str]


@once
def _active_links(facts: Facts) -> tuple[dict[_Place, int], dict[_Place, Item]]:
    """Return the number of active links of each GPU, with the last line of an inactive one."""
    active: dict[_Place, int] = {}
    last: dict[_Place, Item] = {}
    for name, item in items(facts, "nvlink"):
        if "active" in item.values:
            place = (name, item.host, item.name)
            active[place] = active.get(place, 0) + item.values["active"]
            if place not in last or not item.values["active"]:
                last[place] = item
    return active, last


def nvlink_errors(facts: Facts) -> Iterator[Sighting]:
    """GPUs of ranks with recovery or fatal errors of NVLinks."""
    for name, item in items(facts, "nvlink"):
        if item.values.get("errors") and str(item.values["kind"]).lower() in ("recovery", "fatal"):
            ranks = rank_of(facts, item.host, None, item.values["index"])
            if ranks or item.host is None:
                yield sighting(name, item, f"NVLinks had errors ({item.text})", ranks=ranks)


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
_Port = tuple[str | None, str, str]
_Values: TypeAlias = "dict[str, dict[str, Item]]"


def grown(which: re.Pattern[str]) -> Finder:
    """Yield NICs with such counters that grew from one file to the other."""

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
def _by_card(facts: Facts) -> dict[_Port, _Values]:
    """Return the counters of each port of a card, by file and name."""
    counters: dict[_Port, _Values] = {}
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
        ports_down,
        _confidence_by_rule(
            (_TRANSFERS, CERTAIN), (("collective-unfinished", "bandwidth-low", "ib-gid-index"), LIKELY)
        ),
        _LINK_FIX,
        where_it_hurts=False,
        clue="nic-link-bad",
        costs="NCCL chose this port when the job started: transfers over it fail, and with them the job",
    ),
    Fault(
        ports_missing,
        _confidence_by_rule((_FEWER_NICS, CERTAIN)),
        (
            "ip link set <interface> up; opensm or the fabric's subnet manager   # RoCE; InfiniBand in state Init",
            *_LINK_FIX,
        ),
    ),
    Fault(
        ports_slow,
        _confidence_by_rule((("bandwidth-low", "nic-asymmetry", "straggler"), LIKELY)),
        _LINK_FIX,
        clue="nic-link-bad",
        costs="the slowest NIC sets the pace of every collective that crosses hosts",
    ),
    Fault(
        gids_missing,
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
        not_loaded("nvidia_peermem", "nv_peer_mem"),
        _confidence_by_rule((("gdr-disabled", "gdr-one-sided"), LIKELY)),
        ("modprobe nvidia-peermem   # and: echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf",),
        against=present("module", "nvidia_peermem", "nv_peer_mem"),
    ),
    Fault(
        not_loaded("gdrdrv"),
        _confidence_by_rule((("gdrcopy-failed",), CERTAIN)),
        ("modprobe gdrdrv   # on the host; it comes with GDRCopy",),
        against=present("module", "gdrdrv"),
    ),
    Fault(
        not_loaded("efa"),
        _confidence_by_rule(
            (("socket-instead-of-efa", "efa-provider-missing", "efa-init-failed", "network-not-found"), CERTAIN)
        ),
        ("modprobe efa; ls /sys/class/infiniband   # on the host; the EFA installer brings it",),
        against=present("module", "efa"),
    ),
    Fault(
        not_loaded("ib_uverbs"),
        _confidence_by_rule((("socket-instead-of-ib", "network-not-found"), CERTAIN)),
        ("modprobe -a ib_uverbs mlx5_ib   # on the host; MLNX_OFED or rdma-core bring them",),
    ),
    Fault(
        no_provider("efa"),
        _confidence_by_rule((("socket-instead-of-efa", "efa-provider-missing", "efa-init-failed"), CERTAIN)),
        (EFA_IN_POD, "lsmod | grep ^efa; ls /dev/infiniband   # driver on the node, devices in the container"),
        against=present("provider", "efa"),
    ),
    Fault(
        limit_below("memlock", GIB, 1024, "the limit on locked memory (memlock) is {} KiB"),
        _confidence_by_rule((("ib-memlock",), CERTAIN), (("memory-registration-failed", "efa-init-failed"), LIKELY)),
        (RDMA_IN_DOCKER, LOCKED_MEMORY_IN_POD, "LimitMEMLOCK=infinity   # systemd unit of slurmd or containerd"),
        against=no_limit("memlock", "there is no limit on locked memory (memlock)"),
    ),
    Fault(
        limit_below("nofile", 1 << 16, 1, "the limit on open files (nofile) is {}"),
        _confidence_by_rule((("open-files-limit",), CERTAIN)),
        ("ulimit -n 1048576   # before the program starts; or LimitNOFILE in the unit of slurmd or containerd",),
    ),
    Fault(
        limit_below("nproc", 1 << 14, 1, "the limit on processes and threads (nproc) is {}"),
        _confidence_by_rule((("process-limit",), CERTAIN)),
        ("ulimit -u unlimited   # before the program starts; or LimitNPROC, and pids_limit of the container",),
    ),
    Fault(
        shared_memory(is_small=True),
        _confidence_by_rule((("shm-segment-failed", "shm-attach-failed"), CERTAIN)),
        (),
        against=shared_memory(is_small=False),
        unless=r"error: (?!No space left on device)",
    ),
    Fault(
        gpu_values(
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
        nvlinks_down,
        _confidence_by_rule((("p2p-nvlink-fault",), CERTAIN), ((*_NO_NVLINK, "straggler"), LIKELY)),
        _NVLINK_FIX,
        clue="gpu-degraded",
        costs="rings and trees over this GPU have less bandwidth, and they set the pace of all ranks",
    ),
    Fault(
        nvlinks_off,
        _confidence_by_rule((("nvlink-not-used", "p2p-nvlink-fault"), CERTAIN), (_NO_NVLINK[1:], LIKELY)),
        _NVLINK_FIX,
    ),
    Fault(
        nvlink_errors,
        _confidence_by_rule((("p2p-nvlink-fault", "gpu-hardware-error", "bandwidth-low"), LIKELY)),
        _NVLINK_FIX,
    ),
    Fault(
        gpu_values(
            *("Remapped Rows/Pending", "Remapped Rows/Remapping Failure Occurred"),
            *("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending"),
            bad=lambda value: value == "Yes",
            words="memory of GPU {gpu} is broken ({key}: {value})",
        ),
        _confidence_by_rule((_GPU_FAILED, CERTAIN), (("wrong-results",), LIKELY)),
        _BAD_GPU_FIX,
    ),
    Fault(
        gpu_values(
            *("Volatile/DRAM Uncorrectable", "Volatile/SRAM Uncorrectable", "Volatile/Double Bit/Total"),
            *("Volatile/SRAM Uncorrectable Parity", "Volatile/SRAM Uncorrectable SEC-DED"),
            bad=lambda value: value.isdigit() and int(value) > 0,
            words="GPU {gpu} counts memory errors that ECC cannot correct ({key}: {value})",
        ),
        _confidence_by_rule((_GPU_FAILED, CERTAIN), (("wrong-results",), LIKELY)),
        _BAD_GPU_FIX,
    ),
    Fault(
        gpu_values(
            *("Reasons/HW Slowdown/HW Thermal Slowdown", "Reasons/HW Slowdown/HW Power Brake Slowdown"),
            *("Reasons/HW Thermal Slowdown", "Reasons/HW Power Brake Slowdown", "Reasons/SW Thermal Slowdown"),
            bad=lambda value: value == "Active",
            words="GPU {gpu} is held down ({key})",
        ),
        _confidence_by_rule((("bandwidth-low", "straggler"), LIKELY)),
        ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER   # fans, air and power supply of that host",),
    ),
    Fault(
        pcie_narrow,
        _confidence_by_rule((("bandwidth-low", "straggler"), LIKELY)),
        ("sudo lspci -vv -s <busId> | grep LnkSta   # reseat the card; a riser or slot that is broken",),
        clue="gpu-degraded",
        costs="data between this GPU and NICs or the host moves more slowly than on the others",
    ),
)
