"""Ranks of one job run different NCCL releases."""

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NcclVersion
from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.connecting import is_connected
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import ranks_concerned
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model import versions
from nccl_inspect.util.wording import ranks_word

_STRANGE = ("rank-misfit", "stranger", "garbled-address")
"""Roles of errors from processes that misread a message of another release."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own check, and versions that differ between processes; otherwise RAS's messages about peers."""
    if hit := next(_mismatch(facts), None):
        yield hit
    elif messages := facts.errors_of_rule("version-mismatch"):
        yield Hit(messages, {"RAS": True, "dead": stated_errors.is_fatal(facts, messages)})


def _mismatch(facts: Facts) -> Iterator[Hit]:
    """NCCL's own check, and versions that differ between processes whose communicators did not come up."""
    checked, strange, printed = facts.notices("nccl/version-mismatch"), facts.with_role(*_STRANGE), _printed(facts)
    built = [comm for comm in facts.job.communicators if len(comm.completed) == comm.nranks]
    if not checked and built:  # several jobs in one log may each have their own release
        printed = _mixed(facts, printed)
        if not printed:
            return
    by_process = printed | (_inferred(facts, set(printed)) if strange and printed else {})
    ranks = _stated(checked)
    bare = _without_process(facts) if strange and not is_connected(facts) else set()
    releases = sorted({*by_process.values(), *ranks, *bare}, key=versions.order)
    if not checked and len(releases) < 2:
        return
    lines = [notice for notice in facts.with_event(NcclVersion) if notice.hosts or bare]
    odd = _odd(by_process)
    odd_ranks = {rank for last in facts.job.last_lines if last.process in odd for rank in last.ranks}
    is_one_job = len(facts.job.communicators) == 1 and all(notice.ranks for notice in lines)
    named = {
        "releases": ", ".join(releases) if len(releases) > 1 else "",
        "where": "; ".join(_where(release, ranks.get(release, set()), by_process) for release in releases),
        "likely": not checked,
        "possible": not (checked or strange or built or is_one_job),
    }
    yield Hit(
        named=named,
        ranks=ranks_concerned(facts, checked, "rank", "own_rank") or odd_ranks,
        hosts={process.host for process in odd or by_process},
        evidence=[
            *first_evidence([*checked, *strange])[:3],
            *(line for notice in lines for line in notice.evidence[:1]),
        ],
    )


def _mixed(facts: Facts, printed: dict[Process, str]) -> dict[Process, str]:
    """Return the releases in a communicator that did not come up and whose members print several; none for others."""
    is_global = facts.job.rank_space == "global"
    process_of = {rank: last.process for last in facts.job.last_lines if is_global for rank in last.ranks}
    for comm in facts.job.communicators:
        members = {process_of[rank] for rank in comm.ranks if rank in process_of}
        own = {process: printed[process] for process in members & printed.keys()}
        if len(comm.completed) < comm.nranks and len(set(own.values())) > 1:
            return own
    return {}


def _odd(by_process: dict[Process, str]) -> set[Process]:
    """The processes with another release than most; empty where no release prevails."""
    release, number = Counter(by_process.values()).most_common(1)[0] if by_process else ("", 0)
    return {process for process, own in by_process.items() if own != release} if 2 * number > len(by_process) else set()


def _printed(facts: Facts) -> dict[Process, str]:
    """The release of each process that prints a complete one, without CUDA's version."""
    return {
        process: release
        for notice in facts.with_event(NcclVersion)
        if (release := _whole_release(notice))
        for process in notice.processes
        if process.host
    }


def _without_process(facts: Facts) -> set[str]:
    """The releases in lines without a prefix, which rank 0 of each communicator prints up to 2.22."""
    bare = [one for one in facts.with_event(NcclVersion) if not one.hosts and not facts.job.earlier_runs]
    return set(filter(None, map(_whole_release, bare)))


def _whole_release(notice: Notice) -> str:
    """The release that a line states; empty if it is cut off."""
    release = str(getattr(notice.event, "version", "")).partition("+")[0]
    return release if release.count(".") >= 2 and not release.endswith(".") else ""


def _inferred(facts: Facts, others: set[Process]) -> dict[Process, str]:
    """The releases of processes by the wording of their lines, if that excludes the releases that others print."""
    seen: dict[Process, set[str]] = {}
    for notice in facts.job.notices:
        for process in set(notice.processes) - others:
            if process[0] and notice.releases:
                seen.setdefault(process, set()).add(notice.releases)
    printed = {f"{release}..{release}" for release in _printed(facts).values()}
    inferred = {process: versions.infer(texts) for process, texts in seen.items()}
    return {
        process: text
        for process, text in inferred.items()
        if text and all(versions.infer([*seen[process], release]) is None for release in printed)
    }


def _stated(checked: list[Notice]) -> dict[str, set[int]]:
    """The releases in the errors of NCCL's check, with their ranks: each rank names itself and the first mismatch."""
    ranks: dict[str, set[int]] = {}
    for notice in checked:
        for rank, code in (("rank", "version"), ("own_rank", "own_version")):
            if isinstance(number := value(notice, code), int):
                ranks.setdefault(versions.of_code(number), set()).add(value(notice, rank))
    return ranks


def _where(release: str, ranks: set[int], by_process: dict[Process, str]) -> str:
    """The ranks that have a release according to NCCL, otherwise the processes."""
    if ranks:
        return f"{ranks_word(ranks)} {'has' if len(ranks) == 1 else 'have'} {release}"
    places = {f"{process.host}:{process.pid}" for process, text in by_process.items() if text == release}
    return f"{release} on {', '.join(sorted(places)[:4])}" if places else f"{release} in a line without its host"
