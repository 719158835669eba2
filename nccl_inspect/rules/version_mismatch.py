"""Ranks of one job run different NCCL releases."""

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NcclVersion
from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.connecting import is_connected
from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import ranks_concerned
from nccl_inspect.model import versions
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="version-mismatch",
    category="environment",
    title="Ranks of one job run different NCCL releases",
    may_cause=("wait", "loss", "call", "stage", "resource", "topology-differs", "wrong-results"),
    supersedes=("bootstrap-connect-refused", "bootstrap-failed"),
)
_STRANGE = ("rank-misfit", "stranger", "garbled-address")
"""Roles of errors from processes that misread a message of another release."""
_RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every rank: one image or wheel for all"
_COPIES = "ldconfig -p | grep libnccl.so; env | grep -E 'LD_LIBRARY_PATH|LD_PRELOAD'   # is there a second copy?"


def judge(facts: Facts) -> Results:
    """Judge NCCL's own check, and versions that differ between processes; otherwise RAS's messages about peers."""
    finding = next(_mismatch(facts), None)
    if finding or (messages := facts.errors_of_rule(RULE.name)):
        yield finding or _ras_clue(facts, messages)


def _ras_clue(facts: Facts, notices: list[Notice]) -> Finding:
    """RAS met a process of another release, which may belong to another job."""
    return RULE.clue(
        f"RAS met a process of another NCCL release: {notices[0].message}",
        cause="NCCL's RAS service met a process with another library: a rank of this job with another image or wheel, "
        "or a process of another job on the same address",
        impact="if it is a rank of this job, the initialization fails or hangs; if not, there is no impact",
        fix=[_RELEASES, _COPIES],
        confirm="Compare 'NCCL version' on all ranks.",
        severity="warning" if stated_errors.is_fatal(facts, notices) else "info",
        confidence="possible",
        notices=notices,
        explains_errors=notices,
    )


def _mismatch(facts: Facts) -> Iterator[Finding]:
    """NCCL's own check, and versions that differ between processes whose communicators did not come up."""
    checked = facts.notices("nccl/version-mismatch")
    strange = facts.with_role(*_STRANGE)
    printed = _printed(facts)
    built = [comm for comm in facts.job.communicators if len(comm.completed) == comm.nranks]
    if not checked and built:  # several jobs in one log may each have their own release
        printed = _mixed(facts, printed)
        if not printed:
            return
    by_process = printed | (_inferred(facts, set(printed)) if strange and printed else {})
    named = _stated(checked)
    bare = _without_process(facts) if strange and not is_connected(facts) else set()
    releases = sorted({*by_process.values(), *named, *bare}, key=versions.order)
    if not checked and len(releases) < 2:
        return
    lines = [notice for notice in facts.with_event(NcclVersion) if notice.hosts or bare]
    odd = _odd(by_process)
    odd_ranks = {rank for last in facts.job.last_lines if last.process in odd for rank in last.ranks}
    yield RULE.finding(
        "ranks run different NCCL releases" + (f": {', '.join(releases)}" if len(releases) > 1 else ""),
        cause="; ".join(_where(release, named.get(release, set()), by_process) for release in releases)
        or "reported by NCCL; the log does not show which rank has which release",
        impact="processes of different releases cannot communicate: the bootstrap fails or never ends",
        fix=[
            _RELEASES,
            _COPIES,
            "pip list | grep nvidia-nccl   # on every host",
        ],
        confidence="certain" if checked else "likely" if strange or built or _is_one_job(facts, lines) else "possible",
        ranks=ranks_concerned(facts, checked, "rank", "own_rank") or odd_ranks,
        hosts={process.host for process in odd or by_process},
        evidence=[
            *first_evidence([*checked, *strange])[:3],
            *(line for notice in lines for line in notice.evidence[:1]),
        ],
        fatal=True,
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
    lines = [
        (notice.event.version.partition("+")[0], notice.processes)
        for notice in facts.with_event(NcclVersion)
        if isinstance(notice.event, NcclVersion)
    ]
    return {
        process: release for release, processes in lines if _is_whole(release) for process in processes if process.host
    }


def _without_process(facts: Facts) -> set[str]:
    """The releases in lines without a prefix, which rank 0 of each communicator prints up to 2.22."""
    events = [
        notice.event for notice in facts.with_event(NcclVersion) if not notice.hosts and not facts.job.earlier_runs
    ]
    texts = {event.version.partition("+")[0] for event in events if isinstance(event, NcclVersion)}
    return set(filter(_is_whole, texts))


def _is_whole(release: str) -> bool:
    """Whether a release is complete, not cut off."""
    return release.count(".") >= 2 and not release.endswith(".")


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


def _is_one_job(facts: Facts, lines: list[Notice]) -> bool:
    """Whether all processes that printed a release are ranks of the only communicator."""
    return len(facts.job.communicators) == 1 and all(notice.ranks for notice in lines)


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
    return f"{release} on {', '.join(sorted(places)[:4])}"
