"""Ranks of one job run different NCCL releases."""

from collections.abc import Iterator

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NcclVersion
from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.connecting import connected
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.statements import value
from nccl_inspect.model import versions
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="version-mismatch",
    category="environment",
    severity="error",
    title="Ranks of one job run different NCCL releases",
    causes=("collective-mismatch", "hang-after-p2p-setup", "topology-mismatch", "watchdog-*", "wrong-results"),
    echoes=("hang-in-init", "rings-disagree"),
    supersedes=("bootstrap-connect-refused", "bootstrap-failed"),
)
_STRANGE = ("rank-misfit", "stranger", "garbled-address")
"""Roles of what processes say when they misread what one of another release sent."""
_RELEASES = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every rank: one image or wheel for all"
_COPIES = "ldconfig -p | grep libnccl.so; env | grep -E 'LD_LIBRARY_PATH|LD_PRELOAD'   # is there a second copy?"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NCCL's own check, and versions that differ between processes; else what RAS says of its peers."""
    found = next(_compared(facts), None)
    if found or (watched := facts.leading_to(RULE.name)):
        yield found or _watched(facts, watched)


def _watched(facts: Facts, said: list[Notice]) -> Finding:
    """RAS, which watches all processes that it reaches, met one of another release: maybe of another job."""
    return RULE.clue(
        f"a process of another NCCL release is reached: {said[0].message}",
        cause="the service that watches NCCL's processes (RAS) met one with another library: a rank of this job with "
        "another image or wheel, or a process of another job on the same address",
        impact="where it is a rank of this job the initialisation fails or hangs; of another job it means nothing",
        fix=[_RELEASES, _COPIES],
        confirm="Compare 'NCCL version' on all ranks.",
        severity="warning" if stated_errors.is_fatal(facts, said) else "info",
        confidence="possible",
        notices=said,
        explains_errors=said,
    )


def _compared(facts: Facts) -> Iterator[Finding]:
    """NCCL's own check, and versions that differ between processes whose communicators did not come up."""
    checked = facts.notices("nccl/version-mismatch")
    strange = facts.with_role(*_STRANGE)
    built = [comm for comm in facts.job.communicators if len(comm.completed) == comm.nranks]
    if not checked and built:
        return  # several jobs in one log, each with its own release
    known = _printed(facts)
    guessed = _inferred(facts, set(known)) if strange and known else {}
    named = _stated(checked)
    bare = _without_process(facts) if strange and not connected(facts) else set()
    releases = sorted({*known.values(), *guessed.values(), *named, *bare}, key=versions.order)
    if not checked and len(releases) < 2:
        return
    said = [notice for notice in facts.said(NcclVersion) if notice.hosts or bare]
    yield RULE.finding(
        "ranks run different NCCL releases" + (f": {', '.join(releases)}" if len(releases) > 1 else ""),
        cause="; ".join(_where(release, named.get(release, set()), {**known, **guessed}) for release in releases)
        or "NCCL says so; the log does not show which rank has which",
        impact="processes of different releases do not understand each other: the bootstrap fails or never ends",
        fix=[
            _RELEASES,
            _COPIES,
            "pip list | grep nvidia-nccl   # on every host",
        ],
        confidence="certain" if checked else "likely" if strange or _is_one_job(facts, said) else "possible",
        hosts={process.host for process in {**known, **guessed}},
        evidence=[*first_said([*checked, *strange])[:3], *(line for notice in said for line in notice.evidence[:1])],
        fatal=True,
    )


def _printed(facts: Facts) -> dict[Process, str]:
    """The release of each process that prints a whole one; CUDA's version in it does not matter."""
    said = [
        (notice.event.version.partition("+")[0], notice.processes)
        for notice in facts.said(NcclVersion)
        if isinstance(notice.event, NcclVersion)
    ]
    return {
        process: release for release, processes in said if _is_whole(release) for process in processes if process.host
    }


def _without_process(facts: Facts) -> set[str]:
    """The releases that lines without a prefix name, as rank 0 of each communicator prints them up to 2.22."""
    said = [one for one in facts.said(NcclVersion) if not one.hosts and not facts.job.earlier_runs]
    texts = {one.event.version.partition("+")[0] for one in said if isinstance(one.event, NcclVersion)}
    return set(filter(_is_whole, texts))


def _is_whole(release: str) -> bool:
    """Whether a release was printed to its end, and not cut there."""
    return release.count(".") >= 2 and not release.endswith(".")


def _inferred(facts: Facts, known: set[Process]) -> dict[Process, str]:
    """The releases of the other processes by the wording of their lines, where that excludes what the others print."""
    seen: dict[Process, set[str]] = {}
    for notice in facts.job.notices:
        for process in set(notice.processes) - known:
            if process[0] and notice.releases:
                seen.setdefault(process, set()).add(notice.releases)
    printed = {f"{release}..{release}" for release in _printed(facts).values()}
    found = {process: versions.infer(texts) for process, texts in seen.items()}
    return {
        process: text
        for process, text in found.items()
        if text and all(versions.infer([*seen[process], release]) is None for release in printed)
    }


def _is_one_job(facts: Facts, said: list[Notice]) -> bool:
    """Whether all that printed a release are ranks of the only communicator that was begun."""
    return len(facts.job.communicators) == 1 and all(notice.ranks for notice in said)


def _stated(checked: list[Notice]) -> dict[str, set[int]]:
    """The releases that NCCL's check names, with their ranks: each rank compares itself with the first that differs."""
    found: dict[str, set[int]] = {}
    for notice in checked:
        for rank, code in (("rank", "version"), ("own_rank", "own_version")):
            if isinstance(number := value(notice, code), int):
                found.setdefault(versions.of_code(number), set()).add(value(notice, rank))
    return found


def _where(release: str, ranks: set[int], known: dict[Process, str]) -> str:
    """Who has a release: the ranks that NCCL names, else the processes."""
    if ranks:
        return f"{ranks_word(ranks)} {'has' if len(ranks) == 1 else 'have'} {release}"
    having = [process for process, text in known.items() if text == release]
    return f"{release} on {', '.join(sorted({f'{process.host}:{process.pid}' for process in having})[:4])}"
