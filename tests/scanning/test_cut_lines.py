"""What a line lacks that was cut is no evidence."""

import re
from pathlib import Path

import nccl_inspect
from nccl_inspect.model.job import Job

_SAMPLES = Path(__file__).parents[2] / "sample_logs"
_HEALTHY = ("p2p-nvlink-8gpu", "p2p-direct-threads", "measured/default", "v2.32.3-diagnostics", "torn-p2p-8gpu")
_WIDTHS = (80, 90, 100, 110, 120, 132)
_MAY_SHOW = {"lines-cut-off", "log-incomplete", "lines-damaged", "gin-failed"}
"""GIN's warning is only a possible fault in the whole log, too."""


def _read_cut(log: bytes, width: int) -> Job:
    """Return the job of a log whose lines are cut; its processes have ids of several lengths."""
    ids = sorted(set(re.findall(rb":(\d+):\d+ \[", log)))
    longer = {name: name * (1 + at % 3) for at, name in enumerate(ids)}
    log = re.sub(
        rb":(\d+):(\d+) \[", lambda found: b":%b:%b [" % (longer[found[1]], longer.get(found[2], bytes(found[2]))), log
    )
    return nccl_inspect.read(b"\n".join(line[:width] for line in log.split(b"\n")))


def test_healthy_job_is_neither_ok_nor_accused() -> None:
    """The verdict is unknown, and no rank has a fault, wherever the lines are cut."""
    problems = []
    for sample in _HEALTHY:
        log = (_SAMPLES / sample / "job.log").read_bytes()
        for width in _WIDTHS:
            job = _read_cut(log, width)
            shown = {finding.rule for finding in job.findings if finding.confidence != "possible"} - _MAY_SHOW
            shown |= {finding.rule for finding in job.findings if finding.severity == "error"}
            if job.verdict != "unknown" or shown or not job.excerpt:
                problems.append(f"{sample} at {width}: {job.verdict} {shown}")
    assert not problems, "\n".join(problems)


def test_setting_is_that_of_one_rank() -> None:
    """The ranks that a process has in its smaller communicators are none of the job."""
    log = (_SAMPLES / "socket-2node-tp4-dp2/job.log").read_bytes()
    start = next(re.finditer(rb"^(\S+ \[\d\] NCCL INFO )ncclCommInitRank\w* comm \S+ rank 6 nranks 8", log, re.M))
    log = log[: start.start()] + start[1] + b"NCCL_ALGO set by environment to Ring\n" + log[start.start() :]
    problems = []
    for width in _WIDTHS:
        settings = [setting for setting in _read_cut(log, width).environment if setting.name == "NCCL_ALGO"]
        problems += [f"{width}: {setting.ranks}" for setting in settings if setting.ranks not in ([], [6])]
    assert not problems, "\n".join(problems)
