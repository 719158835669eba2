"""What a policy can ask of the paths within hosts and between them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from nccl_inspect.extras.gate.policy import Answer, broken, kept, undecided
from nccl_inspect.extras.gate.policy.expectations import world
from nccl_inspect.judging.facts import first_lines, ranks_of_paths
from nccl_inspect.model.connection import AlsoPath
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, Path, PathKind, Selection
from nccl_inspect.util.wording import count, listed, ranges

_LONGER = "give a log that goes past the first collective: since NCCL 2.22 connections are made at first use"

_NO_RULE = "no rule objects to it: allow it in the policy, or see 'nccl-inspect summarize' for what is known"


def transport(scope: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """Every pair goes one of these ways: transports (``P2P``) or globs of details (``P2P/CUMEM*``)."""
    paths = of_scope(scope, job)
    bad: dict[str, list[PathKind]] = {}
    for kind in paths.kinds:
        for way in all_ways(kind):
            if not is_allowed(way, allowed):
                bad.setdefault(way.detail, []).append(kind)
    for detail, kinds in bad.items():
        yield _broken(f"use {detail}", paths.where(kinds.__contains__), job)
    if not bad:
        used = listed(sorted({way.detail for kind in paths.kinds for way in all_ways(kind)}))
        yield _kept(scope, paths, f"use {used}", job)


def is_allowed(way: Path | PathKind | AlsoPath, allowed: tuple[str, ...]) -> bool:
    """Whether a way is of an allowed transport, or its detail fits a glob; capitals do not matter."""
    detail, kind = way.detail.upper(), way.transport.upper()
    return any(kind == pattern.upper() or fnmatchcase(detail, pattern.upper()) for pattern in allowed)


def gdr(scope: str, job: Job) -> Iterator[Answer]:
    """Every network path uses GPUDirect RDMA on all its channels; P2P and SHM need none."""
    paths = of_scope(scope, job).where(lambda kind: kind.transport == "NET")
    states = {kind: [way.gdr for way in all_ways(kind) if way.transport == "NET"] for kind in paths.kinds}
    without = paths.where(lambda kind: any(state is False for state in states[kind]))
    partly = paths.without(without).where(lambda kind: "partial" in states[kind])
    if without:
        yield _broken("have no GPUDirect RDMA", without, job)
    if partly:
        yield _broken("have GPUDirect RDMA in part only (at one end, or on some channels)", partly, job)
    if not without and not partly:
        yield _kept(scope, of_scope(scope, job), "need it and have it" if paths else "need none", job)


def min_channels(scope: str, wanted: int, job: Job) -> Iterator[Answer]:
    """Every pair is connected on at least this many channels."""
    paths = of_scope(scope, job)
    few = paths.where(lambda kind: len(kind.channels) < wanted)
    if few:
        least = min(len(kind.channels) for kind in few.kinds)
        yield _broken(f"have fewer (the least is {least})", few, job)
    else:
        yield _kept(scope, paths, "have them", job)


def of_scope(scope: str, job: Job) -> Selection:
    """The paths within hosts, or those between them."""
    return job.paths.where(lambda kind: kind.scope == scope)


def all_ways(path: Path | PathKind) -> list[Path | PathKind | AlsoPath]:
    """The way that a path reports, and the others between its ranks."""
    return [path, *path.also]


def _broken(what: str, paths: Selection, job: Job) -> Answer:
    pairs = listed((f"{src}->{dst}" for src, dst in paths.distinct("src", "dst")), 3)
    summary = f"{count(len(paths), 'pair')} ({pairs}) {what}"
    finding = _about(paths, job)
    todo = finding.fix[0] if finding else _NO_RULE
    return broken(summary, todo, first_lines(paths), ranks_of_paths(paths), finding.rule if finding else "")


def _about(paths: Selection, job: Job) -> Finding | None:
    """The finding that is about these paths."""
    rules = {rule for kind in paths.kinds for rule in kind.rules}
    about = (finding for finding in job.findings if finding.rule in rules and finding.severity != "info")
    return next((finding for finding in about if finding.fix), None)


def _kept(scope: str, paths: Selection, what: str, job: Job) -> Answer:
    """Kept, as far as the log shows all paths of that scope."""
    missing = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    if missing:
        noun = "rank" if len(missing) == 1 else "ranks"
        seen = f"{count(len(paths), 'pair')} {what}; " if paths else ""
        return undecided(
            f"{seen}the paths of {noun} {ranges(missing)} are not in the log", "give the logs of all ranks"
        )
    if job.unplaced_lines:
        lines = count(job.unplaced_lines, "connection line")
        return undecided(f"{lines} could not be placed", "give the log from the start of the job, with whole lines")
    if paths:
        return kept(f"{count(len(paths), 'pair')} {what}")
    if is_impossible(scope, job):
        # What was asked for was not seen: a job on too few hosts must not pass the gate of a larger one.
        why = "no two ranks share a host" if scope == "intra" else "all ranks are on one host"
        return undecided(why, f"check a job that has such paths, or remove [paths.{scope}] from the policy")
    return undecided("no connection of that kind is in the log", _LONGER)


def is_impossible(scope: str, job: Job) -> bool:
    """Whether the job is known to have no pair of that scope."""
    comm = world(job)
    nodes = comm.nnodes if comm and comm.nnodes else len(job.hosts)
    return job.world_size is not None and nodes == (1 if scope == "inter" else job.world_size)
