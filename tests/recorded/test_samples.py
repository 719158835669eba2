"""The sample logs against their ground truth: paths, hosts, communicators, environment, findings."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Any

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.judging.engine import registered
from nccl_inspect.model.job import Job, Setting

EVERY = pytest.mark.parametrize("name", sample_data.names())
LAZY = [
    name
    for name in sample_data.names()
    if not sample_data.is_torn(name) and not sample_data.truth(name)["nccl_version"].startswith(("2.19", "2.21"))
]
"""Samples whose releases connect after the initialisation, so that the two can be told apart in time."""

_BRACKETS = re.compile(rb"(\d+)\[(\d+)\] -> (\d+)\[(\d+)\]")
_NVML = re.compile(rb"nvmlDev (\d+)")
_CONNECTS = re.compile(rb" via |NCCL INFO Connected ")
_ENDS = re.compile(rb"Destroy|Abort|async error|failed|abort|Connection closed|killing")


def wanted_paths(truth: dict[str, Any]) -> dict[tuple[int, int], tuple[object, ...]]:
    return {(p["src"], p["dst"]): (p["transport"], p["detail"], p["scope"], bool(p["gdr"])) for p in truth["paths"]}


def paths_of(job: Job) -> dict[tuple[int, int], tuple[object, ...]]:
    return {(p.src, p.dst): (p.transport, p.detail, p.scope, bool(p.gdr)) for p in job.paths}


def expected_paths(name: str) -> dict[tuple[int, int], tuple[object, ...]]:
    lost = {tuple(pair) for pair in sample_data.truth(name).get("pairs_only_in_damaged_lines", ())}
    return {pair: path for pair, path in wanted_paths(sample_data.truth(name)).items() if pair not in lost}


@EVERY
def test_the_files_are_those_that_the_truth_describes(name: str) -> None:
    wanted = Counter(file["sha256"] for file in sample_data.truth(name)["files"])
    assert Counter(hashlib.sha256(data).hexdigest() for data in sample_data.contents(name)) == wanted


@EVERY
def test_each_directed_pair_takes_the_path_that_it_took(name: str) -> None:
    assert paths_of(sample_data.job(name)) == expected_paths(name)


@EVERY
def test_gpudirect_rdma_is_a_matter_of_network_paths_only(name: str) -> None:
    for path in sample_data.job(name).paths:
        assert (path.gdr is None) == (path.transport != "NET")


@EVERY
def test_the_world_size_is_the_number_of_ranks(name: str) -> None:
    job, truth = sample_data.job(name), sample_data.truth(name)
    assert job.world_size == truth["world_size"]
    assert job.rank_space == "global"


@EVERY
def test_each_rank_is_on_its_host(name: str) -> None:
    seen = set(sample_data.job(name).ranks_seen)
    wanted = {
        host: [rank for rank in ranks if rank in seen] for host, ranks in sample_data.truth(name)["hosts"].items()
    }
    assert {host.name: host.ranks for host in sample_data.job(name).hosts} == wanted
    if sample_data.truth(name)["outcome"] == "completed":
        assert seen == set(range(sample_data.truth(name)["world_size"]))


@EVERY
def test_the_nccl_version_is_that_of_the_library(name: str) -> None:
    versions = sample_data.job(name).nccl_versions
    if sample_data.truth(name)["outcome"] == "hung" and not versions:
        pytest.skip("the job did not get as far as its version")
    assert [version.partition("+")[0] for version in versions] == [sample_data.truth(name)["nccl_version"]]


@EVERY
def test_the_communicators_are_those_of_the_job(name: str) -> None:
    found = sample_data.job(name).communicators
    wanted = sample_data.truth(name)["communicators"]
    assert Counter(tuple(comm.ranks) for comm in found) == Counter(tuple(comm["ranks"]) for comm in wanted)
    assert [comm.ranks for comm in found if comm.id == "world"] == [c["ranks"] for c in wanted if c["kind"] == "world"]


@EVERY
def test_a_communicator_other_than_the_world_is_a_split_of_it_or_stands_alone(name: str) -> None:
    alone = {tuple(comm["ranks"]) for comm in sample_data.truth(name)["communicators"] if not comm.get("split", True)}
    for comm in sample_data.job(name).communicators:
        split = comm.id != "world" and tuple(comm.ranks) not in alone
        assert comm.parent == ("world" if split else None)


@EVERY
def test_a_communicator_is_complete_when_every_rank_said_so(name: str) -> None:
    wanted = {tuple(comm["ranks"]): comm["init"] == "complete" for comm in sample_data.truth(name)["communicators"]}
    for comm in sample_data.job(name).communicators:
        complete = wanted[tuple(rank for rank in comm.ranks if rank is not None)]
        assert (len(comm.completed) == comm.nranks) == complete
        assert (comm.state == "started") == (not complete)


@EVERY
def test_the_environment_is_shown_with_its_ranks(name: str) -> None:
    job = sample_data.job(name)
    every = set(job.ranks_seen)
    found: dict[str, dict[int, str]] = {}
    for setting in job.environment:
        for rank in every if setting.ranks is None else setting.ranks:
            found.setdefault(setting.name, {})[rank] = setting.value
    for variable, value in sample_data.truth(name)["environment"].items():
        by_rank = {int(rank): text for rank, text in value.items()} if isinstance(value, dict) else None
        wanted = by_rank if by_rank is not None else dict.fromkeys(every, value)
        assert found[variable] == wanted, variable


@EVERY
def test_no_setting_is_invented(name: str) -> None:
    shown = set(sample_data.truth(name)["environment"])
    assert {setting.name for setting in sample_data.job(name).environment if _is_set_by_user(setting)} <= shown


def _is_set_by_user(setting: Setting) -> bool:
    return setting.source == "environment" and setting.name.startswith("NCCL_")


@EVERY
def test_every_sound_line_is_recognised(name: str) -> None:
    job = sample_data.job(name)
    lines = [data.count(b"\n") + (not data.endswith(b"\n") and bool(data)) for data in sample_data.contents(name)]
    assert [source.lines for source in job.sources] == lines
    assert [source.bytes for source in job.sources] == [len(data) for data in sample_data.contents(name)]
    assert (sum(source.repaired_lines for source in job.sources) > 0) == sample_data.is_torn(name)
    assert sum(source.unrecognised_lines for source in job.sources) == 0
    assert sum(source.damaged_lines for source in job.sources) == 0


@pytest.mark.parametrize("name", [name for name in sample_data.names() if sample_data.is_torn(name)])
def test_no_more_lines_are_damaged_than_were_cut_or_glued(name: str) -> None:
    sources = sample_data.job(name).sources
    damaged = sum(source.damaged_lines + source.unrecognised_lines for source in sources)
    assert damaged <= len(sample_data.truth(name)["damaged_lines"])


@EVERY
def test_counts_of_lines_add_up(name: str) -> None:
    for source in sample_data.job(name).sources:
        kinds = source.typed_lines + source.unrecognised_lines + source.damaged_lines
        assert kinds == source.nccl_lines <= source.lines


@EVERY
def test_what_must_be_found_is_found(name: str) -> None:
    existing = {entry.rule.name for entry in registered()}
    found = {finding.rule for finding in sample_data.job(name).findings}
    for wanted in sample_data.truth(name)["findings_expected"]:
        either = set(wanted.split("|"))
        if wanted != "ok-healthy" and either & existing:
            assert found & either, f"{wanted} not among {sorted(found)}"


@EVERY
def test_what_must_not_be_found_is_not_found(name: str) -> None:
    found = {finding.rule for finding in sample_data.job(name).findings}
    assert not found & set(sample_data.truth(name)["findings_forbidden"])


@EVERY
def test_the_verdict_follows_from_the_outcome(name: str) -> None:
    truth, verdict = sample_data.truth(name), sample_data.job(name).verdict
    if "ok-healthy" in truth["findings_expected"]:
        assert verdict == "ok"
    elif truth["outcome"] == "completed":
        assert verdict in ("ok", "degraded")
    elif {entry.rule.name for entry in registered()} & set(truth["findings_expected"]) - {"socket-instead-of-rdma"}:
        assert verdict == "failed"


@EVERY
def test_evidence_is_the_line_that_it_names(name: str) -> None:
    by_name = {
        str(file): data.split(b"\n")
        for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True)
    }
    job = sample_data.job(name)
    lines = [line for path in job.paths for line in path.evidence]
    lines += [line for finding in job.findings for line in finding.evidence]
    assert not sample_data.truth(name)["paths"] or lines
    for line in lines:
        text, stands = line.text.encode("utf-8", "surrogateescape"), by_name[line.source][line.line - 1]
        # A line that was torn has the number of its beginning; the rest stands elsewhere.
        assert text in stands or (sample_data.is_torn(name) and text[:2] in stands)


@pytest.mark.parametrize("name", [name for name in sample_data.names() if not sample_data.is_torn(name)])
def test_paths_stay_when_devices_are_numbered_on_each_host_as_on_a_real_cluster(name: str) -> None:
    ranks_of_hosts = sample_data.truth(name)["hosts"].values()
    local = {str(rank).encode(): str(i).encode() for ranks in ranks_of_hosts for i, rank in enumerate(sorted(ranks))}

    def rewritten(data: bytes) -> bytes:
        data = _NVML.sub(lambda found: b"nvmlDev " + local[found[1]], data)
        return _BRACKETS.sub(
            lambda found: b"%b[%b] -> %b[%b]" % (found[1], local[found[2]], found[3], local[found[4]]), data
        )

    job = nccl_inspect.read([rewritten(data) for data in sample_data.contents(name)])
    assert paths_of(job) == expected_paths(name)
    assert job.unplaced_lines == sample_data.job(name).unplaced_lines


@pytest.mark.parametrize("name", LAZY)
def test_paths_stay_when_all_initialisation_comes_before_all_connections(name: str) -> None:
    job = nccl_inspect.read([_by_phase(data) for data in sample_data.contents(name)])
    assert paths_of(job) == expected_paths(name)


def _by_phase(data: bytes) -> bytes:
    """The lines with connections after everything else but the end, each kind in its old order."""
    lines = data.split(b"\n")
    return b"\n".join(sorted(lines, key=lambda line: 2 if _ENDS.search(line) else bool(_CONNECTS.search(line))))
