"""A tensor-parallel group has ranks on several nodes."""

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Needs, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, global_ranks
from nccl_inspect.judging.hangs.watchdog import Wait, communicator_of, group_of, job_rank
from nccl_inspect.judging.impact import ON_NVLINK, estimate, in_use
from nccl_inspect.judging.remedies import GPUS_IN_POD
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import count

RULE = Rule(
    name="tp-group-spans-nodes",
    category="topology",
    title="A tensor-parallel group has ranks on several nodes",
    shows=("group-spans-nodes",),
)
_IS_TP = later(r"(?i)\((?!.*_and_)(?:.*[_-])?(?:tp|tensor)[_)-]")
"""The description of a process group: ``mesh_tp``, ``TENSOR_MODEL_PARALLEL_GROUP``; not of a joint group."""


def judge(facts: Facts) -> Results:
    """Judge groups that a framework's size or PyTorch's name for them shows to be tensor-parallel."""
    if any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # NVLink connects these nodes
    if by_size := _by_size(facts):
        yield by_size
        return
    comms, lines = _by_name(facts)
    spanning = [comm for comm in comms if len(comm.hosts) > 1]
    if spanning:
        group = f"process group of communicator {spanning[0].id} ({count(spanning[0].nranks, 'rank')})"
        summary = f"the tensor-parallel {group} spans {len(spanning[0].hosts)} hosts"
        yield _finding(facts, spanning, summary, lines, "likely")
    elif not comms and not facts.with_role("parallel-sizes") and _all_span(facts):
        yield RULE.undecided(
            "all groups smaller than the job span hosts although hosts have several ranks; the log does not show "
            "whether one of them is tensor-parallel",
            Needs(others=("the program's parallel sizes (--tp, --pp, --dp) and the order of its ranks",)),
        )


def _by_size(facts: Facts) -> Finding | None:
    """The certain case: more ranks in a group than any node has."""
    notices = facts.with_role("parallel-sizes")
    sizes = {int(value(notice, "tp") or 0) for notice in notices}
    local = _ranks_of_a_node(facts)
    if len(sizes) != 1 or local is None or not facts.spans_hosts():
        return None
    size = sizes.pop()
    if size <= local or (facts.job.world_size or 0) < size:
        return None
    groups = [comm for comm in facts.job.communicators if comm.nranks == size and len(comm.hosts) > 1]
    summary = f"tensor parallelism of {size} ranks does not fit on hosts with {count(local, 'rank')}"
    return _finding(facts, groups, summary, first_evidence(notices), "certain")


def _finding(
    facts: Facts, comms: list[CommunicatorInfo], summary: str, lines: list[Evidence], confidence: str
) -> Finding:
    names = {comm.id for comm in comms}
    paths = facts.inter_host_net_paths().only(("communicators",), lambda comms: names.intersection(comms))
    net = in_use(paths, facts.platform)
    rate = f", the network in use {net} per GPU" if net else ""
    return RULE.finding(
        summary,
        cause="tensor parallelism exchanges activations several times in every layer, here over the network. The "
        "group is larger than a node (or pod), or ranks are not numbered node by node",
        impact=estimate(
            f"every layer waits for the network: NVLink gives {ON_NVLINK}{rate}", ON_NVLINK, *([net] if net else [])
        ),
        fix=[
            "Limit tensor parallelism to the GPUs of one node (or pod), and make it the innermost dimension in the "
            "order of ranks.",
            "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2   # Megatron: pipeline or data "
            "parallelism between nodes",
            GPUS_IN_POD,
        ],
        confidence=confidence,
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


def _all_span(facts: Facts) -> bool:
    """Whether every group that is smaller than the job has several hosts, although a host has several ranks."""
    size = facts.job.world_size or 0
    groups = [comm for comm in facts.job.communicators if 1 < comm.nranks < size]
    several = any(len(host.ranks) > 1 for host in facts.job.hosts)
    return bool(groups) and several and all(len(comm.hosts) > 1 for comm in groups)
