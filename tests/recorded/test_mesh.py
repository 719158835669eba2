"""Real jobs, broken on purpose (``tools/break_mesh.py``): what the stored answers say by the log alone.

What is known by all that a job left is in `tests/labels/mesh.toml`.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from answers import read_stored
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.model.job import Job

MESHES = tuple(ROOT / "sample_logs" / name for name in ("mesh", "mesh-nodes", "mesh-gpus"))
"""Two ranks of one machine; eight ranks on four nodes; four ranks of one machine, each with a GPU."""


@dataclass(frozen=True)
class Recording:
    """A job that was broken on purpose."""

    folder: Path
    kind: str
    what: str
    culprit: int | None

    @property
    def name(self) -> str:
        """Return the scenario and how communicators were made."""
        return self.folder.name

    def __str__(self) -> str:
        return self.name


def recordings(mesh: Path) -> list[Recording]:
    return [_recording(folder) for folder in sorted(mesh.iterdir()) if folder.is_dir()]


def _recording(folder: Path) -> Recording:
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return Recording(folder, truth["kind"], truth["what_happened"], truth["culprit_rank"])


Answer = dict[str, Any]
ANSWERS = read_stored("samples") | read_stored("repeated")
OF_TWO, OF_NODES, OF_GPUS = map(recordings, MESHES)


def everything(recording: Recording) -> Answer:
    """Return the answer to all that a job left, which may be its log only."""
    return ANSWERS.get(recording.folder.relative_to(ROOT).as_posix()) or read_alone(recording)


def read_alone(recording: Recording) -> Answer:
    """Return the answer to its log."""
    return ANSWERS[f"{recording.folder.relative_to(ROOT).as_posix()}/job.log.xz"]


def findings(answer: Answer) -> list[Answer]:
    """Return the findings; the ranks of a node share a machine: without RDMA between them each job is degraded."""
    found = answer.get("findings", ())
    return [{"ranks": [], "root": True, **one} for one in found if one["rule"] != "socket-instead-of-rdma"]


def by_log(recording: Recording) -> Iterator[str]:
    """Yield how the answer to a log alone differs from what is known of the job."""
    found = read_alone(recording).get("findings", [])
    if recording.kind not in ("other-setting", "shm"):
        for one in found:
            parties = [f"rank {recording.culprit}"]
            if recording.kind == "no-partner":  # rank 0 waits for it in a send
                parties.append(f"ranks 0,{recording.culprit}")
            is_party = one["summary"].endswith(tuple(f"suspect: {words}" for words in parties))
            if "suspect" in one["summary"].lower() and one.get("root", True) and not is_party:
                yield f"a wrong suspect: {one['summary']}"
    if recording not in OF_NODES or not found:
        return
    leading = found[0]["rule"], found[0].get("ranks")
    waits_nowhere = recording.kind in ("busy", "stopped", "left", "no-partner")
    rule = "peer-death" if recording.kind == "left" else "watchdog-timeout"  # others lost who left before they gave up
    if waits_nowhere and leading != (rule, [recording.culprit]):
        yield f"{leading} leads, not the rank that waits nowhere"
    if recording.kind in ("other-operation", "order") and "began in process group 3(tp)" not in found[0]["cause"]:
        yield f"the hang is not followed to the group where it began: {found[0]['cause']}"


def test_the_log_alone_names_no_wrong_suspect() -> None:
    wrong = [f"{one.folder}/job.log.xz: {what}" for one in (*OF_TWO, *OF_NODES, *OF_GPUS) for what in by_log(one)]
    assert not wrong, "\n".join(wrong)


def test_what_run_kept_of_a_hang_names_the_rank_and_lists_the_evidence() -> None:
    answer = ANSWERS["sample_logs/run-loop"]
    leading = answer["findings"][0]
    assert (leading["rule"], leading["ranks"]) == ("collective-not-called", [1])
    assert (leading["confidence"], answer["job"]["platform"]) == ("certain", "h200-sxm")
    kinds = {entry["kind"] for entry in answer["evidence"]}
    assert {"flight recorder dump", "RAS answer", "topology file", "df output", "nvidia-smi -q output"} <= kinds
    assert not [entry["problem"] for entry in answer["evidence"] if entry["problem"]]


_WHERE = re.compile(r"likely began (?:in process group \d+\((\w+)\)|with (ranks [\d,-]*\d))")


def verdict(answer: Answer) -> str:
    """Return the leading finding, with the rank or the place that it points to."""
    found = findings(answer)
    if not found:
        return "no finding"
    rule, ranks, only_waits = found[0]["rule"], found[0]["ranks"], found[0]["rule"] == "watchdog-timeout"
    if only_waits and (where := _WHERE.search(found[0]["cause"])):
        return f"{rule}: began {f'in group {where[1]}' if where[1] else f'with {where[2]}'}"
    only_waits &= "suspect" not in found[0]["summary"]
    return f"{rule}: rank {ranks[0]}" if len(ranks) == 1 and not only_waits else str(rule)


def test_the_table_of_verdicts_is_up_to_date() -> None:
    page = (ROOT / "docs" / "howto" / "hangs.md").read_text(encoding="utf-8")
    jobs: dict[str, tuple[list[str], list[str]]] = {}
    for recording in OF_NODES:  # with eager and with lazy communicators
        log, whole = jobs.setdefault(recording.what, ([], []))
        log.append(verdict(read_alone(recording)))
        whole.append(verdict(everything(recording)))
    cells = {what: ["; ".join(dict.fromkeys(verdicts)) for verdicts in both] for what, both in jobs.items()}
    rows = [f"| {what} | {log} | {whole} |" for what, (log, whole) in cells.items()]
    assert not [row for row in rows if row not in page], "\n".join(["of docs/howto/hangs.md:", *rows])


# --- Whom a report blames where only part of what a job left is at hand: never one rank that is innocent

HOSTS, RANKS = range(4), range(8)
LOCAL = 2
"""Ranks of a host."""
_HOST = re.compile(r"gpu-node-(\d)")
_RANK = re.compile(r"(?:\[rank|  what\(\):  \[PG ID 0 PG GUID 0\(default_pg\) Rank )(\d)\]")
_AGENT = re.compile(r"[A-Z]\d{4} [\d:.]+ (\d+) torch/")
_PROCESS = re.compile(r"gpu-node-(\d):(\d+):")
_NAMED = re.compile(r"(?:process|pid:?) (\d+)")


class Line(NamedTuple):
    """A line of a log with the host that printed it."""

    text: str
    host: int


@cache
def lines_of(recording: Recording) -> tuple[Line, ...]:
    """Return the log: lines of launchers belong to the host whose processes they name."""
    texts = lzma.decompress((recording.folder / "job.log.xz").read_bytes()).decode(errors="replace").splitlines(True)
    homes = {match[2]: int(match[1]) for text in texts if (match := _PROCESS.search(text))}
    agents: dict[str, int] = {}
    agent = ""
    for text in texts:
        agent = match[1] if (match := _AGENT.match(text)) else agent
        if agent and (named := _NAMED.search(text)) and named[1] in homes:
            agents.setdefault(agent, homes[named[1]])
    lines, host = [], 0
    for text in texts:
        if match := _AGENT.match(text):
            host = agents.get(match[1], host)
        elif match := _RANK.match(text):
            host = int(match[1]) // LOCAL
        elif match := _HOST.search(text):
            host = int(match[1])
        lines.append(Line(text, host))
    return tuple(lines)


def text_of(lines: Iterable[Line]) -> str:
    """Return lines as a log."""
    return "".join(line.text for line in lines)


def on(recording: Recording, hosts: Collection[int]) -> str:
    """Return what some hosts printed."""
    return text_of(line for line in lines_of(recording) if line.host in hosts)


class Piece(NamedTuple):
    """Part of what a job left."""

    name: str
    logs: Callable[[Recording], dict[str, str]]
    """The logs by their names."""
    dumps: Collection[int] = ()
    """Ranks of which there is a dump."""
    has_ras: bool = False
    dump_name: str = "nccl_trace_rank_{}"

    def write(self, recording: Recording, folder: Path) -> Job:
        """Put this part of a recording into a new folder, and judge it."""
        folder.mkdir()
        for name, text in self.logs(recording).items():
            (folder / name).write_text(text, encoding="utf-8")
        kept = {f"nccl_trace_rank_{rank}": self.dump_name.format(rank) for rank in self.dumps}
        kept |= {name: name for name in ("ras.json", "ras.text") if self.has_ras}
        for name, new in kept.items():
            if (file := recording.folder / f"{name}.xz").exists():
                (folder / new).write_bytes(lzma.decompress(file.read_bytes()))
        return nccl_inspect.read(folder)


Logs = Callable[[Recording], dict[str, str]]


def log_of(hosts: Iterable[int] = HOSTS, lead: str = "") -> Logs:
    """Return a log of some hosts, in the order of its lines."""
    return lambda recording: {
        "job.log": "".join(f"{lead.format(line.host)}{line.text}" for line in lines_of(recording) if line.host in hosts)
    }


def hosts_in(order: Iterable[int]) -> Logs:
    """Return a log with one host behind the other."""
    return lambda recording: {"job.log": "".join(on(recording, {host}) for host in order)}


def files_of(hosts: Iterable[int] = HOSTS, name: str = "node-{}.log") -> Logs:
    """Return a log of each host."""
    return lambda recording: {name.format(host): on(recording, {host}) for host in hosts}


def warnings(recording: Recording) -> dict[str, str]:
    """Return the log of a job with ``NCCL_DEBUG=WARN``."""
    return {"job.log": text_of(line for line in lines_of(recording) if "NCCL INFO" not in line.text)}


def until_timeout(recording: Recording) -> dict[str, str]:
    """Return the log up to the first rank that gives up."""
    lines = lines_of(recording)
    ends = (place for place, line in enumerate(lines) if "Watchdog caught" in line.text)
    return {"job.log": text_of(lines[: next(ends, len(lines)) + 1])}


def _ranks(hosts: Iterable[int]) -> list[int]:
    return [rank for host in hosts for rank in (host * LOCAL, host * LOCAL + 1)]


def pieces() -> Iterator[Piece]:
    """Yield all parts that are tried."""
    whole = {
        "log": log_of(),
        "warnings": warnings,
        "cut at the time-out": until_timeout,
        "a file for each node": files_of(),
    }
    whole["kubectl"] = log_of(lead="[pod/train-worker-{}/main] ")
    for name, logs in whole.items():
        yield Piece(name, logs)
        yield Piece(f"{name}, all evidence", logs, RANKS, True)
    yield Piece("log, RAS", log_of(), (), True)
    yield Piece("warnings, RAS", warnings, (), True)
    yield Piece("log, dumps", log_of(), RANKS)
    for host in HOSTS:
        rest = [other for other in HOSTS if other != host]
        yield Piece(f"log of node {host}", log_of([host]))
        yield Piece(f"log without node {host}", log_of(rest))
        yield Piece(f"files without node {host}", files_of(rest))
        yield Piece(f"log of node {host}, all evidence", log_of([host]), RANKS, True)
        yield Piece(f"log without node {host}, all evidence", log_of(rest), RANKS, True)
        yield Piece(f"nothing of node {host}", log_of(rest), _ranks(rest))
        yield Piece(f"nothing of node {host}, but RAS", log_of(rest), _ranks(rest), True)
        yield Piece(f"log, no dumps of node {host}", log_of(), _ranks(rest))
        yield Piece(f"log, dumps of node {host} only", log_of(), _ranks([host]))
    yield Piece("log, dump of rank 4 only", log_of(), [4])
    for rank in (4, 5):
        yield Piece(f"log, dumps but of rank {rank}", log_of(), [other for other in RANKS if other != rank])
    yield Piece("other names", files_of(HOSTS, "out.{}"), RANKS, True, "gpu-node_rank{}.bin")
    yield Piece("nodes in the order 3210", hosts_in((3, 2, 1, 0)))
    yield Piece("nodes in the order 2031", hosts_in((2, 0, 3, 1)))


_OBSERVERS = ("socket-instead-of-rdma", "p2p-disabled-by-env", "rendezvous-failed", "bootstrap-connect-refused")
"""Rules whose findings name the ranks that see a fault, or a slow network that all recordings have."""
_UNSEEN = ("no output", "no dump of")
"""Words of findings that name ranks because nothing of them is there."""


def list_blamed(job: Job) -> list[int]:
    """Return the ranks that the leading finding accuses by what is known of them."""
    findings = [finding for finding in job.findings if finding.rule not in _OBSERVERS[:2]]
    if not findings or findings[0].rule in _OBSERVERS:
        return []
    leading = findings[0]
    only_waits = leading.rule == "watchdog-timeout" and not re.search("suspect|likely began with", leading.summary)
    only_starts = leading.rule == "hang-in-init" and "did not join" not in leading.summary
    return [] if only_waits or only_starts or any(words in leading.summary for words in _UNSEEN) else leading.ranks


MESH = {recording.name: recording for recording in recordings(MESHES[1])}
BROKEN = [recording for recording in MESH.values() if recording.culprit is not None]
PARTS = {piece.name: piece for piece in pieces()}
QUICK = {
    "no-partner-lazy": ("log of node 0",),
    "order-eager": ("cut at the time-out",),
    "p2p-off-lazy": ("a file for each node",),
    "size-eager": ("nothing of node 3",),
    "order-lazy": ("warnings",),
    "exception-eager": ("nodes in the order 2031",),
    "sigkill-lazy": ("kubectl",),
    "setting-lazy": ("nodes in the order 2031",),
}
VICTIMS = {("p2p-off-eager", "warnings"), ("p2p-off-eager", "warnings, RAS"), ("sigkill-lazy", "log of node 3")}
VICTIMS |= {("p2p-off-lazy", "warnings"), ("p2p-off-lazy", "warnings, RAS")}
"""The process that crashed is another one, and nothing else is in these lines."""
VICTIMS |= {(name, f"{piece}, all evidence") for name, piece in VICTIMS if "RAS" not in piece}
ALL = {recording.name: tuple(PARTS)[number % 12 :: 12] for number, recording in enumerate(BROKEN)}
"""Each part of a twelfth of the recordings."""


@pytest.mark.parametrize("tried", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "many"])
def test_no_innocent_rank_is_blamed_alone(tried: dict[str, tuple[str, ...]], tmp_path: Path) -> None:
    wrong = []
    for number, (name, part) in enumerate((name, part) for name, parts in tried.items() for part in parts):
        try:
            accused = list_blamed(PARTS[part].write(MESH[name], tmp_path / str(number)))
        except NoInputError:
            continue  # NCCL warned of nothing
        if len(accused) == 1 and accused != [MESH[name].culprit] and (name, part) not in VICTIMS:
            wrong.append(f"{name}: {part}: {accused}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_the_rank_that_died_leads_in_whichever_order_hosts_come(tmp_path: Path) -> None:
    """Lines of several files, or of several hosts one behind the other, have no order but that of their times."""
    for name in ("exception-eager", "exception-lazy", "sigkill-eager", "sigkill-lazy"):
        for part in ("a file for each node", "nodes in the order 3210", "nodes in the order 2031"):
            first = PARTS[part].write(MESH[name], tmp_path / f"{name} {part}").findings[0]
            assert (first.rule, first.ranks) == ("peer-death", [5]), (name, part)


@pytest.mark.slow
def test_a_file_for_each_host_shows_the_same_group_first(tmp_path: Path) -> None:
    for name in ("leave-lazy", "operation-lazy", "size-eager", "type-lazy"):
        whole, parts = (
            PARTS[part].write(MESH[name], tmp_path / f"{name} {part}").findings[0]
            for part in ("log", "a file for each node")
        )
        first, same = ((f.rule, f.ranks, re.sub(r", communicator.*|line \d+", "", f.summary)) for f in (parts, whole))
        assert first == same, name


@pytest.mark.slow
def test_ranks_whose_output_is_missing_are_where_to_look_only_if_nobody_else_is(tmp_path: Path) -> None:
    for host, names, ranks in (
        (1, ("leave-eager", "operation-lazy", "sigstop-lazy", "size-lazy", "type-eager"), ([5], [4, 5])),
        (2, ("leave-eager", "loop-lazy", "sigkill-lazy", "size-eager"), ([4, 5],)),
    ):
        for name in names:
            job = PARTS[f"files without node {host}"].write(MESH[name], tmp_path / f"{name} {host}")
            assert job.findings[0].ranks in ranks, (host, name)
