"""Typed events: what a line of the log states, one frozen dataclass for each kind of statement.

Field names mean the same in every class. Ranks are those of the communicator that printed the line; the model
translates them. Pointers and bus ids are text as printed; sizes are bytes, times seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nccl_inspect.event.base import Event, Message, Notice, Where
from nccl_inspect.event.process_ended import ProcessEnded
from nccl_inspect.util.ports import with_merged
from nccl_inspect.util.records import named

__all__ = ["KINDS", "Event", "Message", "Notice", "ProcessEnded", "Where"]


@named
class NcclVersion(Event):
    """The library version of a process (debug.cc, init.cc)."""

    version: str


@named
class CudaDriver(Event):
    """The CUDA level of the driver: 13000 is 13.0."""

    cuda_version: int


@named
class EnvSetting(Event):
    """A variable that was read from the environment, or that a plugin put there."""

    name: str
    value: str
    origin: str = "environment"
    """``environment``, ``config`` or ``plugin``."""


@named
class PluginStatus(Event):
    """A plugin was found, loaded, missed, broken or chosen."""

    kind: str
    """NET, COLLNET, TUNER, PROFILER, ENV, GIN or RMA."""
    status: str
    """``requested``, ``loading``, ``not-found``, ``load-failed``, ``probe`` (an older interface),
    ``loaded``, ``failed`` (its initialisation), ``initialised`` or ``assigned``."""
    plugin: str | None = None
    detail: str | None = None


@named
class NetworkInUse(Event):
    """``Using network X``: the network of the communicator whose start follows on the same thread."""

    net: str


@named
class NetDevices(Event):
    """The devices that a built-in network can use, in the order of their index."""

    net: str
    devices: tuple[Any, ...] = ()
    """One tuple for each device: (index, name, port or address, kind of link), as far as the message states them."""
    oob: str | None = None

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Merged ports (2.20 to 2.23) become one device each, and a link that the plugin of HPC-X may use is a link."""
        merged = with_merged(values) if "_merged" in values else values
        devices = merged.get("devices") or ()
        devices = tuple((*device[:3], *(link.removesuffix("/SHARP") for link in device[3:])) for device in devices)
        return Event.arrange({**merged, "devices": devices})


@named
class BootstrapInterface(Event):
    """The interface used for set-up traffic; ``devices`` are what old releases list behind it."""

    interface: str
    address: str | None = None
    devices: tuple[Any, ...] = ()


@named
class OfiProvider(Event):
    """aws-ofi-nccl: the libfabric provider that was selected."""

    provider: str
    fabric: str | None = None
    nics: int | None = None


@named
class OfiPlatform(Event):
    """aws-ofi-nccl: the instance type it runs on."""

    platform: str
    topology: str | None = None
    """The topology file that NCCL is to use for it."""


@named
class GdrDecision(Event):
    """Why a NIC and a GPU use GPUDirect RDMA or not (subsystems NET and GRAPH)."""

    enabled: bool
    nic: str | None = None
    gpu: str | None = None
    reason: str | None = None
    distance: int | None = None
    """Index of the path class between them; what it means depends on the version."""
    limit: int | None = None
    """The farthest class (up to 2.5: the nearest) with which it is (not) allowed."""


@named
class CommInit(Event):
    """One rank starts to build a communicator, or has finished (init.cc)."""

    phase: str = "COMPLETE"
    """START or COMPLETE."""
    comm: str
    """The pointer; unique only within a process and a time."""
    rank: int
    nranks: int
    api: str | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    comm_id: str | None = None
    parent: str | None = None
    ordinal: int | None = None
    """Its number among the children of its parent, from 1 (2.24 and later)."""
    color: int | None = None
    key: int | None = None
    world_rank: int | None = None


@named
class CommSplit(Event):
    """``bootstrapSplit``: the next start on this thread is a split (2.18 to 2.22)."""

    comm: str | None = None
    parent: str | None = None
    rank: int
    nranks: int
    color: int
    key: int
    prev_rank: int
    next_rank: int


@named
class CommNoColor(Event):
    """This rank takes part in a split without becoming a member of a child."""

    rank: int


@named
class CommShape(Event):
    """States how the ranks of a communicator lie on nodes, as NCCL sees them (2.20 and later)."""

    comm: str
    rank: int
    nranks: int
    nnodes: int
    local_ranks: int
    local_rank: int
    mnnvl: int | None = None


@named
class CommEnd(Event):
    """A communicator was destroyed or aborted in this process."""

    comm: str
    rank: int | None = None
    nranks: int | None = None
    cuda_dev: int | None = None
    bus_id: str | None = None
    how: str = "Destroy"
    """Destroy, Abort or Revoke."""


@named
class InitTimings(Event):
    """States where the time of an initialisation went, in seconds (2.22 and later)."""

    api: str | None = None
    rank: int
    nranks: int
    total: float
    kernels: float | None = None
    alloc: float | None = None
    bootstrap: float | None = None
    allgathers: float | None = None
    topo: float | None = None
    graphs: float | None = None
    connections: float | None = None
    rest: float | None = None


@named
class ChannelCounts(Event):
    """States how many channels the communicator has for each kind of traffic."""

    coll: int
    collnet: int | None = None
    nvls: int | None = None
    p2p: int
    p2p_per_peer: int


@named
class RingOrder(Event):
    """The order of the ranks in the ring of one channel; printed by rank 0."""

    channel: int
    nchannels: int | None = None
    ranks: tuple[int, ...] = ()
    cut: bool = False
    """The list was cut by NCCL."""


@named
class TreeLinks(Event):
    """The tree neighbours of the printing rank: (channel, down, down, down, rank, up), -1 for none."""

    trees: tuple[tuple[int, ...], ...] = ()
    cut: bool = False
    """The list was cut by NCCL."""


@named
class Connected(Event):
    """An algorithm's connections are all there."""

    what: str
    """``rings``, ``trees``, ``binomial trees``, ``NVLS tree``, ``collnet``."""
    pxn: int | None = None
    ring_gdr: int | None = None
    """1 when all ring NET edges of all ranks use GDR, and also when there is none."""


@named
class ChannelConnect(Event):
    """One connection of one channel, by the path it takes (transport/*.cc)."""

    channel: int
    conn: int | None = None
    """Connection set: 0 rings and trees, 1 send/recv; None where it is not printed."""
    src: int
    dst: int | None = None
    """None for CollNet, which has one end only."""
    src_dev: str | None = None
    dst_dev: str | None = None
    """nvmlDev (2.18.3 and later) or PCI bus id, as printed."""
    direction: str | None = None
    """``send`` or ``receive``: which end printed the line; None is the sender."""
    transport: str
    """P2P, SHM, NET or COLLNET."""
    mechanism: str | None = None
    read: bool = False
    copy_engine: bool = False
    via_rank: int | None = None
    net: str | None = None
    nic_index: int | None = None
    pxn_rank: int | None = None
    gdr: bool = False
    gdr_pci: bool = False
    shared: bool = False

    @property
    def detail(self) -> str:
        """The transport with its mechanism, without NIC index and flags, as the version prints it."""
        if self.transport in ("NET", "COLLNET"):
            return f"{self.transport}/{self.net}"
        if self.mechanism == "direct shared memory":
            return self.mechanism
        flags = ("/read" if self.read else "") + ("/CE" if self.copy_engine else "")
        return f"{self.transport}/{self.mechanism}{flags}"

    @property
    def is_local(self) -> bool:
        """Whether this transport proves that both ranks are on one host; multi-node NVLink does not."""
        return self.transport == "SHM" or (self.transport == "P2P" and self.mechanism != "MNNVL")


@named
class P2pCheck(Event):
    """Whether all GPU pairs of the node can talk P2P (``isAllDirectP2p``), and whether ranks share a process."""

    all_direct: int
    direct_mode: int
    all_cuda: int | None = None


@named
class P2pRefused(Event):
    """The driver or the hardware refuses peer access between two GPUs."""

    reason: str
    gpu: str | None = None
    peer_gpu: str | None = None


@named
class Collective(Event):
    """One call of a collective or of send/recv (subsystem COLL)."""

    kept: ClassVar[bool] = False

    func: str
    op_count: int
    sendbuff: str
    recvbuff: str
    count: int
    datatype: int
    op: int
    root: int
    comm: str
    nranks: int
    stream: str
    task: int | None = None
    global_rank: int | None = None


@named
class ErrorCascade(Event):
    """``file:line -> code``: an error passed up the call stack; the cause is the WARN before the first frame."""

    file: str
    at: int
    func: str | None = None
    code: int
    thread: str | None = None


@named
class CudaFailure(Event):
    """A CUDA call failed."""

    file: str | None = None
    at: int | None = None
    func: str | None = None
    code: int | None = None
    error: str


@named
class CollectiveTimeout(Event):
    """PyTorch waited for a collective longer than the process group allows: this rank came, another did not."""

    rank: int | None = None
    global_rank: int | None = None
    """Rank of the job (2.2 and later); ``rank`` is that of the process group."""
    group: str | None = None
    seq: int | None = None
    operation: str
    numel_in: int | None = None
    """Elements; PyTorch 1.13 and 2.0 print the shape instead. Until 1.12 ``seq`` is None."""
    numel_out: int | None = None
    timeout_ms: int
    ran_ms: int | None = None


@named
class NcclTestResult(Event):
    """One row of nccl-tests: times in microseconds, bandwidths in GB/s; None where the test did not run or check."""

    size: int
    count: int
    dtype: str
    redop: str
    root: int
    time_us: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    wrong: float | None = None
    in_place_time_us: float | None = None
    in_place_algbw: float | None = None
    in_place_busbw: float | None = None
    in_place_wrong: float | None = None

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The columns as numbers; their number of digits varies, so the grammar keeps them as text."""
        named = {name: value for name, value in values.items() if name[0] != "_"}
        return {name: float(v) if isinstance(v, str) and name != "redop" else v for name, v in named.items()}


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in globals().copy().values() if isinstance(kind, type) and issubclass(kind, Event)
}
"""Every event class by its name, as grammar files name it."""
