"""The log lacks its beginning, or the lines of some ranks."""

from collections.abc import Iterator

from nccl_inspect.event.types import BootstrapInterface, CudaDriver, NcclVersion, NetDevices
from nccl_inspect.judging import placement
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import half_connected, last_to_connect
from nccl_inspect.judging.page_words import Hit

_BEGINNING = (BootstrapInterface, CudaDriver, NcclVersion, NetDevices)
_MAX_NAMED = 2


def find(facts: Facts) -> Iterator[Hit]:
    """Find whether every process shows how it began, and whether every rank of the world has a line."""
    job = facts.job
    if job.failed or facts.errors(forced_ends=False):
        return  # that says more than a missing line
    last = [one.evidence for one in job.last_lines]
    is_info = any(line is None or " NCCL INFO " in line.text for line in last)  # lines without information are not kept
    files = [source.name for source in job.sources if not source.name.startswith("<")]
    if len(job.paths) and job.excerpt:
        yield Hit(named={"excerpt": True})
    elif len(job.paths):
        if missing := _without_line(facts):
            is_file = bool(files) or len(job.sources) > 1
            yield Hit(named={"missing": missing, "where": _homes(facts, sorted(missing)), "file": is_file})
        elif (halves := half_connected(facts)) or last_to_connect(facts):
            yield Hit(named={"halves": halves, "late": last_to_connect(facts)})
    elif (
        is_info and not any(comm.announced for comm in job.communicators) and not any(map(facts.with_event, _BEGINNING))
    ):
        pods = [one.process.apart for one in job.last_lines if "/" in one.process.apart]
        yield Hit(
            named={
                "file": files[0] if files else "",
                "pod": pods[0].removeprefix("pod/").partition("/")[0] if pods else "<pod>",
            },
            evidence=sorted(filter(None, last), key=lambda line: (line.source, line.order))[:1],
        )
    elif is_info and not job.communicators:
        yield Hit(named={"end": standstill.undecided(facts)})


def _without_line(facts: Facts) -> set[int]:
    """Ranks of the world that no process of the log can be, once the job has started."""
    job = facts.job
    if standstill.of(facts) or job.rank_space != "global" or any(not last.ranks for last in job.last_lines):
        return set()
    return {*range(job.world_size or 0)} - {*job.ranks_seen}


def _homes(facts: Facts, missing: list[int]) -> str:
    """Return host and GPU of the first ranks where the order of the ranks shows them."""
    homes = [(rank, placement.home(facts, rank)) for rank in missing[:_MAX_NAMED]]
    places = [f"rank {rank}: host {home.host}, local rank {home.local_rank}" for rank, home in homes if home]
    return f" ({'; '.join(places)}{'; …' if len(missing) > len(places) else ''})" if places else ""
