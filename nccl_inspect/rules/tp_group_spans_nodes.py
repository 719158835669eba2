"""A tensor-parallel group has ranks on several nodes."""

from collections.abc import Iterator

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.engine import Evidence, Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import first_lines, global_ranks
from nccl_inspect.judging.impact import in_use
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.watchdog import Wait, communicator_of, group_of, job_rank
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.patterns import later

_IS_TP = later(r"(?i)\((?!.*_and_)(?:.*[_-])?(?:tp|tensor)[_)-]")
"""The description of a process group: ``mesh_tp``, ``TENSOR_MODEL_PARALLEL_GROUP``; not of a joint group."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find groups that a framework's size or PyTorch's name for them shows to be tensor-parallel.

    A group with more ranks than any node has is certain.
    """
    if any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # NVLink connects these nodes
    sizes = facts.with_role("parallel-sizes")
    size, *others = {int(value(notice, "tp") or 0) for notice in sizes} or {0}
    local, world = _ranks_of_a_node(facts), facts.job.world_size or 0
    if not others and local is not None and facts.spans_hosts() and local < size <= world:
        groups = [comm for comm in facts.job.communicators if comm.nranks == size and len(comm.hosts) > 1]
        yield _hit(facts, groups, {"size": size, "local": local}, first_evidence(sizes))
        return
    comms, lines = _by_name(facts)
    spanning = [comm for comm in comms if len(comm.hosts) > 1]
    groups = [comm for comm in facts.job.communicators if 1 < comm.nranks < world]
    several = any(len(host.ranks) > 1 for host in facts.job.hosts)
    if spanning:
        first = spanning[0]
        yield _hit(facts, spanning, {"comm": first.id, "nranks": first.nranks, "nhosts": len(first.hosts)}, lines)
    elif not comms and not sizes and groups and several and all(len(comm.hosts) > 1 for comm in groups):
        yield Hit(named={"unknown": True})


def _hit(facts: Facts, comms: list[CommunicatorInfo], named: dict[str, object], lines: list[Evidence]) -> Hit:
    names = {comm.id for comm in comms}
    paths = facts.inter_host_net_paths().only(("communicators",), lambda comms: names.intersection(comms))
    return Hit(
        named=named | {"net": in_use(paths, facts.platform)},
        ranks={rank for comm in comms for rank in global_ranks(comm, range(comm.nranks))},
        hosts={host for comm in comms for host in comm.hosts} or set(facts.hosts()),
        evidence=[*lines[:2], *first_lines(paths)[:2]],
        paths=paths,
    )


def _by_name(facts: Facts) -> tuple[list[CommunicatorInfo], list[Evidence]]:
    """The communicators of process groups with a tensor-parallel name, with lines that name them."""
    members: dict[str, list[Wait]] = {}
    for notice in facts.job.notices:
        group = group_of(notice.message) if notice.event and notice.event.dialect == "torch" else None
        if group is not None and _IS_TP.search(group):
            members.setdefault(group, []).append(_place(notice, group))
    groups = [(communicator_of(facts, group, places), places[0]) for group, places in members.items()]
    matched = [(comm, place) for comm, place in groups if comm is not None]
    return [comm for comm, _ in matched], [place.notice.evidence[0] for _, place in matched]


def _place(notice: Notice, group: str) -> Wait:
    """The rank that a line of a process group names as its origin."""
    event = notice.event
    if isinstance(event, CollectiveTimeout):
        member, rank = event.rank, event.global_rank
    else:
        values = dict(getattr(event, "values", ()))
        member, rank = values.get("rank"), values.get("global_rank")
    return Wait(group, job_rank(rank, member, group), member, 0, "", None, 0, notice)


def _ranks_of_a_node(facts: Facts) -> int | None:
    """The largest number of ranks on a host; None if ranks may be missing from the log."""
    world = next((comm for comm in facts.job.communicators if comm.id == "world"), None)
    if world is None:
        return None
    if world.local_ranks is not None:
        return world.local_ranks
    return max(len(host.ranks) for host in facts.job.hosts) if len(world.started) == world.nranks else None
