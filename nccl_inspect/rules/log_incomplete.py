"""The log lacks its beginning, or the lines of some ranks."""

from nccl_inspect.event.types import BootstrapInterface, CudaDriver, NcclVersion, NetDevices
from nccl_inspect.judging import placement
from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="log-incomplete",
    category="log quality",
    severity="info",
    title="The beginning of the log, or the log of some ranks, is missing",
)
_BEGINNING = (BootstrapInterface, CudaDriver, NcclVersion, NetDevices)
_MAX_NAMED = 2
_NEEDS = Needs(
    "the log from its first line to past the first step of the job; on Kubernetes: kubectl logs --tail=-1 <pod>"
)


def judge(facts: Facts) -> Results:
    """Judge whether every process shows how it began, and whether every rank of the world has a line."""
    if facts.job.failed or facts.errors(forced_ends=False):
        return  # that says more than a missing line
    if len(facts.job.paths) and facts.job.excerpt:
        yield RULE.undecided("this is part of a log: the paths of the rest are unknown", _NEEDS)
    elif not len(facts.job.paths) and _lacks_its_beginning(facts):
        yield _headless(facts)
    elif not len(facts.job.paths) and not facts.job.communicators and _is_info(facts):
        yield RULE.undecided(f"the log ends before a communicator begins{standstill.undecided(facts)}", _NEEDS)
    elif missing := _without_line(facts):
        has = "has" if len(missing) == 1 else "have"
        yield RULE.undecided(f"{ranks_word(missing)} {has} no line in the log", _logs_of(facts, missing))


def _lacks_its_beginning(facts: Facts) -> bool:
    """Whether there are NCCL lines at level INFO, but none of those that every process begins with."""
    if not _is_info(facts) or any(comm.announced for comm in facts.job.communicators):
        return False
    return not any(map(facts.with_event, _BEGINNING))


def _is_info(facts: Facts) -> bool:
    """Whether the log has NCCL lines at level INFO: without them the level is the problem."""
    lines = (last.evidence for last in facts.job.last_lines)
    return any(line is None or " NCCL INFO " in line.text for line in lines)  # lines without information are not kept


def _without_line(facts: Facts) -> list[int]:
    """Ranks of the world that no process of the log can be, once the job has started."""
    job = facts.job
    if standstill.of(facts) or job.rank_space != "global" or not job.world_size or not len(job.paths):
        return []
    if any(not last.ranks for last in job.last_lines):
        return []
    seen = set(job.ranks_seen)
    return [rank for rank in range(job.world_size) if rank not in seen]


def _headless(facts: Facts) -> Finding:
    lines = [last.evidence for last in facts.job.last_lines if last.evidence]
    return RULE.finding(
        "the beginning of the log is missing: no line shows how the ranks started (version, network, Init START) or "
        "how they are connected",
        cause="only the end of the log was saved (tail; kubectl logs -l shows the last 10 lines of each pod), or "
        "the log was rotated",
        impact="settings, networks and paths cannot be judged",
        fix=_whole_log(facts),
        evidence=sorted(lines, key=lambda line: (line.source, line.order))[:1],
    )


def _whole_log(facts: Facts) -> list[str]:
    """Return how to get the earlier lines."""
    pods = [last.process.apart for last in facts.job.last_lines if "/" in last.process.apart]
    names = list(dict.fromkeys(name.removeprefix("pod/").partition("/")[0] for name in pods))
    by_kubectl = f"kubectl logs --tail=-1 {names[0] if names else '<pod>'}   # all lines; -l SELECTOR also needs it"
    files = [source.name for source in facts.job.sources if not source.name.startswith("<")]
    older = f"ls -l {files[0]}*   # was it rotated? Pass the older files as well" if files else ""
    return [*filter(None, [older]), by_kubectl, "nccl-inspect summarize FILE   # the whole file, not its tail"]


def _logs_of(facts: Facts, missing: list[int]) -> Needs:
    """Return which logs are missing, with host and GPU where the order of the ranks shows them."""
    homes = [(rank, placement.home(facts, rank)) for rank in missing[:_MAX_NAMED]]
    places = [f"rank {rank}: host {home.host}, local rank {home.local_rank}" for rank, home in homes if home]
    where = f" ({'; '.join(places)}{'; …' if len(missing) > len(places) else ''})" if places else ""
    is_file = len(facts.job.sources) > 1 or not facts.job.sources[0].name.startswith("<")
    what = "the file" if is_file else "the log"
    return Needs(f"{what} of {ranks_word(missing)}{where} in addition to this one: nccl-inspect summarize FILE FILE")
