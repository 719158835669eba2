"""Matches the hosts of two runs, and decides whether their ranks can be compared one by one."""

from __future__ import annotations

from nccl_inspect.model.job import Job


def renamed(a: Job, b: Job) -> dict[str, str]:
    """Hosts that have another name and the same ranks in the other run."""
    if not are_comparable(a, b):
        return {}
    by_ranks = {tuple(host.ranks): host.name for host in b.hosts if host.ranks}
    present = {host.name for host in b.hosts}
    names = {host.name: by_ranks.get(tuple(host.ranks)) for host in a.hosts if host.name not in present}
    return {name: other for name, other in names.items() if other}


def are_comparable(a: Job, b: Job) -> bool:
    """Whether a rank means the same in both: worlds of one size, and the same ranks together on a host."""
    if (a.world_size, a.rank_space) != (b.world_size, b.rank_space):
        return False
    common = _placed(a) & _placed(b)
    return _groups(a, common) == _groups(b, common)


def _placed(job: Job) -> set[int]:
    return {rank for host in job.hosts for rank in host.ranks}


def _groups(job: Job, ranks: set[int]) -> set[frozenset[int]]:
    """The ranks of each host, as far as both runs place them."""
    return {group for host in job.hosts if (group := frozenset(ranks.intersection(host.ranks)))}


def unreached(a: Job, b: Job) -> list[str]:
    """Why something missing in one run may mean nothing: it did not get as far as the other."""
    reasons = []
    for name, job, other in (("A", a, b), ("B", b, a)):
        if len(other.paths) and not len(job.paths):
            reasons.append(f"{name} has no connection line: paths and findings about them are not compared")
        elif job.verdict == "failed" != other.verdict:
            reasons.append(f"{name} failed: it may have ended before it reached what it lacks")
    return reasons


def silent(a: Job, b: Job) -> set[int]:
    """Ranks of the world that are in one of the logs only: their missing paths mean nothing."""
    return set() if a.world_size is None else set(a.ranks_seen) ^ set(b.ranks_seen)


def shape(job: Job) -> str | None:
    """Ranks for each host in words: ``2 hosts, 8 ranks each``; None when not every rank is placed."""
    sizes = sorted(len(host.ranks) for host in job.hosts)
    if job.world_size is None or sum(sizes) != job.world_size:
        return None
    hosts = "1 host" if len(sizes) == 1 else f"{len(sizes)} hosts"
    span = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"{hosts}, {span} {'rank' if span == '1' else 'ranks'} each"
