"""The job: what the log says about one run of NCCL, in the field's words. Plain data; rules and reports read it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from nccl_inspect.model import inventory
from nccl_inspect.model.communicators.rings_and_trees import LayoutLines
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Entry, Finding, Head, NotJudged, Standing, Suppressed
from nccl_inspect.model.paths.path import Path, PathKind
from nccl_inspect.model.paths.table import Paths, Selection
from nccl_inspect.model.versions import Alike
from nccl_inspect.util.records import Deferring, Record

if TYPE_CHECKING:
    import pandas

    from nccl_inspect.event.base import Process
    from nccl_inspect.event.types import Event


class Setting(Record):
    """A variable and its value, with the ranks that show it."""

    name: str
    value: str
    source: str
    """``environment``, ``config``, ``plugin`` or ``unknown``."""
    ranks: list[int] | None
    """None when every process shows it."""
    hosts: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    """Host and pid of those that show it."""
    evidence: list[Evidence] = field(default_factory=list)
    alike: Alike | None = None
    """What this release prints in the same words, so that it may be that which was set."""

    @property
    def names(self) -> list[str]:
        """Return the variables that may have been set."""
        return [*([self.alike.name] if self.alike else []), self.name]

    @property
    def assignments(self) -> list[str]:
        """Return the same with values, as in a shell."""
        return [*([f"{self.alike.name}={self.alike.value}"] if self.alike else []), f"{self.name}={self.value}"]


class CommunicatorInfo(Deferring):
    """A communicator: its ranks in global numbers, rings and trees of each channel.

    A job may have thousands: what few reports ask for is made when they do.
    """

    id: str
    parent: str | None
    nranks: int
    ranks: list[int | None]
    """Global ranks in communicator order; None where the log does not show it."""
    hosts: list[str]
    channels: int | None
    rings: list[list[int | None]]
    trees: list[list[list[int | None]]]
    """For each channel the links (parent, child)."""
    state: str
    """``started``, ``complete`` (every rank that the log shows is), ``connected`` (and made its connections),
    ``destroyed`` or ``aborted``."""
    started: list[int] = field(default_factory=list)
    """Communicator ranks that began."""
    announced: list[int] = field(default_factory=list)
    """Those of them whose line that begins the initialisation is in the log."""
    completed: list[int] = field(default_factory=list)
    connected: list[int] = field(default_factory=list)
    """Communicator ranks whose connections are there, as far as the log shows that they began to make some."""
    unconnected: list[int] = field(default_factory=list)
    """Communicator ranks that began to connect rings or trees, if none says that all connections are there."""
    behind: list[int] = field(default_factory=list)
    """Communicator ranks that have yet to connect what others have, as their lines show."""
    ended: list[int] = field(default_factory=list)
    """Communicator ranks that destroyed or aborted it."""
    incomplete_rings: list[int] = field(default_factory=list)
    """Places in ``rings`` whose list does not have every rank once: NCCL prints 20 ranks at most until 2.22 and cuts
    long lines, and ranks may contradict each other."""
    nnodes: int | None = None
    local_ranks: int | None = None
    network: str | None = None
    networks: dict[str, list[int]] = field(default_factory=dict)
    """Communicator ranks by the network that they say they use."""
    network_lines: list[Evidence] = field(default_factory=list)
    """The first line that names each network."""
    ring_gdr: bool | None = None
    """Whether NCCL says that the ring NET edges of all ranks use GPUDirect (2.24 and later)."""
    color: int | None = None
    """Of a split: what its ranks gave."""
    ordinal: int | None = None
    """Of a split: its number among those of its parent, from 1."""
    group: str | None = None
    """What the program calls it: PyTorch's process group, or the name given to NCCL."""
    parallelism: inventory.Parallelism | None = None
    """What its shape says that it is for; None also where the program names it."""
    lifetime: list[inventory.Stage] = field(default_factory=list)
    timings: list[inventory.InitTiming] = field(default_factory=list)
    algorithms: list[str] = field(default_factory=list)
    """What it has besides rings and trees: ``NVLS``, ``NVLS tree``, ``PAT``, ``CollNet``."""
    collnet: list[int] = field(default_factory=list)
    """Communicator ranks with connections to a network that reduces."""
    inconsistent: list[str] = field(default_factory=list)
    """Where ranks contradict each other on rings and trees, in words."""
    layout: LayoutLines = field(default_factory=LayoutLines, compare=False)
    """The lines that print its channels, rings and trees."""
    reused_id: str = ""
    """The id that it is built with, where processes of an earlier run built one with the same."""
    contested: list[int] = field(default_factory=list)
    """Communicator ranks that processes of other hosts began under the same id, too."""
    guessed: bool = False
    """Whether only the order in which communicators were used tells that anything is connected in it."""
    begins: list[inventory.Begin] = field(default_factory=list, compare=False)
    """Where each of its ranks began."""
    evidence: list[Evidence] = field(default_factory=list)

    @property
    def known_ranks(self) -> set[int]:
        """Return its global ranks, as far as the log shows them."""
        return {rank for rank in self.ranks if rank is not None}

    @property
    def absent(self) -> set[int]:
        """Return the communicator ranks that did not begin, as far as the log shows."""
        return set(range(self.nranks)).difference(self.started)

    @property
    def pending(self) -> set[int]:
        """Return the communicator ranks that began, and did not finish the initialisation."""
        return set(self.started).difference(self.completed)

    @property
    def lacks_members(self) -> bool:
        """Return whether only some of its ranks began it, by the log.

        Without START, which names the communicator, two of its members may look like those of two.
        """
        return bool(self.announced) and len(self.started) < self.nranks


class Earliest(Record):
    """Holds who made a statement first."""

    processes: list[Process]
    """Several where they made it at the same moment."""
    device: int | None
    time: str | None
    evidence: Evidence
    is_ordered: bool
    """Whether one clock orders the lines of all that made it; else this is the first in the log."""


class FirstFailure(Record):
    """Holds what failed first."""

    ranks: list[int]
    """One, or several that failed at the same moment; empty where the log does not show ranks."""
    processes: list[tuple[str, int]]
    """Their hosts and pids."""
    device: int | None
    """The CUDA device that the line names."""
    time: str | None
    basis: str
    """``time`` (the earliest of all errors by their time stamps), or ``alone`` (no other process has an error)."""
    evidence: Evidence


class Notice(Deferring):
    """Holds what several processes said in the same words: one statement with its ranks.

    A job may have thousands of which no rule asks who said them first, so that much of them is made when one does.
    """

    event: Event | None
    """None for a WARN that the grammar does not know."""
    production: str  # with its dialect: nccl/duplicate-gpu
    level: str
    message: str
    count: int
    place: int
    ranks: list[int]
    hosts: list[str]
    processes: list[Process]
    evidence: list[Evidence]
    earliest: Earliest
    releases: str = ""
    rule: str = ""
    roles: frozenset[str] = frozenset()
    """What the grammar states of its production: the releases of NCCL that print it, its rule, its roles."""
    location: str | None = None
    """``file:line`` of a WARN: the same words from two places are two statements."""
    lines: list[Evidence] = field(default_factory=list, compare=False)
    """Where each of the processes said it first."""
    until: list[int] = field(default_factory=list)
    """Where each of the processes said it last: the number of the line in the order of reading."""
    outlived: bool = field(default=False, compare=False)
    """Whether each thread that said it completed a communicator afterwards."""


class Unrecognised(Record):
    """NCCL lines of one shape that no production knows."""

    template: str
    """The message with its numbers replaced by ``{}``."""
    count: int
    example: Evidence


class Job(Deferring):
    """One run of NCCL."""

    sources: list[inventory.SourceInfo]
    world_size: int | None
    ranks_seen: list[int]
    rank_space: str
    """``global``, or ``communicator`` where the log does not show the world."""
    dialects: list[str]
    nccl_versions: list[str]
    cuda_versions: list[str]
    hosts: list[inventory.Host]
    network: inventory.Network
    environment: list[Setting]
    communicators: list[CommunicatorInfo]
    paths: Paths
    notices: list[Notice]
    gpus: dict[int, inventory.Gpu] = field(default_factory=dict)
    """By rank; without ranks on which communicators differ."""
    local_ranks: dict[int, int] = field(default_factory=dict)
    """By rank, as NCCL counts them on each node of the communicator of all ranks (2.20 and later)."""
    verdict: str = "unknown"
    findings: list[Finding] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """Names of the rules that ran."""
    not_judged: list[NotJudged] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Rules that were not asked for and find a fault: it is not reported, and no path is called good."""
    withheld: int = 0
    """Paths that are not judged because of these rules only."""
    config: str | None = None
    """The settings file by which it was judged."""
    head: Head | None = None
    """The first lines of reports, set when the job is judged."""
    unexplained: list[Notice] = field(default_factory=list)
    """Errors in the log that no finding shows, set by the rules."""
    first_failure: FirstFailure | None = None
    """Of a failed job, where the log shows it; set by the rules."""
    story: list[Entry] = field(default_factory=list)
    """What happened, in order, from where it began; empty where nothing failed; set by the rules."""
    waiting: inventory.Waiting | None = None
    """Where the log ends while ranks wait for others; set by the rules."""
    quiet: float | None = None
    """Seconds for which no rank came any further, as whoever watched the log knows; None where nobody did."""
    unrecognised: list[Unrecognised] = field(default_factory=list)
    earlier_runs: list[str] = field(default_factory=list)
    """Runs in the same log that were over before this one began, in words; they are not judged."""
    earlier_verdicts: list[str] = field(default_factory=list)
    """The verdicts on the last of them, each judged separately; ``--run`` explains one."""
    is_one_of_several: bool = False
    """Its sources have lines of other jobs, too."""
    alongside: int = 0
    """How many jobs of the same size in the same source ran at once, each on one host of its own like this one:
    one job over all of them may have been meant."""
    name: str = ""
    """What distinguishes it from other jobs of the input; empty where there is no other."""
    jobs: list[Standing] = field(default_factory=list)
    """All jobs of the input, the worst first, where there are several: then this is the worst one."""
    calls: list[inventory.Calls] = field(default_factory=list)
    """What the job asked NCCL to do, where the log has subsystem COLL."""
    unplaced_lines: int = 0
    """Connection lines whose communicator or global ranks the log does not show, or that are cut off."""
    unplaced_paths: dict[str, int] = field(default_factory=dict)
    """How many of them show which path, such as ``NET/IB`` or ``NET/IB with GDR``; the cut ones may show none."""
    platform: str | None = None
    processes: int = 0
    failed: bool = False
    """A call of NCCL's interface returned an error."""
    ended_by: list[Evidence] = field(default_factory=list)
    """Lines of launchers, schedulers and PyTorch that prove that a source goes on to the end of the job."""
    isolated_hosts: list[str] = field(default_factory=list)
    """Hosts with several GPUs where the GPU of every rank is CUDA device 0: each process sees its own only."""
    going_on: bool = False
    """More will come, so that no line is the last one."""
    broken_off: list[Evidence] = field(default_factory=list)
    """The last connections of rings and trees where the log ends with them, and no rank says that it has them all."""
    without_nvls: list[Evidence] = field(default_factory=list)
    """Lines that count no channels for reduction inside the NVSwitch, in a job that has none anywhere."""
    partial: bool = False
    """The reading was interrupted: this is the job as far as it was read."""
    excerpt: bool = False
    """This is a part of a log: no communicator begins in it though it has connections, or lines were left out of it."""
    last_lines: list[inventory.LastLine] = field(default_factory=list)
    """Where each process falls silent."""
    timeline: list[inventory.Progress] = field(default_factory=list)
    """By rank; empty where lines have no time stamps that can be compared."""
    damaged: list[Evidence] = field(default_factory=list)
    """The first lines of each source that could be neither parsed nor repaired."""
    repeated: list[Evidence] = field(default_factory=list)
    """Where lines of a process begin that were collected before and are left out: one for each process and copy."""
    raised: list[Evidence] = field(default_factory=list)
    """The last exceptions of unknown ranks in each source, and of threads."""
    raised_by: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rank of those that a launcher labelled, by source and order of the line."""
    spared: list[Evidence] = field(default_factory=list)
    """The first lines of each source of which a collector says that others like them were left out."""
    benchmarks: list[Evidence] = field(default_factory=list)
    """Lines that may be results of benchmarks, or state how fast a training runs."""
    bandwidth: list[inventory.Measured] = field(default_factory=list)
    """What benchmarks measured, with what was to be expected; set when the job is judged."""
    training: list[inventory.Speed] = field(default_factory=list)
    """How fast a training runs, where its log says so."""
    artifacts: list[inventory.Artifact] = field(default_factory=list)
    """Files beside the log that say something about it, by :mod:`nccl_inspect.artifacts`."""
    passed_over: list[inventory.PassedOver] = field(default_factory=list)
    repaired: list[Evidence] = field(default_factory=list)
    """The first lines of each source that were joined from two places or split."""
    doubtful: set[tuple[str, int]] = field(default_factory=set)
    """All of these, and lines whose end is missing, by source and order: nothing is certain by them alone."""

    def to_dict(self) -> dict[str, object]:
        """Return the job as the JSON document ``nccl-inspect/1``."""
        from nccl_inspect.model.document import to_dict

        return to_dict(self)

    def to_pandas(self, what: str) -> pandas.DataFrame:
        """Return one of the lists of the JSON document as a table, each with the columns it has there.

        Args:
            what: ``paths``, ``findings``, ``communicators``, ``environment``, ``hosts``, ``sources`` or ``not_judged``.

        Raises:
            ValueError: the document has no such list.
        """
        from nccl_inspect.model.document import frame

        return frame(self, what)


__all__ = ["Path", "PathKind", "Paths", "Selection"]  # which stand elsewhere
