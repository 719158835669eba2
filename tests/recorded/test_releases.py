"""One program on four H200, in five settings and with six releases of NCCL: what was done is the same in each."""

from __future__ import annotations

from collections.abc import Iterator

import sample_data

import nccl_inspect

FOLDER = sample_data.FOLDER / "torn-releases"
RELEASES = ("2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.27.7", "2.29.7")
SETTINGS = {
    # how ranks of one host talk, how many ranks a host has, and what leads; hosts talk over NET/Socket
    "p2p": ("P2P/CUMEM", 4, None),
    "shm": ("SHM/direct/direct", 4, "p2p-disabled-by-env"),
    "net": ("NET/Socket", 4, "shm-disabled-by-env"),
    "two": ("P2P/CUMEM", 2, "ib-disabled-by-env"),
    "subsys": ("P2P/CUMEM", 2, "ib-disabled-by-env"),
}
MISJOINED = "v2.23.4-subsys"
"""Two lines at its end are put together wrongly, and told as not recognised."""
GROUPS = {((0, 1, 2, 3), None), ((0, 2), "world"), ((1, 3), "world")}


def differences(release: str, setting: str) -> Iterator[str]:
    """Yield how a log differs from what was done."""
    name = f"v{release}-{setting}"
    job = nccl_inspect.read(FOLDER / f"{name}.log.gz")
    inside, local, root = SETTINGS[setting]
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    unread = sum(source.unrecognised_lines for source in job.sources)
    roots = {one.rule for one in job.findings if one.root and one.category != "log-quality"}
    for what, is_so in {
        f"verdict {job.verdict}": job.verdict == ("degraded" if root else "ok"),
        f"findings {roots}": (root in roots if root else True) and not any(one.fatal for one in job.findings),
        f"unexplained {job.unexplained}": not job.unexplained,
        f"releases {job.nccl_versions}": [one.partition("+")[0] for one in job.nccl_versions] == [release],
        f"{job.world_size} ranks, {len(job.hosts)} hosts": (job.world_size, len(job.hosts)) == (4, 4 // local),
        f"paths {job.paths}": {(path.src, path.dst): path.detail for path in job.paths}
        == {(src, dst): inside if src // local == dst // local else "NET/Socket" for src, dst in pairs},
        f"communicators {job.communicators}": {(tuple(comm.ranks), comm.parent) for comm in job.communicators}
        == GROUPS,
        "inconsistent communicators": not any(comm.inconsistent for comm in job.communicators),
        f"{unread} lines not recognised": unread == (2 if name == MISJOINED else 0),
        "damaged or unplaced lines": not job.unplaced_lines + sum(source.damaged_lines for source in job.sources),
    }.items():
        if not is_so:
            yield f"{FOLDER / name}.log.gz: {what}"


def test_each_release_is_read_and_judged_alike() -> None:
    every = {f"v{release}-{setting}.log.gz": (release, setting) for release in RELEASES for setting in SETTINGS}
    assert {*every} == {file.name for file in FOLDER.glob("*.gz")}
    wrong = [what for release, setting in every.values() for what in differences(release, setting)]
    assert not wrong, "\n".join(wrong)
