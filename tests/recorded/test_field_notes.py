"""Notes from the field: what the tool says of each."""

import pytest
from repository import ROOT
from short_logs import G6E_TOPOLOGY, found, names

import nccl_inspect
from nccl_inspect.model.job import Job
from nccl_inspect.platforms import named

FIELD_NOTES = ROOT / "sample_logs" / "field-notes"


def field_note(name: str, **options: str) -> Job:
    return nccl_inspect.read(FIELD_NOTES / name, **options)


def test_field_notes_p4d_one_pod() -> None:
    job = field_note("p4d-1pod-4gpu.log")
    assert job.verdict == "ok"
    assert names(job) == ["p2p-read-mode"]
    assert found(job, "p2p-read-mode").severity == "info"
    assert {path.detail for path in job.paths} == {"P2P/CUMEM/read"}
    assert not job.not_judged


def test_field_notes_p4d_four_pods() -> None:
    job = field_note("p4d-4pod-1gpu-efa.log")
    assert job.verdict == "degraded"
    assert names(job) == ["one-gpu-per-pod", "protocol-forced-by-plugin", "tuner-plugin-not-loaded"]
    finding, *notes = job.findings
    assert {note.severity for note in notes} == {"info"}
    assert finding.severity == "error"
    assert "NVLink idle" in finding.impact
    assert all(path.detail == "NET/Libfabric" and path.gdr is True for path in job.paths)


def test_field_notes_g6e_over_efa() -> None:
    job = field_note("g6e-4x4-efa-libfabric.log", platform="g6e.12xlarge", topology=G6E_TOPOLOGY)
    assert job.excerpt and job.verdict == "unknown"
    assert {path.verdict for path in job.paths} == {"ok"}
    assert sorted(names(job)) == ["gdr-not-possible", "shm-instead-of-p2p"]
    assert {finding.severity for finding in job.findings} == {"info"}
    assert "NODE" in found(job, "shm-instead-of-p2p").cause
    assert named("g6e.12xlarge").name in found(job, "gdr-not-possible").cause


@pytest.mark.parametrize("name", ["g6e-4x4-eni-socket.log", "g6e-4x4-eni-socket-trees.log"])
def test_field_notes_g6e_over_sockets(name: str) -> None:
    job = field_note(name, platform="g6e.12xlarge", topology=G6E_TOPOLOGY)
    assert job.verdict == "degraded"
    assert names(job) == ["socket-instead-of-efa", "shm-instead-of-p2p"]
    assert found(job, "shm-instead-of-p2p").severity == "info"
    assert any("vpc.amazonaws.com/efa" in step for step in found(job, "socket-instead-of-efa").fix)


@pytest.mark.parametrize(
    "name", ["g6e-4x4-efa-libfabric.log", "g6e-4x4-eni-socket.log", "g6e-4x4-eni-socket-trees.log"]
)
def test_field_notes_without_platform_and_topology_nothing_is_certain(name: str) -> None:
    job = field_note(name)
    assert found(job, "shm-instead-of-p2p").confidence == "possible"
    assert "shm-instead-of-p2p" in {question.rule for question in job.not_judged}
    assert all(finding.confidence != "certain" for finding in job.findings)
    with_topology = found(field_note(name, topology=G6E_TOPOLOGY), "shm-instead-of-p2p")
    assert (with_topology.severity, with_topology.confidence) == ("info", "certain")
