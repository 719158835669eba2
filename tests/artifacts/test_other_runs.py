"""Evidence of another run, process or host accuses nobody: a table of what agrees, and what is said then."""

import os
from pathlib import Path

import sample_data
from dumps import beside, entry

import nccl_inspect

_NOW = 1_790_000_000
_XID = "NVRM: Xid (PCI:0000:00:09): 79, pid={pid}, name=python, GPU has fallen off the bus."
_OOM = "Out of memory: Killed process {pid} (python3) total-vm:8kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0"
_CRASH = (
    "python3[{pid}]: segfault at 0 ip 00007f3c5c0a1b2c sp 00007ffd5a1b2c30 error 4 in libnccl.so.2[7f3c5c000000+50]"
)
_RULES = {_XID: "gpu-hardware-error", _OOM: "peer-death", _CRASH: "process-crashed"}
_OWN, _OTHER = "Nov 20 23:15:10 llama-3-8b-node-0-1 kernel: ", "Nov 20 23:15:10 gpu-99 kernel: "
_OLD, _UPTIME = "Nov 12 23:15:10 llama-3-8b-node-0-1 kernel: ", "[1234567.890123] "
_KERNEL = (
    # line, what stands before it, process: confidence if it is believed, else empty
    (_XID, _OWN, 5026, "certain"),
    (_XID, _UPTIME, 5026, "likely"),
    (_XID, _OWN, 777123, "likely"),
    (_XID, _OTHER, 5026, ""),
    (_XID, _OLD, 5026, ""),
    (_XID, _UPTIME, 777123, ""),
    (_OOM, _OWN, 5026, "certain"),
    (_OOM, _UPTIME, 5026, "certain"),
    (_OOM, _OWN, 777123, ""),
    (_OOM, _OTHER, 5026, ""),
    (_OOM, _OLD, 5026, ""),
    (_OOM, _UPTIME, 777123, ""),
    (_CRASH, _OWN, 5026, "likely"),
    (_CRASH, _OWN, 777123, ""),
    (_CRASH, _OTHER, 5026, ""),
    (_CRASH, _OLD, 5026, ""),
)


def test_line_of_the_kernel_accuses_if_it_is_of_the_job(tmp_path: Path) -> None:
    """It leads if host, process and time do not contradict the log, and process or time agrees with it."""
    (log,) = sample_data.contents("peer-killed")
    (tmp_path / "job.log").write_bytes(log)
    problems = []
    for line, before, pid, expected in _KERNEL:
        text = line.format(pid=pid)
        (tmp_path / "dmesg.txt").write_text(f"{before}x: y\n{before}{text}\n")
        job = nccl_inspect.read(tmp_path)
        shown = [f for f in job.findings if any(line.source.endswith("dmesg.txt") for line in f.evidence)]
        said = shown[0].confidence if shown else "possible"
        lead = job.findings[0]
        believed = shown[:1] == [lead] and lead.rule == _RULES[line]
        if job.verdict != "failed" or said != (expected or "possible") or believed != bool(expected):
            problems.append(f"{before}{text}: {job.verdict} by {lead.rule}, {said}")
        if not expected and (lead.rule, lead.ranks) != ("peer-death", [3]):
            problems.append(f"{before}{text}: hides the rank that went away")
    assert not problems, "\n".join(problems)


def test_dumps_accuse_if_a_time_agrees(tmp_path: Path) -> None:
    """Dumps name no process and no communicator: if no line has a date, the log must not be older than they are."""
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=(_NOW - 1) * 10**9)]
    waits = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=_NOW * 10**9)]
    beside(tmp_path, {0: waits, 1: waits, 2: waits, 3: made})
    said = {}
    for days in (0, 9, -9):
        os.utime(tmp_path / "job.log", (_NOW + days * 86_400, _NOW + days * 86_400))
        job = nccl_inspect.read(tmp_path)
        said[days] = (job.verdict, job.findings[0].rule, job.findings[0].confidence)
    found = "collective-not-called"
    assert said == dict.fromkeys((0, 9), ("failed", found, "certain")) | {-9: ("unknown", found, "possible")}
