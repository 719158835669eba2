"""Typed events: what a line of the log states, one frozen dataclass for each kind of statement.

Field names mean the same in every class. Ranks are those of the communicator that printed the line; the model
translates them. Pointers and bus ids are text as printed; sizes are bytes, times seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar

from nccl_inspect.event.base import Event, Message, Notice, Where
from nccl_inspect.util import records, signals
from nccl_inspect.util.patterns import compile_later

_DEVICE = r"\[(?P<index>\d+)\](?:=\{(?P<ports>[^}]*)\}|(?P<name>[^\s:]+):(?P<port>\d+)/(?P<link>\w+))"
_PORT = r"\] (?P<name>[^\s:]+):(?P<port>\d+)/(?P<link>\w+)"


_RANK = compile_later(r"\d{1,7}")
_WHO = ("ranks", "node", "ended_pid")
_ALL = (*_WHO, "exit_code", "signal", "how")
NEAR = 3
"""Lines, blank ones too, after which a report has no further line."""


class ProcessEnded(Notice):
    """A launcher, a shell or a process itself says that a process ended: which one, and how."""

    reporter: str = ""
    """Who says so: ``torchrun``, ``mpirun``, ``shell``; ``process`` for the process that ended."""
    order: str = "any"
    """``first``: of all processes that ended, the first one is named; ``own``: who says so knows of one process only;
    ``any``: each that ended with an error is named, also those that only lost another one."""
    process: str = "rank"
    """``rank``; ``any`` (it may be no rank), ``loader`` (of data, for a rank), ``task`` (of Slurm), ``spawned`` (by
    torch.multiprocessing), ``command`` (a launcher or a script, as a whole), ``training`` (all of it) or ``unknown``
    (who reports it knows only that one ended)."""
    ranks: tuple[int, ...] = ()
    """Of the job."""
    node: str | None = None
    ended_pid: int | None = None
    exit_code: int | None = None
    """As a shell has it, 128 + number for a signal; None where the line names a signal, and where it does not say."""
    signal: str | None = None
    """By its name, ``SIGKILL``."""
    how: str | None = None
    """In words, where neither code nor signal says it."""
    external: str = ""
    """The signals by which somebody else ends processes, ``SIGINT|SIGTERM``: that is not a failure of its own."""
    ends_others: bool = False
    """Whether the reporter ends the other processes then."""
    kills_with: str | None = None
    """The signal by which the reporter ends the others: which it then reports, too."""
    exception: bool = False
    """Whether an exception ended it."""
    retries: bool = False
    """Whether the reporter may start the process anew: it counts where that gave up."""
    completes: str = ""
    """``above`` or ``below``: the line is one of a report of several, and completes that of the same reporter which is
    there, see :func:`join_lines`."""

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the fields of a line mean; all of them are kept as they are, too.

        ``exitcode`` is negative for a signal, as Python's subprocess has it; ``status`` has signals as 128 + number, as
        shells and containers do.
        """
        found: dict[str, Any] = {name: values[name] for name in ("how", "node") if values.get(name) is not None}
        ranks = values.get("global_rank", values.get("ranks"))
        if ranks is not None:
            found["ranks"] = tuple(sorted({int(rank) for rank in _RANK.findall(str(ranks))}))
        if values.get("pid"):  # Open MPI 4 prints 0
            found["ended_pid"] = values["pid"]
        code, number = values.get("exitcode"), signals.number(str(values.get("signal")))
        if (status := values.get("status")) is not None:
            found["exit_code"], code = status, signals.exit_code(status)
        if number is None and code is not None and code < 0:
            number = -code
        if number is not None:
            found["signal"] = signals.name(number)
        elif code is not None:
            found["exit_code"] = code
        return {**Notice.arrange(values), **found}

    @property
    def code(self) -> int | None:
        """Exit code; negative for a signal, None where the line does not say."""
        number = None if self.signal is None else signals.number(self.signal)
        return self.exit_code if number is None else -number

    def take(self, part: ProcessEnded) -> None:
        """Take what another line of the same report says: who ended, and how, as far as this one leaves it out."""
        for name in _WHO if self.code is not None else _ALL:
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(part, name))

    def repeat(self, later: ProcessEnded) -> None:
        """Take what a report in the same words says of another process: one of another host, or of another attempt."""
        self.take(later)
        if self.retries:
            object.__setattr__(self, "how", later.how)
        object.__setattr__(self, "ranks", tuple(sorted({*self.ranks, *later.ranks})))

    @property
    def is_external(self) -> bool:
        """Return whether a signal of somebody else ended it; SIGKILL that a shell passes on was sent by anybody."""
        is_passed_on = self.signal == "SIGKILL" and self.exit_code is not None
        return self.signal in self.external.split("|") and not is_passed_on


def join_lines(number: int, event: ProcessEnded, near: list[tuple[int, ProcessEnded]]) -> None:
    """Join a line of a report with those of the same reporter near it: what completes another line becomes part of it.

    Where that line was left out, one that says who ended and how stands for the report.

    Args:
        near: the lines before it that may be of the same report, with their numbers; this one is added.
    """
    near[:] = [entry for entry in near if number - entry[0] <= NEAR]
    others = [other for _, other in reversed(near) if other.reporter == event.reporter]
    if event.completes == "above":
        mine = [
            other
            for other in others
            if not other.completes and event.ended_pid in (None, other.ended_pid or event.ended_pid)
        ]
        if mine:
            mine[0].take(event)
        elif event.ended_pid is not None and event.code is not None and not event.is_external:
            object.__setattr__(event, "completes", "")
    elif not event.completes:
        for part in [other for other in others if other.completes == "below"]:
            event.take(part)
    near.append((number, event))


__all__ = ["KINDS", "Event", "Message", "Notice", "ProcessEnded", "Where"]


class NcclVersion(Event):
    """The library version of a process (debug.cc, init.cc)."""

    version: str


class CudaDriver(Event):
    """The CUDA level of the driver: 13000 is 13.0."""

    cuda_version: int


class EnvSetting(Event):
    """A variable that was read from the environment, or that a plugin put there."""

    name: str
    value: str
    origin: str = "environment"
    """``environment``, ``config`` or ``plugin``."""


class PluginStatus(Event):
    """A plugin was found, loaded, missed, broken or chosen."""

    kind: str
    """NET, COLLNET, TUNER, PROFILER, ENV, GIN or RMA."""
    status: str
    """``requested``, ``loading``, ``not-found``, ``load-failed``, ``probe`` (an older interface),
    ``loaded``, ``failed`` (its initialisation), ``initialised`` or ``assigned``."""
    plugin: str | None = None
    detail: str | None = None


class NetworkInUse(Event):
    """``Using network X``: the network of the communicator whose start follows on the same thread."""

    net: str


class NetDevices(Event):
    """The devices that a built-in network can use, in the order of their index."""

    net: str
    devices: tuple[Any, ...] = ()
    """One tuple for each device: (index, name, port or address, kind of link), as far as the message states them."""
    oob: str | None = None

    @classmethod
    def arrange(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return each of the merged ports (2.20 to 2.23) as a device, and what HPC-X may use as a link."""
        devices = list(values.get("devices") or ())
        text = f"[{values['_first']}]={{{values['_merged']}" if "_merged" in values else ""  # from the first brace on
        for match in re.finditer(_DEVICE, text):
            ports = [match] if match["ports"] is None else list(re.finditer(_PORT, match["ports"]))
            if ports:  # several are named as later releases name them
                name, port = ("+".join(entry[part] for entry in ports) for part in ("name", "port"))
                devices.append((int(match["index"]), name, port, ports[0]["link"]))
        plain = tuple((*device[:3], *(link.removesuffix("/SHARP") for link in device[3:])) for device in devices)
        return Event.arrange({**values, "devices": plain})


class BootstrapInterface(Event):
    """The interface used for set-up traffic; ``devices`` are what old releases list behind it."""

    interface: str
    address: str | None = None
    devices: tuple[Any, ...] = ()


class OfiProvider(Event):
    """aws-ofi-nccl: the libfabric provider that was selected."""

    provider: str
    fabric: str | None = None
    nics: int | None = None


class OfiPlatform(Event):
    """aws-ofi-nccl: the instance type it runs on."""

    platform: str
    topology: str | None = None
    """The topology file that NCCL is to use for it."""


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


class CommNoColor(Event):
    """This rank takes part in a split without becoming a member of a child."""

    rank: int


class CommShape(Event):
    """States how the ranks of a communicator lie on nodes, as NCCL sees them (2.20 and later)."""

    comm: str
    rank: int
    nranks: int
    nnodes: int
    local_ranks: int
    local_rank: int
    mnnvl: int | None = None


class CommEnd(Event):
    """A communicator was destroyed or aborted in this process."""

    comm: str
    rank: int | None = None
    nranks: int | None = None
    cuda_dev: int | None = None
    bus_id: str | None = None
    how: str = "Destroy"
    """Destroy, Abort or Revoke."""


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


class ChannelCounts(Event):
    """States how many channels the communicator has for each kind of traffic."""

    coll: int
    collnet: int | None = None
    nvls: int | None = None
    p2p: int
    p2p_per_peer: int


class RingOrder(Event):
    """The order of the ranks in the ring of one channel; printed by rank 0."""

    channel: int
    nchannels: int | None = None
    ranks: tuple[int, ...] = ()
    cut: bool = False
    """The list was cut by NCCL."""


class TreeLinks(Event):
    """The tree neighbours of the printing rank: (channel, down, down, down, rank, up), -1 for none."""

    trees: tuple[tuple[int, ...], ...] = ()
    cut: bool = False
    """The list was cut by NCCL."""


class Connected(Event):
    """An algorithm's connections are all there."""

    what: str
    """``rings``, ``trees``, ``binomial trees``, ``NVLS tree``, ``collnet``."""
    pxn: int | None = None
    ring_gdr: int | None = None
    """1 when all ring NET edges of all ranks use GDR, and also when there is none."""


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
        """Return the transport with its mechanism, without NIC index and flags, as the version prints it."""
        if self.transport in ("NET", "COLLNET"):
            return f"{self.transport}/{self.net}"
        if self.mechanism == "direct shared memory":
            return self.mechanism
        flags = ("/read" if self.read else "") + ("/CE" if self.copy_engine else "")
        return f"{self.transport}/{self.mechanism}{flags}"

    @property
    def is_local(self) -> bool:
        """Return whether this transport proves that both ranks are on one host; multi-node NVLink does not."""
        return self.transport == "SHM" or (self.transport == "P2P" and self.mechanism != "MNNVL")

    @property
    def rank(self) -> int:
        """Return the rank that prints: the sender, or the receiver of a ``[receive]`` line."""
        return self.dst if self.direction == "receive" and self.dst is not None else self.src


class P2pCheck(Event):
    """States whether all GPU pairs of the node can talk P2P (``isAllDirectP2p``), and whether ranks share a process."""

    all_direct: int
    direct_mode: int
    all_cuda: int | None = None


class P2pRefused(Event):
    """The driver or the hardware refuses peer access between two GPUs."""

    reason: str
    gpu: str | None = None
    peer_gpu: str | None = None


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


class ErrorCascade(Event):
    """``file:line -> code``: an error passed up the call stack; the cause is the WARN before the first frame."""

    file: str
    at: int
    func: str | None = None
    code: int
    thread: str | None = None


class CudaFailure(Event):
    """A CUDA call failed."""

    file: str | None = None
    at: int | None = None
    func: str | None = None
    code: int | None = None
    error: str


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
        """Return the columns as numbers; their number of digits varies, so the grammar keeps them as text."""
        named = {name: value for name, value in values.items() if name[0] != "_"}
        return {name: float(v) if isinstance(v, str) and name != "redop" else v for name, v in named.items()}


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in globals().copy().values() if isinstance(kind, type) and issubclass(kind, Event)
}
"""Every event class by its name, as grammar files name it."""


WHERE = "where"
"""The field that stands for columns of its own."""


def name_column(field: str) -> str:
    """Return the column of a field: ``kind`` is the class of an event, so a PluginStatus has its kind elsewhere."""
    return "plugin_kind" if field == "kind" else field


@cache
def list_columns(kind: str) -> tuple[str, ...]:
    """Return the columns of the fields of a class, in their order."""
    return tuple(name_column(field.name) for field in fields(KINDS[kind]))


def list_fields(event: Event) -> dict[str, Any]:
    """Return what an event states, by column; columns that it says nothing about are left out."""
    columns = zip(list_columns(type(event).__name__), records.values(event), strict=True)
    plainly = {name: plain_value(name, value) for name, value in columns if name != WHERE}
    return {name: dict(value) if name == "values" else value for name, value in plainly.items() if value is not None}


def plain_value(name: str, value: Any) -> Any:
    """Return the value of a column as tables and files hold it."""
    if isinstance(value, str):
        if value.isascii():
            return value
        # Arrow text is UTF-8: what could not be decoded is shown as \xNN.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None  # a damaged or hostile line: no field of NCCL's is that large
    if name == "values":
        return [(key, None if item is None else plain_value("", str(item))) for key, item in value]
    if name == "devices":
        return [[str(part) for part in device] for device in value]
    return value
