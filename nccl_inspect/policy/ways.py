"""What a policy can ask of the paths within hosts and between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from nccl_inspect.judging.facts import ends, first_lines
from nccl_inspect.model.connection import AlsoPath
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, Path
from nccl_inspect.policy import Answer, broken, kept, undecided
from nccl_inspect.policy.expectations import world
from nccl_inspect.util.wording import count, listed, ranges

_LONGER = "give a log that goes past the first collective: since NCCL 2.22 connections are made at first use"

_NO_RULE = "no rule objects to it: allow it in the policy, or see 'nccl-inspect summarize' for what is known"


def transport(scope: str, allowed: tuple[str, ...], job: Job) -> Iterator[Answer]:
    """Every pair goes one of these ways: transports (``P2P``) or globs of details (``P2P/CUMEM*``)."""
    paths = _of(scope, job)
    bad: dict[str, list[Path]] = {}
    for path in paths:
        for way in all_ways(path):
            if not is_allowed(way, allowed):
                bad.setdefault(way.detail, []).append(path)
    for detail, members in bad.items():
        yield _broken(f"use {detail}", members, job)
    if not bad:
        used = listed(sorted({way.detail for path in paths for way in all_ways(path)}))
        yield _kept(scope, paths, f"use {used}", job)


def is_allowed(way: Path | AlsoPath, allowed: tuple[str, ...]) -> bool:
    """Whether a way is of an allowed transport, or its detail fits a glob; capitals do not matter."""
    detail, kind = way.detail.upper(), way.transport.upper()
    return any(kind == pattern.upper() or fnmatchcase(detail, pattern.upper()) for pattern in allowed)


def gdr(scope: str, job: Job) -> Iterator[Answer]:
    """Every network path uses GPUDirect RDMA on all its channels; P2P and SHM need none."""
    paths = [path for path in _of(scope, job) if path.transport == "NET"]
    states = {id(path): [way.gdr for way in all_ways(path) if way.transport == "NET"] for path in paths}
    without = [path for path in paths if any(state is False for state in states[id(path)])]
    partly = [path for path in paths if path not in without and "partial" in states[id(path)]]
    if without:
        yield _broken("have no GPUDirect RDMA", without, job)
    if partly:
        yield _broken("have GPUDirect RDMA in part only (at one end, or on some channels)", partly, job)
    if not without and not partly:
        yield _kept(scope, _of(scope, job), "need it and have it" if paths else "need none", job)


def min_channels(scope: str, wanted: int, job: Job) -> Iterator[Answer]:
    """Every pair is connected on at least this many channels."""
    paths = _of(scope, job)
    few = [path for path in paths if len(path.channels) < wanted]
    if few:
        least = min(len(path.channels) for path in few)
        yield _broken(f"have fewer (the least is {least})", few, job)
    else:
        yield _kept(scope, paths, "have them", job)


def _of(scope: str, job: Job) -> list[Path]:
    return [path for path in job.paths if path.scope == scope]


def all_ways(path: Path) -> list[Path | AlsoPath]:
    """The way that a path reports, and the others between its ranks."""
    return [path, *path.also]


def _broken(what: str, paths: list[Path], job: Job) -> Answer:
    pairs = listed((f"{path.src}->{path.dst}" for path in paths), 3)
    summary = f"{count(len(paths), 'pair')} ({pairs}) {what}"
    finding = _about(paths, job)
    todo = finding.fix[0] if finding else _NO_RULE
    return broken(summary, todo, first_lines(paths), ends(paths), finding.rule if finding else "")


def _about(paths: Iterable[Path], job: Job) -> Finding | None:
    """The finding that is about these paths."""
    rules = {rule for path in paths for rule in path.rules}
    about = (finding for finding in job.findings if finding.rule in rules and finding.severity != "info")
    return next((finding for finding in about if finding.fix), None)


def _kept(scope: str, paths: list[Path], what: str, job: Job) -> Answer:
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
