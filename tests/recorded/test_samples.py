"""The sample logs against their ground truth: paths, hosts, communicators, environment, findings."""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import large_job
import pytest
import sample_data
from known_labels import labels
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect.errors import NoInputError
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


# --- A piece of a sound log raises no alarm: what is not in it proves nothing

SOUND = [
    ROOT / name
    for name, case in tomllib.loads((TESTS / "labels" / "cases_healthy.toml").read_text()).items()
    if case["verdict"] == "ok" and "platform" not in case
]
ENDED = {"time-limit-2.7"}
"""Logs with the line of who ended the job: without those before it, it seems to have hung."""
_PREFIX = re.compile(rb"(?P<host>[^\s:]+):(?P<process>\d+:\d+ \[\d+\] )(?P<level>NCCL \w+ )")
_NETWORK = re.compile(rb"ENV|NET|Bootstrap|environment")

Lines = list[bytes]
Cut = Callable[[Lines, random.Random], Lines]


def middle(lines: Lines, chance: random.Random) -> Lines:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return lines[begin:end]


def left_out(lines: Lines, chance: random.Random) -> Lines:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return [*lines[:begin], b"...\n", *lines[end:]]


def from_one(lines: Lines, chance: random.Random, what: str) -> Lines:
    """Return a part of the lines of a process, or of a host."""
    found = {line: known[what] for line in lines if (known := _PREFIX.search(line))}
    one = chance.choice(sorted(set(found.values())))
    return middle([line for line in lines if found.get(line) == one], chance)


def replace_lines(lines: Lines, chance: random.Random, prefix: bytes) -> Lines:
    """Return a part of the log with less in front of each line."""
    return [_PREFIX.sub(prefix, line) for line in middle(lines, chance)]


CUTS: dict[str, Cut] = {
    "head": lambda lines, chance: lines[: chance.randrange(1, len(lines))],
    "tail": lambda lines, chance: lines[chance.randrange(1, len(lines)) :],
    "middle": middle,
    "of a process": lambda lines, chance: from_one(lines, chance, "process"),
    "of a host": lambda lines, chance: from_one(lines, chance, "host"),
    "without connections": lambda lines, chance: middle([line for line in lines if b" via " not in line], chance),
    "about the network": lambda lines, chance: middle([line for line in lines if _NETWORK.search(line)], chance),
    "without host": lambda lines, chance: replace_lines(lines, chance, rb"\g<process>\g<level>"),
    "without process": lambda lines, chance: replace_lines(lines, chance, rb"\g<level>"),
    "left out": left_out,
}


def alarms(lines: Lines) -> Iterator[str]:
    try:
        findings = nccl_inspect.read(b"".join(lines)).findings
    except NoInputError:
        return
    for finding in findings:
        if finding.severity != "info" and finding.confidence != "possible":
            yield f"{finding.rule}: {finding.summary}"


@pytest.mark.parametrize("step, pieces", [(3, 1), pytest.param(1, 4, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_piece_of_a_sound_log_raises_no_alarm(step: int, pieces: int) -> None:
    """Of each log and way of cutting some pieces by chance, always the same ones."""
    wrong = []
    for log, (name, cut) in [*product(SOUND, CUTS.items())][::step]:
        if cut is left_out and log.stem in ENDED:
            continue
        lines, chance = log.read_bytes().splitlines(keepends=True), random.Random(f"{log.stem} {name}")
        for _ in range(pieces):
            piece = cut(lines, chance)
            wrong += [f"{log}: {name}: {alarm}, by {len(piece)} lines from {piece[:1]}" for alarm in alarms(piece)]
    assert not wrong, "\n".join(wrong)


# --- what only torn lines of a healthy job state is damage, wherever they are torn, and not a finding

_LINES = large_job.log(3).splitlines(keepends=True)
_CONNECTION = next(n for n, line in enumerate(_LINES) if n > 300 and b"[send] via NET" in line)
_OTHER = next(n for n in range(_CONNECTION + 1, len(_LINES)) if b":4016:" in _LINES[n])


def _swap(at: int) -> bytes:
    """Return a log in which another process writes amid a connection line; what it cuts off ends its own line."""
    line, other = _LINES[_CONNECTION], _LINES[_OTHER]
    torn = [*_LINES[:_CONNECTION], line[:at] + other[:40] + b"\n" + line[at:] + other[40:], *_LINES[_CONNECTION + 1 :]]
    return b"".join(part for n, part in enumerate(torn) if n != _OTHER)


@pytest.mark.slow
def test_lines_torn_anywhere() -> None:
    alarms = {}
    for at in range(20, len(_LINES[_CONNECTION]), 3):
        job = nccl_inspect.read(_swap(at))
        if job.verdict in ("failed", "degraded") or len(job.hosts) != 3:
            alarms[at] = job.verdict, [host.name for host in job.hosts], [finding.summary for finding in job.findings]
    assert alarms == {}


# --- What each path between two and four H200 gave, by `tools/measure_paths.py`

FOLDERS = ROOT / "sample_logs" / "measured", ROOT / "sample_logs" / "measured-4"


def test_what_is_called_a_cost_costs() -> None:
    for folder in FOLDERS:
        best: dict[str, float] = {}
        for results in folder.glob("*/results.json"):
            rows: list[dict[str, Any]] = json.loads(results.read_text("utf-8"))
            best[results.parent.name] = max(row["busbw"] for row in rows if row["operation"] == "all_reduce")
        slow = {name for name, rate in best.items() if rate < 0.9 * best["default"]}
        logs = {name: next((folder / name).glob("job.log*")).relative_to(ROOT).as_posix() for name in best}
        assert slow == {name for name, log in logs.items() if labels()[log][1]["faults"]}, best


def test_a_slow_run_is_not_hidden_by_the_better_results_of_an_earlier_one() -> None:
    text = lzma.decompress((FOLDERS[1] / "default" / "nccl_tests.log.xz").read_bytes())
    first = text[: text.index(b"# Collective test concluded")]
    again = re.sub(rb"(Pid +|vm:)(\d)", rb"\g<1>1\2", first)
    slow = re.sub(rb"(float     sum      -1 +)[\d.]+ +[\d.]+ +[\d.]+", rb"\g<1>44000.0   24.40   36.60", again)
    slow = re.sub(rb"0 +[\d.]+ +[\d.]+ +[\d.]+( +0\n)", rb"0  44000.0   24.40   36.60\1", slow)
    job = nccl_inspect.read(first + slow)
    assert [(entry.measured_gbps > 100, entry.verdict) for entry in job.bandwidth] == [(True, "ok"), (False, "low")]
    assert (job.verdict, job.findings[0].rule) == ("degraded", "bandwidth-low")
