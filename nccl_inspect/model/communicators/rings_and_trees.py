"""What the members of a communicator say of it as a whole: rings and trees, how far it came, and when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import itemgetter, ne, or_
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Event, Process
from nccl_inspect.model.communicators.communicator import SEND_RECV, Communicator, Member
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold import PLACE, Burst, Note, ProcessLog, Step
from nccl_inspect.model.inventory import InitTiming, Stage
from nccl_inspect.model.statements.index import Quotes, Statement, by_process
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.times import are_in_order, moment

_GIVEN_UP = {"Abort", "Revoke"}
Tree: TypeAlias = list[tuple[int, tuple[int, ...]]]
"""Of each member its rank, and what it prints: children, itself, parent."""


RINGS, _ABOVE, _BELOW = "rings", "above", "below"


class Contradiction(NamedTuple):
    """Ranks of a communicator that print different rings, or of which one has the other as a neighbor in the tree."""

    channel: int
    ranks: tuple[int, ...]  # in the communicator
    what: str  # ``rings``; of trees where the first rank has the second: ``above`` or ``below`` it

    def __str__(self) -> str:
        if self.what == RINGS:
            return f"channel {self.channel}: ranks {' and '.join(map(str, self.ranks))} print different rings"
        rank, other = self.ranks
        opposite = _BELOW if self.what == _ABOVE else _ABOVE
        return (
            f"channel {self.channel}: rank {rank} has {other} {self.what} it in the tree, {other} not {rank} {opposite}"
        )


class Layout:
    """Rings and trees in the ranks of their communicator."""

    def __init__(self, comm: Communicator) -> None:
        by_channel = group_values(entry for member in comm.members.values() for entry in member.rings.items())
        every = [by_channel[channel] for channel in sorted(by_channel)]
        self._rings = [some[0].ranks for some in every]
        self.incomplete = [
            place
            for place, some in enumerate(every)
            # Until 2.22 no mark shows that a ring is cut.
            if some[0].cut
            or not len(some[0].ranks) == comm.nranks == len(set(some[0].ranks)) > max(some[0].ranks)
            or any(ring.ranks != some[0].ranks for ring in some[1:])
        ]
        """The places of the rings that do not have every rank once, or of which not all ranks state the same."""
        trees = group_values(
            (channel, (rank, tuple(links))) for rank, member in comm.members.items() for channel, *links in member.trees
        )
        alike = group_values((tuple(trees[channel]), channel) for channel in sorted(trees))
        self._trees: list[tuple[Tree, list[int]]] = [(list(tree), channels) for tree, channels in alike.items()]
        """What the members print of trees, each with its channels: most channels have the tree of another one."""
        self.contradictions = _contradictions(comm, self._trees)  # where ranks contradict each other

    def global_rings(self, comm: Communicator) -> list[list[int | None]]:
        """Return the rings in global ranks."""
        return [[comm.global_rank(rank) for rank in ring] for ring in self._rings]

    def global_trees(self, comm: Communicator) -> list[list[list[int | None]]]:
        """Return the links of each channel's tree in global ranks."""
        of_channel = {}
        for tree, channels in self._trees:  # from both ends of each link; -1 leads nowhere
            links = {(links[-2], child) for _, links in tree for child in links[:-2]}
            links |= {(links[-1], links[-2]) for _, links in tree}
            known = (link for link in links if min(link) >= 0 and max(link) < comm.nranks)
            ranks = sorted([[comm.global_rank(parent), comm.global_rank(child)] for parent, child in known], key=str)
            of_channel.update(dict.fromkeys(channels, ranks))
        return [of_channel[channel] for channel in sorted(of_channel)]


class Layouts:
    """The layouts of communicators; those whose ranks print the same, as groups of one kind do, have one layout."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Layout] = {}

    def find_layout(self, comm: Communicator) -> Layout:
        """Return the layout of a communicator."""
        trees = frozenset([(rank, id(member.trees)) for rank, member in comm.members.items()])
        rings = [(rank, *map(id, member.rings.values())) for rank, member in comm.members.items() if member.rings]
        key = comm.nranks, trees, *rings
        if key not in self._known:
            self._known[key] = Layout(comm)
        return self._known[key]


class LayoutLines:
    """Lines on layout, found and made into evidence when a rule asks: a job may have thousands of communicators."""

    def __init__(
        self,
        members: Mapping[int, Member] = MappingProxyType({}),
        contradictions: Sequence[Contradiction] = (),
        evidence: Callable[[Step], Evidence] | None = None,
    ) -> None:
        self._members, self._contradictions, self._evidence = members, contradictions, evidence

    def counts(self) -> list[events.ChannelCounts]:
        """Return the numbers of channels of all members that state them."""
        return [member.counts for member in self._members.values() if member.counts]

    def channels(self) -> list[Evidence]:
        """Return the first line that counts the most channels."""
        counts = [(step, step.event.coll) for step in self._steps() if isinstance(step.event, events.ChannelCounts)]
        most = max((number for _, number in counts), default=0)
        return self._quote_first(step for step, number in counts if number == most)

    def ring(self, place: int) -> list[Evidence]:
        """Return the first line that prints a ring, by its place among the rings."""
        steps = [(step, step.event.channel) for step in self._steps() if isinstance(step.event, events.RingOrder)]
        channels = sorted({channel for _, channel in steps})[place : place + 1]
        return self._quote_first(step for step, channel in steps if channel in channels)

    def contradiction(self) -> list[Evidence]:
        """Return the lines of the first contradiction, one of each rank."""
        if not self._contradictions:
            return []
        first = self._contradictions[0]
        is_of_rings = first.what == RINGS

        def is_about(event: events.Event) -> bool:
            if isinstance(event, events.RingOrder):
                return is_of_rings and event.channel == first.channel
            trees = event.trees if isinstance(event, events.TreeLinks) and not is_of_rings else ()
            return any(tree[0] == first.channel for tree in trees)

        layouts = [self._members[rank].layout for rank in first.ranks]
        return [line for own in layouts for line in self._quote_first(step for step in own if is_about(step.event))]

    def _steps(self) -> list[Step]:
        return [step for member in self._members.values() for step in member.layout]

    def _quote_first(self, steps: Iterable[Step]) -> list[Evidence]:
        first = min(steps, key=PLACE, default=None)
        return [self._evidence(first)] if first and self._evidence else []


def ring_gdr(comm: Communicator) -> bool | None:
    """Return whether NCCL says that the ring NET edges of all ranks use GPUDirect."""
    values = [line.ring_gdr for line in _connections(comm) if line.ring_gdr is not None]
    return all(values) if values else None


def _connections(comm: Communicator) -> list[events.Connected]:
    steps = (step for member in comm.members.values() for step in member.connected)
    return [step.event for step in steps if isinstance(step.event, events.Connected)]


def algorithms(comm: Communicator, collnet: Sequence[int]) -> list[str]:
    """Return what it has besides rings and trees, as far as lines show: NVLS, NVLS tree, PAT, CollNet."""
    connected = {line.what for line in _connections(comm)}
    there = {
        "NVLS": any(member.counts and member.counts.nvls for member in comm.members.values()),
        "NVLS tree": "NVLS tree" in connected,
        "PAT": "binomial trees" in connected,
        "CollNet": "collnet + chain" in connected or bool(collnet),
    }
    return [name for name, is_there in there.items() if is_there]


def without_nvls(logs: Iterable[ProcessLog]) -> list[Step]:
    """Return lines that count no channels for reduction inside the switch; nothing where a line counts some."""
    without = []
    for step in (step for log in logs for step in log.steps):
        if isinstance(step, Step) and isinstance(step.event, events.ChannelCounts):
            if step.event.nvls:
                return []
            if step.event.nvls == 0:
                without.append(step)
    return without


def collnet(comm: Communicator) -> list[int]:
    """Return the ranks that are connected with a network that reduces; such connections have one end only."""
    edges = (
        (rank, edge) for rank, one in comm.members.items() for burst in one.bursts for edge in burst.edges.values()
    )
    return sorted({rank for rank, edge in edges if edge.event.transport == "COLLNET"})


def _contradictions(comm: Communicator, printed: Sequence[tuple[Tree, list[int]]]) -> list[Contradiction]:
    """Return where ranks contradict each other on rings and trees."""
    rings = []
    by_channel: dict[int, dict[tuple[int, ...], int]] = {}
    for rank, member in sorted(comm.members.items()):
        for channel, ring in member.rings.items():
            if not ring.cut:
                by_channel.setdefault(channel, {}).setdefault(ring.ranks, rank)
    for channel, orders in sorted(by_channel.items()):
        if len(orders) > 1:
            rings.append(Contradiction(channel, tuple(orders.values()), RINGS))
    torn: list[Contradiction] = []
    for tree, channels in printed:  # the links that only one of their ranks prints: first the rank that does
        of_rank = {rank: links for rank, links in tree if rank == links[-2]}
        above = [
            (rank, links[-1])
            for rank, links in of_rank.items()
            if links[-1] in of_rank and rank not in of_rank[links[-1]][:-2]
        ]
        below = {
            (rank, child)
            for rank, links in of_rank.items()
            for child in links[:-2]
            if child in of_rank and of_rank[child][-1] != rank
        }
        for what, found in ((_ABOVE, above), (_BELOW, below)):
            torn += [Contradiction(channel, link, what) for link in sorted(found) for channel in channels]
    return [*rings, *sorted(torn, key=itemgetter(0))]


def connected_ranks(comm: Communicator) -> list[int]:
    """Return the ranks that began to connect and whose connections are there: they say so, or COMPLETE follows them.

    Also where the process went on to another communicator: the line that says so is lost then.
    """
    return sorted(rank for rank, member in comm.members.items() if _is_connected(member))


def _is_connected(member: Member) -> bool:
    if member.connected:
        return True
    done = max(member.completed.place if member.completed else 0, member.went_on)
    return bool(member.bursts) and all(burst.last < done for burst in _join_bursts(member))


def _join_bursts(member: Member) -> list[Burst]:
    """Return its connections of rings and trees; those of send/recv have no ``Connected …`` line."""
    return [burst for burst in member.bursts if burst.key.conn != SEND_RECV]


def unconnected_ranks(comm: Communicator) -> list[int]:
    """Return the ranks that began to connect and may not have ended: until 2.7 only COMPLETE says that."""
    if any(member.connected for member in comm.members.values()):
        return []
    return sorted(rank for rank, member in comm.members.items() if _join_bursts(member) and not _is_connected(member))


def ranks_behind(comm: Communicator) -> list[int]:
    """Return the ranks that have yet to connect what others have, as their lines show.

    They lack a line that others have, and some of their channels; or connections of rings and trees follow their last
    line. Where they do on all ranks, it is the line that is missing (MSCCL makes connections without one).
    """
    known = {line.what for line in _connections(comm)}
    members = comm.members.values() if known else ()
    most = 0 if all(member.connected for member in members) else max(map(_channels, members))
    behind = sorted(member.rank for member in members if _is_behind(member, known, most))
    return behind if len(behind) < comm.nranks else []


def _is_behind(member: Member, known: set[str], most: int) -> bool:
    done = max(member.completed.place if member.completed else 0, member.went_on)
    bursts = _join_bursts(member)
    if member.ended or (bursts and all(burst.last < done for burst in bursts)):
        return False
    if not member.connected:
        return bool(bursts) and (len(known) > 1 or _channels(member) != most)
    last = member.connected[-1].place
    is_open = any(burst.key.conn == 0 and burst.last > last for burst in bursts)
    return is_open or not known.issubset(getattr(step.event, "what", "") for step in member.connected)


def _channels(member: Member) -> int:
    """Return a bit for each channel that its rings and trees have."""
    return reduce(or_, [edge.channels for burst in _join_bursts(member) for edge in burst.edges.values()], 0)


def state(comm: Communicator) -> str:
    """Return how far all ranks came that the log shows."""
    present = comm.members.values()
    ends = {
        member.ended.event.how for member in present if member.ended and isinstance(member.ended.event, events.CommEnd)
    }
    if ends & _GIVEN_UP:
        return "aborted"
    if ends and all(member.ended for member in present):
        return "destroyed"
    if not all(member.completed for member in present):
        return "started"
    busy = [member for member in present if member.bursts or member.connected]
    return "connected" if busy and all(map(_is_connected, busy)) else "complete"


_BOOTSTRAP = "nccl/bootstrap-timings"
PHASES = ("bootstrap", "topo", "graphs", "connections", "kernels", "alloc", "allgathers", "rest")
"""Of an initialisation, as :class:`~nccl_inspect.event.types.InitTimings` names them."""


class Lifetimes:
    """The stages of communicators."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._timings = by_process(statement for statement in statements if is_timing(statement.event))
        self._completed: dict[Process, list[int]] = {}  # where each process completed communicators

    def stages(self, comm: Communicator) -> list[Stage]:
        """Return the stages that some rank reached, in their order."""
        members = list(comm.members.values())
        took = [timing.event for member in members for timing in self._find(member)]
        stages = [
            _stage("started", [member.started for member in members]),
            _stage(
                "bootstrapped", [], [float(event.value("total")) for event in took if isinstance(event, events.Notice)]
            ),
            _stage(
                "complete",
                [member.completed for member in members],
                [event.total for event in took if isinstance(event, events.InitTimings)],
            ),
            _stage("connected", [max(member.connected, key=PLACE, default=None) for member in members]),
        ]
        ended: dict[str, list[Step]] = {}
        for member in members:
            if member.ended and isinstance(member.ended.event, events.CommEnd):
                name = "destroyed" if member.ended.event.how == "Destroy" else "aborted"
                ended.setdefault(name, []).append(member.ended)
        stages += [_stage(name, steps) for name, steps in ended.items()]
        return [stage for stage in stages if stage.ranks]

    def timings(self, comm: Communicator, quotes: Quotes) -> list[InitTiming]:
        """Return what each rank says of the time that its initialisation took, and of its parts."""
        return [
            InitTiming(
                member.rank,
                member.log.process,
                timing.event.total,
                {name: seconds for name in PHASES if (seconds := getattr(timing.event, name)) is not None},
            ).defer(evidence=partial(quotes.note, timing))
            for member in comm.members.values()
            for timing in self._find(member)
            if isinstance(timing.event, events.InitTimings)
        ]

    def _find(self, member: Member) -> Iterator[Note]:
        """Yield the lines from COMPLETE to that of another communicator, or for its bootstrap before COMPLETE."""
        log, done = member.log, member.completed
        timings = self._timings.get(log.process)
        if done is None or not timings:
            return
        if log.process not in self._completed:
            self._completed[log.process] = sorted(
                step.place
                for step in log.steps
                if isinstance(step.event, events.CommInit) and step.event.phase == "COMPLETE"
            )
        completed = self._completed[log.process]
        begin = bisect_right(timings, member.started.place if member.started else done.place, key=PLACE)
        after = bisect_right(completed, done.place)
        end = bisect_right(timings, completed[after], key=PLACE) if after < len(completed) else None
        for timing in timings[begin:end]:
            event = timing.event
            if timing.printed.tid != done.printed.tid:
                continue
            if not isinstance(event, events.InitTimings):
                if timing.place < done.place:
                    yield timing
            elif timing.place > done.place and (event.rank, event.nranks) == (member.rank, member.init.nranks):
                yield timing


def is_timing(event: Event | None) -> bool:
    """Return whether a statement only says how long something took."""
    return event is not None and (isinstance(event, events.InitTimings) or event.qualified_name == _BOOTSTRAP)


def _stage(name: str, steps: Iterable[Step | None], took: Sequence[float] = ()) -> Stage:
    reached = [step for step in steps if step is not None]
    stage = Stage(name, len(reached) or len(took), seconds=max(took, default=None))
    times = [(time, step.printed.time) for step in reached if (time := moment(step.printed.time))]
    if len(times) == len(reached) and times and are_in_order(*(time for time, _ in times)):
        stage.first, stage.last = min(times)[1], max(times)[1]
    return stage


def is_closed(ring: Sequence[int | None], nranks: int) -> bool:
    """Return whether a ring has each rank of the communicator once, so that its last rank leads back to its first."""
    return None not in ring and len(set(ring)) == len(ring) == nranks


def crossings(ring: Sequence[int | None], hosts: Mapping[int, str]) -> int | None:
    """Return how often a ring goes from one host to another; None where a host is not known."""
    there = [hosts.get(rank) if rank is not None else None for rank in ring]
    if None in there:
        return None
    return sum(map(bool, map(ne, there, [*there[1:], *there[:1]])))
