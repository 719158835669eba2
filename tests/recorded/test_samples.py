"""The sample logs against their ground truth: paths, hosts, communicators, environment, findings."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.judging.engine import list_rules
from nccl_inspect.judging.places import Places, culprit_ranks
from nccl_inspect.model.job import Job

Check = Iterator[tuple[str, bool]]
RULES = {entry.rule.name for entry in list_rules()}
_BRACKETS = re.compile(rb"(\d+)\[(\d+)\] -> (\d+)\[(\d+)\]")
_NVML = re.compile(rb"nvmlDev (\d+)")
_CONNECTS = re.compile(rb" via |NCCL INFO Connected ")
_ENDS = re.compile(rb"Destroy|Abort|async error|failed|abort|Connection closed|killing")


def paths_of(job: Job) -> dict[tuple[int, int], tuple[object, ...]]:
    return {(p.src, p.dst): (p.transport, p.detail, p.scope, bool(p.gdr)) for p in job.paths}


def expected_paths(name: str) -> dict[tuple[int, int], tuple[object, ...]]:
    truth = sample_data.truth(name)
    lost = {tuple(pair) for pair in truth.get("pairs_only_in_damaged_lines", ())}
    paths = {(p["src"], p["dst"]): (p["transport"], p["detail"], p["scope"], bool(p["gdr"])) for p in truth["paths"]}
    return {pair: path for pair, path in paths.items() if pair not in lost}


def about_files(name: str, job: Job, truth: dict[str, Any]) -> Check:
    """Yield where the files are not those that the truth describes, and sound lines that are not recognised."""
    contents = sample_data.contents(name)
    sums = Counter(hashlib.sha256(data).hexdigest() for data in contents)
    yield "files", sums == Counter(file["sha256"] for file in truth["files"])
    lines = [data.count(b"\n") + (not data.endswith(b"\n") and bool(data)) for data in contents]
    yield "numbers of lines", [source.lines for source in job.sources] == lines
    yield "sizes", [source.bytes for source in job.sources] == [len(data) for data in contents]
    yield "repaired lines", any(source.repaired_lines for source in job.sources) == sample_data.is_torn(name)
    yield "damaged lines", not any(source.damaged_lines or source.unrecognised_lines for source in job.sources)
    for source in job.sources:
        kinds = source.typed_lines + source.unrecognised_lines + source.damaged_lines
        yield f"counts of {source.name} add up", kinds == source.nccl_lines <= source.lines


def about_job(name: str, job: Job, truth: dict[str, Any]) -> Check:
    """Yield differences of paths, ranks, hosts, release and settings."""
    yield "each directed pair takes the path that it took", paths_of(job) == expected_paths(name)
    yield "GPUDirect RDMA of network paths only", all((p.gdr is None) == (p.transport != "NET") for p in job.paths)
    yield (
        f"{job.world_size} {job.rank_space} ranks",
        (job.world_size, job.rank_space) == (truth["world_size"], "global"),
    )
    seen = set(job.ranks_seen)
    hosts = {host: [rank for rank in ranks if rank in seen] for host, ranks in truth["hosts"].items()}
    yield f"hosts {job.hosts}", {host.name: host.ranks for host in job.hosts} == hosts
    yield f"ranks {seen}", seen == set(range(truth["world_size"])) or truth["outcome"] != "completed"
    versions = [version.partition("+")[0] for version in job.nccl_versions]
    yield f"releases {versions}", versions == [truth["nccl_version"]] or (truth["outcome"] == "hung" and not versions)
    found: dict[str, dict[int, str]] = {}
    for setting in job.environment:
        for rank in seen if setting.ranks is None else setting.ranks:
            found.setdefault(setting.name, {})[rank] = setting.value
        by_user = setting.source == "environment" and setting.name.startswith("NCCL_")
        yield f"{setting.name} is invented", not by_user or setting.name in truth["environment"]
    for variable, value in truth["environment"].items():
        by_rank = {int(rank): text for rank, text in value.items()} if isinstance(value, dict) else None
        yield f"{variable} {found[variable]}", found[variable] == (by_rank or dict.fromkeys(seen, value))


def about_communicators(name: str, job: Job, truth: dict[str, Any]) -> Check:
    """Return each is that of the job; another than the world is a split of it or stands alone."""
    found, wanted = job.communicators, truth["communicators"]
    members = Counter(tuple(comm.ranks) for comm in found)
    yield f"members {members}", members == Counter(tuple(comm["ranks"]) for comm in wanted)
    world = [comm.ranks for comm in found if comm.id == "world"]
    yield f"world {world}", world == [comm["ranks"] for comm in wanted if comm["kind"] == "world"]
    alone = {tuple(comm["ranks"]) for comm in wanted if not comm.get("split", True)}
    complete = {tuple(comm["ranks"]): comm["init"] == "complete" for comm in wanted}
    for comm in found:
        ranks = tuple(rank for rank in comm.ranks if rank is not None)
        parent = "world" if comm.id != "world" and ranks not in alone else None
        yield f"{comm.id}: parent {comm.parent}", comm.parent == parent
        is_complete = (len(comm.completed) == comm.nranks, comm.state != "started")
        yield f"{comm.id}: {comm.state}", {*is_complete} == {complete[ranks]}


def about_findings(name: str, job: Job, truth: dict[str, Any]) -> Check:
    """Yield findings that are missing, that must not be, or whose evidence is not the line that it names."""
    found, expected = {finding.rule for finding in job.findings}, truth["findings_expected"]
    for wanted in expected:
        either = set(wanted.split("|")) & RULES
        yield f"{wanted} not among {sorted(found)}", not either or bool(found & either)
    yield f"forbidden among {sorted(found)}", not found & set(truth["findings_forbidden"])
    verdicts = {"ok", "degraded", "unknown", "failed"}
    if "ok-healthy" in expected:
        verdicts = {"ok"}
    elif truth["outcome"] == "completed":
        verdicts = {"ok", "degraded"}
    elif RULES & {*expected} - {"socket-instead-of-rdma"}:
        verdicts = {"failed"}
    yield f"verdict {job.verdict}", job.verdict in verdicts
    contents = zip(sample_data.files(name), sample_data.contents(name), strict=True)
    by_name = {str(file): data.split(b"\n") for file, data in contents}
    lines = [line for path in job.paths for line in path.evidence]
    lines += [line for finding in job.findings for line in finding.evidence]
    yield "no evidence", bool(lines) or not truth["paths"]
    for line in lines:
        text, stands = line.text.encode("utf-8", "surrogateescape"), by_name[line.source][line.line - 1]
        # A line that was torn has the number of its beginning; the rest stands elsewhere.
        yield f"evidence {line}", text in stands or (sample_data.is_torn(name) and text[:2] in stands)
    for step in open_questions(job):
        yield f"asks for what the log states: {step}", False


def open_questions(job: Job) -> Iterator[str]:
    """Yield steps that leave out what the log states of the one rank that they are about; the next run has others."""
    places = Places(job)
    for finding in job.findings:
        known = [places.locate(rank) for rank in culprit_ranks(finding)]
        stated = {"<pid>": known[0].pid, "<pod>": known[0].pod} if len(known) == 1 else {}
        names = [name for name, value in stated.items() if value is not None]
        for step in finding.fix:
            if any(name in step for name in names) and not re.search(r"\b(?:every|each|all|next time)\b", step):
                yield step


@pytest.mark.slow
def test_samples_are_read_and_judged_as_they_were() -> None:
    wrong = []
    for name in sample_data.names():
        job, truth = sample_data.job(name), sample_data.truth(name)
        for check in (about_files, about_job, about_communicators, about_findings):
            wrong += [f"sample_logs/{name}: {what}" for what, is_so in check(name, job, truth) if not is_so]
    assert not wrong, "\n".join(wrong)


def with_local_devices(name: str) -> list[bytes]:
    """Return a sample whose devices are numbered on each host, as on a real cluster."""
    hosts = sample_data.truth(name)["hosts"].values()
    local = {str(rank).encode(): str(i).encode() for ranks in hosts for i, rank in enumerate(sorted(ranks))}

    def ends(found: re.Match[bytes]) -> bytes:
        return b"%b[%b] -> %b[%b]" % (found[1], local[found[2]], found[3], local[found[4]])

    numbered = (_NVML.sub(lambda found: b"nvmlDev " + local[found[1]], data) for data in sample_data.contents(name))
    return [_BRACKETS.sub(ends, data) for data in numbered]


def by_phase(name: str) -> list[bytes]:
    """Return a sample with connections after everything else but the end, each kind in its old order."""
    return [
        b"\n".join(
            sorted(data.split(b"\n"), key=lambda line: 2 if _ENDS.search(line) else bool(_CONNECTS.search(line)))
        )
        for data in sample_data.contents(name)
    ]


@pytest.mark.slow
def test_paths_stay_with_other_numbers_of_devices_and_in_another_order() -> None:
    wrong = []
    for name in sample_data.names():
        if sample_data.is_torn(name):
            continue
        job = nccl_inspect.read(with_local_devices(name))
        if paths_of(job) != expected_paths(name) or job.unplaced_lines != sample_data.job(name).unplaced_lines:
            wrong.append(f"sample_logs/{name}: other paths, if devices are numbered on each host")
        # Older releases connect during the initialisation: the two cannot be told apart in time.
        is_lazy = not sample_data.truth(name)["nccl_version"].startswith(("2.19", "2.21"))
        if is_lazy and paths_of(nccl_inspect.read(by_phase(name))) != expected_paths(name):
            wrong.append(f"sample_logs/{name}: other paths, if all initialisation comes before all connections")
    assert not wrong, "\n".join(wrong)
