"""What a log shows of its sources, hosts, GPUs and network, and what benchmarks measured. Plain data."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_inspect.util.records import Deferring, Frozen, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nccl_inspect.event.base import Process
    from nccl_inspect.model.evidence import Evidence


class SourceInfo(Record):
    """One input and how sound it was."""

    name: str
    bytes: int
    lines: int
    nccl_lines: int
    typed_lines: int
    unrecognised_lines: int
    repaired_lines: int
    damaged_lines: int
    related_lines: int
    """Lines of other programs (PyTorch, libfabric, nccl-tests) that the grammar knows."""
    newest_first: bool = False
    """Whether its newest line comes first, so that it was read from its end."""
    problem: str | None = None
    """Why it could not be read, or not to its end: one line that says what to do about it."""


class Host(Record):
    """A host as the log names it: under Kubernetes the pod."""

    name: str
    ranks: list[int] = field(default_factory=list)
    gpus: int = 0
    """Different GPUs that the log shows there."""


class Gpu(Record):
    """A GPU as a log names it: by nvmlDev, by PCI bus id, or by both."""

    nvml_dev: int | None
    bus_id: str | None


def parse_bracket(bracket: str | None) -> Gpu:
    """Return what the bracket of a connection line (``0[19000]``, ``0[3]``) says: nvmlDev, before 2.18.3 the bus id.

    No GPU has a bus id of one digit, and no nvmlDev has two, except on rare machines with more than ten GPUs.
    """
    if bracket is None:
        return Gpu(None, None)
    return Gpu(int(bracket), None) if len(bracket) == 1 and bracket.isdigit() else Gpu(None, bracket)


class Stamp(NamedTuple):
    """Holds when a line was printed, by the clock of its host or collector."""

    seconds: float
    time: str
    """As the line has it."""
    source: str
    line: int


class Progress(Record):
    """Holds when a rank got how far; what the log gives no time for is missing."""

    rank: int | None
    host: str
    pid: int
    stamps: dict[str, Stamp]
    """``first`` (line of its process), ``started`` and ``completed`` (its first communicator), ``connected``,
    ``ended`` (that communicator), ``last`` (line of its process)."""


BUILT_IN = ("IB", "Socket")
"""NCCL's own networks; all others are those of plugins."""
OVER_TCP = ("Socket", "FastSocket")
"""Networks over TCP: NCCL's own, and that of Google's plugin."""


class Network(Record):
    """The network that carries traffic between hosts."""

    name: str | None = None
    plugin: str | None = None
    plugin_version: str | None = None
    provider: str | None = None
    devices: list[str] = field(default_factory=list)


class Calls(Record):
    """Collectives, or sends and receives between two ranks, of about one size (subsystem COLL)."""

    communicator: str | None
    """None where the log does not show which communicator has the pointer."""
    func: str
    datatype: int
    """As NCCL numbers them (nccl.h): 7 is float32."""
    nranks: int
    root: int | None
    """Global rank of the root; of the other end of a Send or Recv."""
    calls: int
    """How often each rank calls it."""
    elements: int
    """All calls together, as their argument ``count`` says."""
    smallest: int
    largest: int
    ranks: list[int]
    """Global ranks whose logs show it."""
    place: int = 0
    leader: Process | None = None
    """The process of the communicator's rank 0, as far as its log shows the calls: it prints what NCCL chooses."""


class Stage(Record):
    """A stage in the life of a communicator, with the ranks that reached it."""

    name: str
    """``started``, ``bootstrapped``, ``complete``, ``connected``, ``destroyed`` or ``aborted``."""
    ranks: int
    first: str | None = None
    """When the first rank reached it, by the time of its line; None where lines have no time or several clocks."""
    last: str | None = None
    seconds: float | None = None
    """The longest that a rank took for it, as NCCL itself says (2.22 and later)."""


class Begin(NamedTuple):
    """Holds where a rank began a communicator."""

    member: int
    """Its rank in the communicator."""
    process: Process
    source: str
    line: int
    order: int
    is_complete: bool
    """Whether it finished the initialisation."""
    until: int = 0
    """The line that says so, in the order of reading."""


class InitTiming(Deferring):
    """Holds where the time of one initialisation of a communicator went, as one of its ranks says (2.22 and later)."""

    rank: int
    """Within the communicator."""
    process: Process
    total: float
    """In seconds, like the phases."""
    phases: dict[str, float]
    """Bootstrap, topology and so on: those that this release names."""
    evidence: Evidence | None = None


class Parallelism(Record):
    """Holds what a communicator is likely used for, by the shape of it and its siblings."""

    kind: str
    """``TP``, ``DP`` or ``PP``."""
    evidence: str
    """What it is read from, in words."""
    confidence: str = "likely"


class LastLine(Deferring):
    """Holds where the NCCL lines of a process end."""

    process: Process
    ranks: list[int]
    source: str
    line: int
    order: int
    """As in :class:`~nccl_inspect.model.evidence.Evidence`."""
    device: int | None = None
    """The CUDA device that the line names."""
    time: str | None = None
    """When it was printed, as the line has it."""
    likely_rank: int | None = None
    """Where its lines name no rank: which one it probably is, by elimination; set by the rules."""
    first: int = 0
    """Where its first line is in the same source, in the order of reading; 0 where that is another source."""
    evidence: Evidence | None = None
    """The last line of the process that the model keeps: that line itself, or one shortly before it."""


class Waiting(Record):
    """Ranks that wait for others where the log ends."""

    communicator: str
    nranks: int
    missing: list[int]
    """Ranks that have not begun, as far as the log shows: of the job, else of the communicator where the log does not
    tell the ranks of the job."""
    silent: list[int]
    """Ranks that printed something and fell silent before they came as far as those that wait."""
    waiting: list[int]
    """Ranks that came as far as they could without the others."""
    stage: str
    """What they wait in: ``initialisation`` (START without COMPLETE) or ``connections``."""
    since: Evidence | None
    """The last line of the ranks that wait."""
    time: str | None
    """When that was printed, where the line has a time."""
    age: float | None
    """Seconds without a new line, where somebody watched the log; else since its file was written, or since the time of
    its last line, where these are known."""
    cut: bool | None
    """False where a line proves that the log goes on to the end of the job; None where it may have been cut."""


class Artifact(Record):
    """A file beside the log that says something about the job."""

    name: str
    kind: str
    value: Any = None
    """What its reader made of it; None where it could not."""
    reader: str = ""
    """The module of :mod:`nccl_inspect.artifacts` that reads this kind."""
    problem: str | None = None
    """Why it could not be used."""
    host: str | None = None
    """The host of the job that it is about, where it is about one."""


class PassedOver(Frozen):
    """A file in a folder or archive that is neither a log nor evidence."""

    name: str
    reason: str


def contents_of(artifacts: Iterable[Artifact], *readers: str) -> list[Any]:
    """Return what the files of some kinds hold, which are named by their modules in :mod:`nccl_inspect.artifacts`."""
    return [entry.value for name in readers for entry in artifacts if entry.reader == name and entry.value is not None]


class Sized(Frozen):
    """Holds what one message size gave."""

    size: int
    """Bytes."""
    gbps: float
    """The better of out-of-place and in-place, GB/s."""
    lower: float
    """The other one; the same where there is one only."""
    line: Evidence


class Measured(Record):
    """The results of one operation, over all sizes; bandwidths are bus bandwidths in GB/s (1e9 bytes)."""

    operation: str
    """As nccl-tests call it: ``all_reduce``; that of another program by its own name."""
    type: str
    ranks: int | None
    size: int
    """Of the row with the best bandwidth, bytes."""
    measured_gbps: float
    expected_low: float | None = None
    """The least and most that is known of such hardware; None where nothing is."""
    expected_high: float | None = None
    expected_source: str | None = None
    """Who states that."""
    ratio: float | None = None
    """Of the least that is expected, at the best size that is large enough to judge."""
    verdict: str = "unknown"
    """``ok``, ``low`` or ``unknown``."""
    line: Evidence | None = None
    """The row."""
    tool: str = "nccl-tests"
    what: str = ""
    """What is expected to give that: ``4 nodes x 8 NICs of 400 Gb/s``."""
    part: str = "nvlink"
    """What limits: ``network``, ``nvlink`` or ``pcie``."""
    is_assumed: bool = False
    """Whether the rate of the NICs is not known, and the usual ones are taken."""
    reason: str = ""
    """Why it is not judged, or what is odd about it."""
    hosts: list[str] = field(default_factory=list)
    nodes: int | None = None
    sizes: list[Sized] = field(default_factory=list)
    dips: list[Sized] = field(default_factory=list)
    """Sizes at which it falls far behind what smaller ones gave."""
    is_below: bool = False
    """Whether its large messages get less than the band allows."""
    falls: bool = False
    """Whether it stays there up to the largest size."""
    wrong_lines: list[Evidence] = field(default_factory=list)
    """Rows with wrong results."""

    @property
    def wrong(self) -> int:
        """Return how many rows have wrong results."""
        return len(self.wrong_lines)


IN_ALL = "seconds in all"


class Speed(Record):
    """Holds how fast a training runs, as its program says."""

    what: str
    """``seconds per step``, ``tokens per second``, ``samples per second``, ``seconds in all``."""
    median: float
    count: int
    """Lines that state it."""
    line: Evidence
    """The last one."""
