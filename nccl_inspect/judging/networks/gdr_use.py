"""Which paths between hosts use GPUDirect RDMA at both ends, at one end or not at all."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.job import Path

SIDES = ("send", "receive")


def one_sided(facts: Facts) -> list[Path]:
    """Paths with GPUDirect at one end only, and those of the only hosts that lack it."""
    paths = facts.rdma()
    without = hosts_without(paths)
    return [
        path
        for path in paths
        if {path.gdr_at(side) for side in SIDES} == {True, False}
        or (path.gdr is False and all(host_at(path, side) in without for side in SIDES if path.ends(side)))
    ]


def hosts_without(paths: list[Path]) -> set[str]:
    """Hosts whose ends all lack GPUDirect, including receiving ones, if on other hosts all ends have it."""
    by_host: dict[str, set[object]] = {}
    receiving = {path.dst_host for path in paths if path.gdr_at("receive") is False}
    for path in paths:
        for side in SIDES:
            host = host_at(path, side)
            if host is not None and path.ends(side):
                by_host.setdefault(host, set()).add(path.gdr_at(side))
    having = [host for host, kinds in by_host.items() if kinds == {True}]
    lacking = {host for host, kinds in by_host.items() if kinds == {False} and host in receiving}
    return lacking if having and len(having) + len(lacking) == len(by_host) else set()


def host_at(path: Path, side: str) -> str | None:
    """The host of one end of a path."""
    return path.src_host if side == "send" else path.dst_host


def staged(facts: Facts) -> list[Path]:
    """Paths between hosts over an RDMA network that do not use GPUDirect in all their lines.

    If it is missing at one end only, or on some hosts only, gdr-one-sided reports it.
    """
    asymmetric = {id(path) for path in one_sided(facts)}
    return [path for path in facts.rdma() if path.gdr is not True and id(path) not in asymmetric]
