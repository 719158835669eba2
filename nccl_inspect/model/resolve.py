"""Resolves a fold into a :class:`~nccl_inspect.model.job.Job`: then its notices, its calls, and how far ranks came."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process, hide_secrets
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.model import inventory, processes, versions
from nccl_inspect.model.communicators import attribution, communicator, rings_and_trees
from nccl_inspect.model.communicators.communicator import SEND_RECV, Communicator, Member, ProcessMembers
from nccl_inspect.model.communicators.rings_and_trees import LayoutLines
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold import PAIRED, Fold, Note, ProcessLog, Raised, SourceCounts, position, source_and_line
from nccl_inspect.model.job import CommunicatorInfo, Earliest, Job, Notice, Unrecognised
from nccl_inspect.model.jobs import runs_of
from nccl_inspect.model.paths import build
from nccl_inspect.model.paths.table import Paths
from nccl_inspect.model.processes import Gathered, walk_logs
from nccl_inspect.model.statements import job_failure, unrecognised
from nccl_inspect.model.statements.environment import MAX_EVIDENCE, settings
from nccl_inspect.model.statements.index import Quotes, Statement, by_process, statements
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.secrets import mask_secrets
from nccl_inspect.util.text import decode
from nccl_inspect.util.times import Moment, are_in_order, moment

_NONE = dict[str, list[int]]()


def resolve(fold: Fold, gathered: Gathered | None = None) -> Job:
    """Return the job that a log shows, without findings; of several runs the newest."""
    gathered = gathered or Gathered.gather(fold)
    *earlier, newest = runs_of(fold, gathered).items()
    if not earlier:
        return _Builder(fold, gathered).job()
    steps = (step for _, share in earlier for log in share.processes.values() for step in log.steps)
    ids = {getattr(step.event, "comm_id", None) for step in steps if getattr(step.event, "phase", "") == "COMPLETE"}
    job = _Builder(newest[1], Gathered.gather(newest[1]), ids).job()
    job.earlier_runs, job.sources = [place for place, _ in earlier], _list_sources(fold, gathered)
    return job


def _list_sources(fold: Fold, gathered: Gathered) -> list[inventory.SourceInfo]:
    infos = {index: source.info() for index, source in fold.sources_by_number.items()}
    for note in unrecognised.torn(fold):
        info = infos[source_and_line(note.place)[0]]
        info.unrecognised_lines -= 1
        info.damaged_lines += 1
    for place in gathered.refused:
        infos[source_and_line(place)[0]].damaged_lines += 1
    return list(infos.values())


_TORN_PER_PIECE = 4  # torn lines among which at most one still reads as a connection


class _Builder:
    def __init__(self, fold: Fold, gathered: Gathered, earlier_ids: Collection[str | None] = ()) -> None:
        self._fold, self._gathered, self._earlier_ids = fold, gathered, {*earlier_ids} - {None}
        self.quotes = Quotes(fold.where)
        self._quote_step = self.quotes.step
        self._shared: dict[tuple[object, ...], list[Any]] = {}
        self._repeated = [step for left_out in gathered.repeated.values() for step in left_out]
        self._processes, self._communicators = gathered.processes, gathered.communicators
        logs: list[ProcessLog] = []
        for log, lives in zip(gathered.logs, gathered.lives, strict=True):
            # Lives in different sources may have been at once: what only looked like several lives is one.
            at_once = len({source_and_line(life.first)[0] for life in lives}) == len(lives)
            logs += lives if at_once else [log]
        if len(logs) < len(self._processes):
            self._processes, self._communicators, _ = walk_logs(logs)
        own = {id(log) for log in gathered.logs}
        logs += [log for log in gathered.everything if id(log) not in own]  # what was said by nobody that is known
        self._statements = statements(logs)
        largest = communicator.find_world(self._communicators)
        self._world = communicator.make_world(self._communicators, logs, largest)
        communicator.number(self._communicators, self._world)
        unfinished = (comm for comm in self._communicators if not any(one.completed for one in comm.members.values()))
        self._unfinished_by_id = group_values((comm_id, comm) for comm in unfinished for comm_id in comm.ids)
        self.attribution = attribution.attribute(self._processes)
        self._lines = build.place_lines(self._communicators, self._world, self.attribution, self._statements)
        self._cut_out = len({process for fragment in self._lines.fragments for process in fragment.ranks})
        """How many processes print connections of communicators that the log does not show."""
        self._torn = unrecognised.torn(fold)
        self._releases = {
            name: engine.find_details(dialect, name).versions for dialect, name in fold.productions if dialect == "nccl"
        }
        self._ranks = {process.log.process: self._ranks_of(process) for process in self._processes}
        for log in logs:
            if not log.process.host and log.opening.rank is not None:  # nobody that is known, with a label
                self._ranks[log.process] = [log.opening.rank]

    def job(self) -> Job:
        notices = self._join_notices()
        self._groups = name_groups(self._communicators, self._processes, self._statements, notices)
        self.layouts = rings_and_trees.Layouts()
        self._likely = likely_parallelism(self._communicators, self._world)
        releases = _values(notices, events.NcclVersion, "version")
        if not releases:  # PyTorch's exceptions may name one
            errors = (notice.event for notice in notices if notice.production == "torch/nccl-error")
            named = {event.value("version") for event in errors if isinstance(event, events.Notice)} - {None, ""}
            releases = sorted(set(map(versions.read_torch_version, named)))
        if not releases and (inferred := versions.infer(set(self._releases.values()))):
            releases = [inferred]
        environment = settings(self._processes, self._statements, self._ranks, self.quotes, releases)
        shm_off = any(setting.name == "NCCL_SHM_DISABLE" and setting.value != "0" for setting in environment)
        classes = build.gpu_classes(notices)
        built = build.build(self._lines, self._communicators, self.quotes.edge, not shm_off)
        if classes:
            bus_ids = {
                rank: member.init.bus_id for rank, member in self._list_ranked() if member.init.bus_id is not None
            }
            built = build.name_classes(built, classes, bus_ids)
        torn = set(map(id, self._torn))
        unknown = [note for note in self._fold.unrecognised.values() if id(note) not in torn]
        counts = [source.counts for source in self._fold.sources_by_number.values()]
        in_doubt = sum(source.damaged_lines + len(source.doubtful) for source in counts)
        shown = self._lines.unplaced
        unplaced = self.attribution.given_up + shown.total()
        if unplaced * _TORN_PER_PIECE <= in_doubt:  # in a torn log a few of these are pieces of two
            unplaced, shown = 0, Counter()
        world_size = self._world.nranks if self._world else ranks_of_nccl_tests(notices)
        return Job(
            sources=_list_sources(self._fold, self._gathered),
            world_size=None if self._world and self._world.is_open else world_size,
            ranks_seen=sorted({rank for ranks in self._ranks.values() for rank in ranks}),
            rank_space="global" if self._world else "communicator",
            dialects=sorted({dialect for dialect, _ in self._fold.productions}),
            nccl_versions=releases,
            cuda_versions=sorted({versions.cuda(text) for text in _values(notices, events.CudaDriver, "cuda_version")}),
            hosts=self._hosts(),
            isolated_hosts=processes.isolated_hosts(self._processes),
            network=self._network(notices),
            environment=environment,
            communicators=[self._info(comm) for comm in self._communicators],
            paths=built,
            notices=notices,
            unrecognised=[
                Unrecognised(shape, count, self.quotes.note(note))
                for shape, count, note in unrecognised.group_templates(unknown)
            ],
            unplaced_paths=dict(shown.most_common()),
            unplaced_lines=unplaced + unrecognised.connections(unknown, self._shows(built)),
            processes=len(self._processes),
            failed=any(job_failure.failed_calls(notices)),
            ended_by=self._ended_by(),
            broken_off=self._broken_off(),
            partial=self._fold.partial,
            excerpt=unrecognised.is_excerpt(self._fold, environment),
            alongside=self._fold.alongside,
            damaged=self._show_lines(lambda source: source.counts.broken),
            repeated=sorted(map(self.quotes.step, self._repeated), key=lambda line: line.position),
            raised=self._show_lines(lambda source: source.raised),
            raised_by=processes.raised_by(self._fold.sources_by_number, self._processes, self._ranks),
            spared=self._show_lines(lambda source: source.spared),
            benchmarks=self._show_lines(lambda source: source.results()),
            repaired=self._show_lines(lambda source: source.counts.mended),
            doubtful={
                (source.name, number)
                for source in self._fold.sources_by_number.values()
                for number in source.counts.doubtful
            },
        ).defer(
            gpus=self._gpus,
            local_ranks=lambda: communicator.local_ranks(self._world),
            calls=self._calls,
            without_nvls=lambda: [
                self.quotes.step(step)
                for step in rings_and_trees.without_nvls(process.log for process in self._processes)[:MAX_EVIDENCE]
            ],
            last_lines=self._last_lines,
            timeline=self._timeline,
        )

    def _show_lines(self, pick: Callable[[SourceCounts], Iterable[tuple[int, bytes] | Raised]]) -> list[Evidence]:
        """Return lines that are kept of each source."""
        return [
            Evidence(source.name, source.line(number), decode(text), number)
            for source in self._fold.sources_by_number.values()
            for number, text, *_ in pick(source)
        ]

    def _global_rank(self, member: Member) -> int | None:
        return member.communicator.global_rank(member.rank) if member.communicator else None

    def _ranks_of(self, process: ProcessMembers) -> list[int]:
        ranks = {self._global_rank(member) for member in process.members} - {None}
        if ranks:
            return sorted(rank for rank in ranks if rank is not None)
        process_id = process.log.process
        fragments = self._lines.fragments
        own = [(one, rank) for one in fragments if (rank := one.ranks.get(process_id)) is not None]
        by_gpu = group_sets((one.devices.get(rank), rank) for one, rank in own)
        # A GPU has another rank in each communicator: that among all processes is the one of the job.
        of_all = {(one.devices.get(rank), rank) for one, rank in own if len(one.ranks) == self._cut_out}
        chosen = [
            {rank for rank in some if len(some) == 1 or (device, rank) in of_all} for device, some in by_gpu.items()
        ]
        return sorted({rank for some in chosen if len(some) == 1 for rank in some})

    def _list_ranked(self) -> Iterator[tuple[int, Member]]:
        """Yield the members whose global rank is known, with it."""
        for member in (member for process in self._processes for member in process.members):
            if (rank := self._global_rank(member)) is not None:
                yield rank, member

    def _join_notices(self) -> list[Notice]:
        """Return one notice for each statement, in the order of the log."""
        steps = ((process.log.process, member.completed) for process in self._processes for member in process.members)
        ends = group_values(((process, step.printed.tid), step.place) for process, step in steps if step is not None)
        completed = {thread: max(places) for thread, places in ends.items()}
        # Nearly each process has timings of its own, and no rule asks for them.
        statements = [entry for entry in self._statements if not rings_and_trees.is_timing(entry.event)]
        warned = {entry.message for entry in statements if entry.level == "WARN" and entry.location is not None}
        retold = {  # exceptions passed these warnings on, of which the process is not known
            id(entry)
            for entry in statements
            if entry.level == "WARN" and entry.message in warned and entry.location is None
            if not any(process.host for process in entry.processes)
        }
        return [self._notice(entry, completed) for entry in statements if id(entry) not in retold]

    def _notice(self, statement: Statement, completed: Mapping[tuple[Process, int], int]) -> Notice:
        event, printers, notes, quote = statement.event, statement.processes, statement.notes, self.quotes.note
        notice = Notice(
            event=event and hide_secrets(event),
            production=event.qualified_name if event else "",
            level=statement.level,
            message=mask_secrets(decode(statement.message)),
            count=sum(note.count for note in notes),
            place=notes[0].place,
            ranks=[],
            hosts=[],
            processes=printers,
            evidence=[],
            earliest=_UNMADE,
            releases=self._releases.get(event.production, "") if event else "",
            rule=engine.find_details(event.dialect, event.production).rule if event else "",
            roles=engine.find_roles(event) if event else frozenset(),
            location=statement.location,
        )
        return notice.defer(
            ranks=lambda: sorted({rank for process in printers for rank in self._ranks.get(process, ())}),
            hosts=lambda: list(dict.fromkeys([process.host for process in printers if process.host])),
            evidence=lambda: list(map(quote, notes[:MAX_EVIDENCE])),
            lines=lambda: notice.evidence if len(notes) <= MAX_EVIDENCE else list(map(quote, notes)),
            earliest=lambda: _earliest(statement, quote),
            until=lambda: [source_and_line(note.last)[1] for note in notes],
            outlived=lambda: all(  # after each thread made the statement for the last time
                note.last < completed.get((process, note.printed.tid), -1)
                for process, note in zip(printers, notes, strict=True)
            ),
        )

    def _hosts(self) -> list[inventory.Host]:
        ranks: dict[str, set[int]] = {}
        gpus: dict[str, set[str]] = {}
        for process in self._processes:
            name = process.log.process[0]
            ranks.setdefault(name, set()).update(self._ranks[process.log.process])
            gpus.setdefault(name, set()).update(member.gpu.device for member in process.members)
        for (_, rank), name in self._lines.hosts.items():
            ranks.setdefault(name, set()).add(rank)
        hosts = [inventory.Host(name, sorted(own_ranks), len(gpus.get(name, ()))) for name, own_ranks in ranks.items()]
        return sorted(hosts, key=lambda host: (host.ranks or [1 << 30], host.name))

    def _gpus(self) -> dict[int, inventory.Gpu]:
        gpus = group_sets((rank, (member.init.nvml_dev, member.init.bus_id)) for rank, member in self._list_ranked())
        return {rank: inventory.Gpu(*named.pop()) for rank, named in sorted(gpus.items()) if len(named) == 1}

    def _network(self, notices: list[Notice]) -> inventory.Network:
        used = self._lines.networks
        members = (member for comm in self._communicators for member in comm.members.values())
        named = used or Counter(member.network for member in members if member.network)
        name = named.most_common(1)[0][0] if named else None
        network = inventory.Network(name=name)
        by_plugin = name is not None and name not in inventory.BUILT_IN
        for notice in notices:
            match notice.event:
                case events.NetDevices(net=net, devices=devices) if net == name:
                    network.devices = list(dict.fromkeys([*network.devices, *(device[1] for device in devices)]))
                case _ if not by_plugin:
                    continue
                case events.OfiProvider(provider=provider):
                    network.provider = provider
                case events.PluginStatus(kind="NET", status="loading", plugin=plugin, detail=version):
                    network.plugin, network.plugin_version = plugin, version
                case events.PluginStatus(kind="NET", status="loaded", plugin=plugin):
                    network.plugin = network.plugin or plugin
        return network

    def _share(self, values: Iterable[Any]) -> list[Any]:
        """Return a list; the same for all communicators that have the same: a program may make a million of them."""
        key = tuple(values)
        return self._shared.get(key) or self._shared.setdefault(key, list(key))

    def _info(self, comm: Communicator) -> CommunicatorInfo:
        present = list(comm.members.values())
        by_rank = [comm.members[rank] for rank in sorted(comm.members)]
        counts = [member.counts.coll for member in present if member.counts]
        networks = _networks(present)
        layout, share = self.layouts.find_layout(comm), self._share
        rivals = [other for comm_id in comm.ids for other in self._unfinished_by_id.get(comm_id, ())]
        reused = (member.init.comm_id for member in present if member.init.comm_id in self._earlier_ids)
        info = CommunicatorInfo(
            id=comm.name,
            parent=comm.parent.name if comm.parent else None,
            color=comm.color,
            ordinal=comm.ordinal,
            group=self._groups.get(comm.name),
            parallelism=None if comm.name in self._groups else self._likely.get(comm.name),
            inconsistent=share(map(str, layout.contradictions)),
            layout=LayoutLines(comm.members, layout.contradictions, self._quote_step),
            nranks=comm.nranks,
            ranks=share(comm.global_ranks),
            hosts=share(dict.fromkeys([member.log.process[0] for member in by_rank])),
            channels=max(counts) if counts else None,
            rings=[],
            incomplete_rings=layout.incomplete,
            trees=[],
            state=rings_and_trees.state(comm),
            started=share([member.rank for member in by_rank]),
            completed=share([member.rank for member in by_rank if member.completed]),
            connected=share(rings_and_trees.connected_ranks(comm)),
            unconnected=share(rings_and_trees.unconnected_ranks(comm)),
            behind=share(rings_and_trees.ranks_behind(comm)),
            ended=share([member.rank for member in by_rank if member.ended]),
            reused_id=next(reused, None) or "",
            contested=share(communicator.list_contested(comm, *rivals)),
            nnodes=comm.nnodes,
            local_ranks=comm.local_ranks,
            ring_gdr=rings_and_trees.ring_gdr(comm),
            network=next(iter(networks), None),
            networks={net: sorted(member.rank for member in members) for net, members in networks.items()} or _NONE,
        )
        return info.defer_to(_Details(self, comm, info), _DETAILS)

    @cached_property
    def lifetimes(self) -> rings_and_trees.Lifetimes:
        return rings_and_trees.Lifetimes(self._statements)

    def _shows(self, paths: Paths) -> Callable[[Process, int, int | None], bool]:
        """Return whether there is a path between two ranks of each communicator of a process that has both.

        Where the second rank is cut off and the first is another process, the second is the one that printed the line.
        """
        pairs: set[tuple[int | None, ...]] = set()
        members = {process.log.process: process.members for process in self._processes}

        def is_shown(process: Process, src: int, dst: int | None) -> bool:
            meant: set[tuple[int | None, ...]] = set()
            for member in members.get(process, ()):
                own = member.communicator.global_ranks if member.communicator else []
                to = dst if dst is not None else member.rank
                if max(src, to) < len(own):
                    meant.add((own[src], own[to] if dst is not None or src != to else None))
            if meant and not pairs:
                pairs.update(paths.distinct("src", "dst"))
            return bool(meant) and meant <= pairs

        return is_shown

    def _last_lines(self) -> list[inventory.LastLine]:
        where, lines = self._fold.where, list[inventory.LastLine]()

        def quote(log: ProcessLog) -> Evidence | None:
            """Return the last line of a process of which more than its place is kept."""
            ends = [*log.notes.values(), *log.steps[-1:], *log.open.values()]
            return self.quotes.last(max(ends, key=attrgetter("last"))) if ends else None

        for log in (process.log for process in self._processes):
            line = inventory.LastLine(
                log.process, self._ranks[log.process], *where(log.last), log.closing.origin.device, log.closing.time
            )
            is_in_one = source_and_line(log.first)[0] == source_and_line(log.last)[0]
            line.first = where(log.first)[2] if is_in_one else 0
            lines.append(line.defer(evidence=partial(quote, log)))
        return lines

    def _calls(self) -> list[inventory.Calls]:
        """Return the calls: all ranks of a communicator make the same collective ones, each is counted once."""
        by_slot: dict[tuple[object, ...], inventory.Calls] = {}
        for process in self._processes:
            for key, tally in process.log.calls.items():
                members = [  # pointers are used again, so the communicator must live from the first to the last
                    member
                    for member in process.members
                    if (member.init.comm, member.init.nranks) == (key.comm, key.nranks)
                    and member.lives_at(tally.first)
                    and member.lives_at(tally.last)
                ]
                member = members[0] if len(members) == 1 else None
                comm = member.communicator if member else None
                rank = self._global_rank(member) if member else None
                ranks = comm.global_ranks if comm else ()
                calls = inventory.Calls(
                    communicator=comm.name if comm else None,
                    func=key.func,
                    datatype=key.datatype,
                    nranks=key.nranks,
                    root=ranks[key.root] if key.root is not None and key.root < len(ranks) else None,
                    calls=tally.calls,
                    elements=tally.elements,
                    smallest=tally.smallest,
                    largest=tally.largest,
                    ranks=[rank] if rank is not None else [],
                    place=tally.first,
                    leader=process.log.process if member and member.init.rank == 0 else None,
                )
                own = calls.ranks if calls.func in PAIRED else ()
                slot = (calls.communicator, key.nranks, key.func, key.datatype, calls.root, key.size_class, *own)
                total = by_slot.setdefault(slot, calls)
                if total is not calls:
                    if calls.calls > total.calls:  # a log that was cut short has fewer
                        total.calls, total.elements = calls.calls, calls.elements
                    total.smallest = min(total.smallest, calls.smallest)
                    total.largest = max(total.largest, calls.largest)
                    total.ranks = sorted({*total.ranks, *calls.ranks})
                    total.place = min(total.place, calls.place)
                    total.leader = total.leader or calls.leader
        return sorted(by_slot.values(), key=lambda calls: (calls.place, calls.func))

    def _timeline(self) -> list[inventory.Progress]:
        """Return the progress of each rank, by rank.

        Stamps of different clocks (with and without time zone, or without a year) cannot be compared: those of the
        clock that most lines have are kept. A rank of which only one time is known is left out.
        """
        timed = []
        for process in self._processes:
            seen = set()  # the first communicator of each rank counts; ranks may be threads of one process
            for member in sorted(process.members, key=lambda member: member.first.place):
                rank = self._global_rank(member)
                key = rank if rank is not None else member.gpu
                if key not in seen:
                    seen.add(key)
                    timed.append((process.log, member, _times(process.log, member)))
        clocks = Counter(when.clock for _, _, times in timed for _, when, _, _ in times)
        if not clocks:
            return []
        clock = clocks.most_common(1)[0][0]
        progress = []
        for log, member, times in timed:
            stamps = {
                name: inventory.Stamp(when.seconds, printed.time or "", *self._fold.where(place)[:2])
                for name, when, place, printed in times
                if when.clock == clock
            }
            if len(stamps) > 1:
                progress.append(
                    inventory.Progress(self._global_rank(member), log.process.host, log.process.pid, stamps)
                )
        return sorted(progress, key=lambda row: (row.rank is None, row.rank or 0, row.host, row.pid))

    def _broken_off(self) -> list[Evidence]:
        ends = {index: source.end for index, source in self._fold.sources_by_number.items()}
        last = build.unfinished_connections((process.log for process in self._processes), ends)
        return list(map(self.quotes.edge, last[:MAX_EVIDENCE]))

    def _ended_by(self) -> list[Evidence]:
        """Return the last line of each kind that ends the job; one that processes begin after ended something else."""
        lines = {
            place: decode(statement.message)
            for statement in self._statements
            if job_failure.is_end(statement.event)
            for place in (note.last for note in statement.notes)
        }
        for index, source in self._fold.sources_by_number.items():
            for number, text in source.counts.tail:
                if message := job_failure.end_text(text, self._fold.known.wrapped):
                    lines.setdefault(position(index, number), decode(message))
        begun: dict[int, int] = {}  # by source the line at which the last process begins
        begun.update(sorted(source_and_line(process.log.first) for process in self._processes))
        return [
            self.quotes.line(place, lines[place])
            for place in sorted(lines)
            for source_at, number in [source_and_line(place)]
            if number >= begun.get(source_at, 0)
        ]


class _Details(NamedTuple):
    """Makes what few ask of a communicator; a function for each field would take more memory than all the rest."""

    builder: _Builder
    comm: Communicator
    info: CommunicatorInfo

    def get(self, name: str) -> Callable[[], object] | None:
        """Return what makes a field."""
        return partial(_DETAILS[name], self.builder, self.comm, self.info) if name in _DETAILS else None

    def pop(self, _name: str, _otherwise: None) -> None:
        """Keep what makes the others."""


_DETAILS: dict[str, Callable[[_Builder, Communicator, CommunicatorInfo], object]] = {
    "lifetime": lambda builder, comm, _: builder.lifetimes.stages(comm),
    "timings": lambda builder, comm, _: builder.lifetimes.timings(comm, builder.quotes),
    "algorithms": lambda _, comm, info: rings_and_trees.algorithms(comm, info.collnet),
    "collnet": lambda _, comm, __: rings_and_trees.collnet(comm),
    "rings": lambda builder, comm, _: builder.layouts.find_layout(comm).global_rings(comm),
    "trees": lambda builder, comm, _: builder.layouts.find_layout(comm).global_trees(comm),
    "network_lines": lambda builder, comm, _: [  # the first that names each network
        line
        for some in _networks(comm.members.values()).values()
        for line in builder.quotes.first_steps([member.network_line for member in some if member.network_line], 1)
    ],
    "announced": lambda _, comm, __: [rank for rank in sorted(comm.members) if comm.members[rank].started],
    "begins": lambda builder, comm, _: [
        inventory.Begin(
            rank,
            member.log.process,
            *builder.quotes.where((member.started or member.first).place),
            bool(member.completed),
            source_and_line(member.completed.place)[1] if member.completed else 0,
        )
        for rank, member in sorted(comm.members.items())
    ],
    "guessed": lambda builder, comm, _: (  # there are connections, and all are guessed
        any(member.bursts for member in comm.members.values())
        and all(id(burst) in builder.attribution.guessed for member in comm.members.values() for burst in member.bursts)
    ),
    "evidence": lambda builder, comm, _: builder.quotes.first_steps(
        [member.first for member in comm.members.values()], MAX_EVIDENCE
    ),
}


def _values(notices: Iterable[Notice], kind: type[events.Event], name: str) -> list[str]:
    return sorted({str(getattr(notice.event, name)) for notice in notices if isinstance(notice.event, kind)})


def _networks(members: Iterable[Member]) -> dict[str, list[Member]]:
    return group_values((network, member) for member in members if (network := member.network))


_UNMADE = Earliest([], device=None, time=None, evidence=Evidence("", 0, ""), is_ordered=False)
"""Until somebody asks who made a statement first."""


def _earliest(statement: Statement, quote: Callable[[Note], Evidence]) -> Earliest:
    """Return who said it first: by time where all have times of one clock, else the first in the log."""
    first, processes = statement.notes[0], statement.processes[:1]
    times = [moment(note.printed.time) for note in statement.notes] if first.printed.time else [None]
    ordered = are_in_order(*times)
    if ordered:
        seconds = [time.seconds for time in times if time]
        earliest = min(seconds)
        first = statement.notes[seconds.index(earliest)]
        processes = [process for process, when in zip(statement.processes, seconds, strict=True) if when == earliest]
    return Earliest(processes, first.printed.origin.device, first.printed.time, quote(first), ordered)


def _times(log: ProcessLog, member: Member) -> list[tuple[str, Moment, int, Origin | Late]]:
    """Return when a process printed, and when a member of it got how far, as far as lines have a time."""
    steps = {
        "started": member.started,
        "completed": member.completed,
        "connected": member.connected[-1] if member.connected else None,
        "ended": member.ended if member.ended and isinstance(member.ended.event, events.CommEnd) else None,
    }
    marks = [("first", log.first, log.opening), *((name, *step[:2]) for name, step in steps.items() if step)]
    return [
        (name, when, place, printed)
        for name, place, printed in [*marks, ("last", log.last, log.closing)]
        if printed.time and (when := moment(printed.time))
    ]


GROUP = compile_later(r"\[PG (?:ID \S+ PG GUID )?(\S+?)(?: ?\(([^()]*)\))? Rank \d")
"""A process group in a line of PyTorch: its name, and what the program calls it."""
_NOTHING = ("undefined", "")
_BEGIN = attrgetter("first.place")


def name_groups(
    communicators: Sequence[Communicator],
    processes: Iterable[ProcessMembers],
    statements: Iterable[Statement],
    notices: Iterable[Notice],
) -> dict[str, str]:
    """By the names of communicators what the program calls them, where the log proves it and all ranks agree."""
    by_name = group_sets((*_given_to_nccl(processes, statements), *_list_torch_names(communicators, notices)))
    return {comm: distinct.pop() for comm, distinct in by_name.items() if len(distinct) == 1}


def _given_to_nccl(processes: Iterable[ProcessMembers], statements: Iterable[Statement]) -> Iterable[tuple[str, str]]:
    """``Comm config Comm name set to …`` is of the communicator that starts next on the thread."""
    given = by_process(
        statement
        for statement in statements
        if isinstance(statement.event, events.EnvSetting)
        and (statement.event.origin, statement.event.name) == ("config", "Comm name")
    )
    for process in processes if given else ():
        begun = sorted(process.members, key=_BEGIN)
        threads = group_values((member.first.printed.tid, member) for member in begun)
        for said in given.get(process.log.process, ()):
            started = threads.get(said.printed.tid, [])
            at = bisect_right(started, said.place, key=_BEGIN)
            comm = started[at].communicator if at < len(started) else None
            if comm is not None and isinstance(said.event, events.EnvSetting):
                yield comm.name, said.event.value


def _list_torch_names(communicators: Sequence[Communicator], notices: Iterable[Notice]) -> Iterable[tuple[str, str]]:
    """Yield lines with the pointer of the communicator; else the ranks of a group that only one communicator has so."""
    pointers: dict[tuple[str, int], list[Communicator]] = {}  # communicators by pointers and ranks of their members
    places: dict[str, set[tuple[int, int]]] = {}
    for notice in notices:
        match = GROUP.search(notice.message) if notice.event and notice.event.dialect == "torch" else None
        if match is None:
            continue
        name = match[1] if match[2] in (None, *_NOTHING) else match[2]
        values = _list_values(notice.event)
        rank, job_rank = values.get("rank"), values.get("global_rank", values.get("world_rank"))
        if values.get("comm") is not None and rank is not None and not name.isdigit():
            pointers = pointers or group_values(
                ((member.init.comm, member.rank), comm) for comm in communicators for member in comm.members.values()
            )
            candidates = pointers.get((values["comm"], rank), [])
            comms = {id(c): c for c in candidates if job_rank is None or c.global_rank(rank) in (None, job_rank)}
            if len(comms) == 1:
                yield comms.popitem()[1].name, name
        elif rank is not None and job_rank is not None and not name.isdigit():
            places.setdefault(name, set()).add((rank, job_rank))
    for name, some in places.items():
        fits = [comm for comm in communicators if all(comm.global_rank(rank) == job_rank for rank, job_rank in some)]
        if len({(tuple(comm.global_ranks), comm.nranks) for comm in fits}) == 1 and len(some) > 1:
            yield fits[0].name, name


def _list_values(event: Any) -> Mapping[str, Any]:
    if isinstance(event, events.CollectiveTimeout):
        return {"rank": event.rank, "global_rank": event.global_rank}
    return dict(getattr(event, "values", ()))


def ranks_of_nccl_tests(notices: Iterable[Notice]) -> int | None:
    """Return the size of the world where nccl-tests lists its ranks, each once, and NCCL says nothing of them."""
    places = [dict(getattr(notice.event, "values", ())) for notice in notices if "rank-list" in notice.roles]
    ranks = sorted(int(place["rank"]) for place in places)
    once = all(notice.count == 1 for notice in notices if "rank-list" in notice.roles)
    return len(ranks) if ranks and once and ranks == list(range(len(ranks))) else None


def likely_parallelism(
    communicators: Sequence[Communicator], world: Communicator | None
) -> dict[str, inventory.Parallelism]:
    """By the names of communicators what they are likely for."""
    if world is None:
        return {}
    families: dict[tuple[int, int, bool], list[Communicator]] = {}
    for comm in communicators:
        if comm is world or not 1 < comm.nranks < world.nranks:
            continue
        ranks = [rank for rank in comm.global_ranks if rank is not None]
        steps = {after - before for before, after in pairwise(ranks)}
        if len(ranks) == comm.nranks and len(steps) == 1 and (stride := steps.pop()) > 0:
            bursts = [burst for member in comm.members.values() for burst in member.bursts]
            connected = any(member.connected for member in comm.members.values())
            only_exchanges = bool(bursts) and not connected and all(burst.key.conn == SEND_RECV for burst in bursts)
            families.setdefault((comm.nranks, stride, only_exchanges), []).append(comm)
    sets: dict[tuple[int, int, bool], list[Communicator]] = {}
    """One communicator for each set of ranks, where these sets have every rank of the world exactly once."""
    for key, family in families.items():
        by_ranks = {tuple(comm.global_ranks): comm for comm in family}
        ranks = [rank for some in by_ranks for rank in some if rank is not None]
        if len(ranks) == len(set(ranks)) == world.nranks:
            sets[key] = list(by_ranks.values())
    strides = {stride for _, stride, _ in sets if stride > 1}
    by_name: dict[str, inventory.Parallelism] = {}
    for key, tiling in sets.items():
        read = _read(tiling, key, strides)
        if read is not None:
            by_name.update((comm.name, read) for comm in families[key])
    return by_name


def _read(comms: list[Communicator], key: tuple[int, int, bool], strides: set[int]) -> inventory.Parallelism | None:
    """Return the reading of one set of siblings."""
    size, stride, only_exchange = key
    if any(len(comm.members) < comm.nranks for comm in comms):
        return None  # where a rank is cannot be told
    number = len(comms)
    hosts = [len({member.log.process.host for member in comm.members.values()}) for comm in comms]
    if stride == 1 and max(hosts) == 1:
        return inventory.Parallelism(
            "TP", f"{number} groups of {size} neighbouring ranks, each within one host, cover the job"
        )
    if stride == 1 or min(hosts) == 1:
        return None
    ending = {1: "st", 2: "nd", 3: "rd"}.get(stride % 10, "th") if stride % 100 not in (11, 12, 13) else "th"
    shape = f"{number} groups of every {stride}{ending} rank, each across hosts, cover the job"
    if only_exchange:
        return inventory.Parallelism("PP", f"{shape}; they only send and receive")
    if len(strides) > 1:
        return None  # several kinds of strided groups: which is data and which pipeline parallelism is open
    return inventory.Parallelism("DP", shape)
