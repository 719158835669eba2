"""Real jobs, broken on purpose (``tools/break_mesh.py``): what the stored answers say by the log alone.

What is known by all that a job left is in `tests/labels/mesh.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from answers import read_stored
from mesh_recordings import MESHES, Recording, recordings
from repository import ROOT

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
