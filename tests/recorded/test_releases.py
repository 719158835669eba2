"""One program on four H200, in five settings and with six releases of NCCL: what was done is the same in each."""

from __future__ import annotations

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job

FOLDER = sample_data.FOLDER / "torn-releases"
RELEASES = ("2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.27.7", "2.29.7")
IN_HOST = {
    "p2p": "P2P/CUMEM",
    "shm": "SHM/direct/direct",
    "net": "NET/Socket",
    "two": "P2P/CUMEM",
    "subsys": "P2P/CUMEM",
}
"""How ranks of one host talk; hosts talk over NET/Socket."""
TWO_HOSTS = ("two", "subsys")
VERDICTS = {"p2p": "ok"}
"""That of all others is degraded."""
ROOTS = {
    "p2p": set(),
    "shm": {"p2p-disabled-by-env"},
    "net": {"shm-disabled-by-env"},
    "two": {"ib-disabled-by-env"},
    "subsys": {"ib-disabled-by-env"},
}
"""Findings that lead, besides those about the log."""
MISJOINED = {"v2.23.4-subsys"}
"""Two lines at its end are put together wrongly, and told as not recognised."""


def job(release: str, setting: str) -> Job:
    return nccl_inspect.read(FOLDER / f"v{release}-{setting}.log.gz")


EVERY = [
    pytest.param(release, setting, id=f"v{release}-{setting}") for release in RELEASES for setting in sorted(IN_HOST)
]


def test_every_log_is_tested() -> None:
    assert {f"v{release}-{setting}.log.gz" for release in RELEASES for setting in IN_HOST} == {
        file.name for file in FOLDER.glob("*.gz")
    }


@pytest.mark.parametrize(("release", "setting"), EVERY)
def test_a_release_is_read(release: str, setting: str, request: pytest.FixtureRequest) -> None:
    found = job(release, setting)
    assert [version.partition("+")[0] for version in found.nccl_versions] == [release]
    assert found.world_size == 4
    host = {rank: rank // 2 if setting in TWO_HOSTS else 0 for rank in range(4)}
    wanted = {
        (src, dst): IN_HOST[setting] if host[src] == host[dst] else "NET/Socket"
        for src in range(4)
        for dst in range(4)
        if src != dst
    }
    assert {(path.src, path.dst): path.detail for path in found.paths} == wanted
    groups = {(tuple(comm.ranks), comm.parent) for comm in found.communicators}
    assert groups == {((0, 1, 2, 3), None), ((0, 2), "world"), ((1, 3), "world")}
    assert len(found.hosts) == len(set(host.values()))
    assert not any(comm.inconsistent for comm in found.communicators)
    misjoined = request.node.callspec.id in MISJOINED
    assert sum(source.damaged_lines for source in found.sources) == 0
    assert sum(source.unrecognised_lines for source in found.sources) == (2 if misjoined else 0)
    assert found.unplaced_lines == 0


@pytest.mark.parametrize(("release", "setting"), EVERY)
def test_a_release_is_judged(release: str, setting: str) -> None:
    found = job(release, setting)
    assert found.verdict == VERDICTS.get(setting, "degraded")
    assert not found.unexplained
    roots = {finding.rule for finding in found.findings if finding.root and finding.category != "log-quality"}
    assert ROOTS[setting] <= roots
    assert not {finding.rule for finding in found.findings if finding.fatal}
