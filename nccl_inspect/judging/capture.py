"""The one command that captures what a log lacks, built from the needs that rules report."""

from __future__ import annotations

import shlex

from nccl_inspect.model.finding import Needs
from nccl_inspect.model.job import Job

_ORDER = ("INIT", "ENV", "BOOTSTRAP", "NET", "GRAPH", "P2P", "SHM", "COLL", "TUNING")
_LOGS = "/logs"


def command(job: Job) -> str | None:
    """Return the command that answers the open questions; None if there are none, or no log would answer them.

    ``<the job>`` stands for the launch command, ``NAME`` for the machine type.
    """
    needs = [entry.lacks for entry in job.not_judged]
    if not needs:
        return None
    again = _advise_rerun(needs)
    return "; ".join(part for part in (again, *_read(needs, job, again is not None)) if part) or None


def _advise_rerun(needs: list[Needs]) -> str | None:
    """Return the job again with a fuller log; None if that would not help."""
    asked = {name for need in needs for name in need.subsystems}
    everyone = any(need.all_ranks for need in needs)
    if not (asked or everyone):
        return None
    names = sorted(
        {"INIT", "ENV", "NET", *asked}, key=lambda name: (_ORDER.index(name) if name in _ORDER else 99, name)
    )
    file = f" NCCL_DEBUG_FILE={_LOGS}/nccl.%h.%p.log" if everyone else ""
    into = "" if everyone else " 2>&1 | tee job.log"
    return f"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS={','.join(names)}{file} <the job>{into}"


def _read(needs: list[Needs], job: Job, again: bool) -> list[str]:
    """Return the command that reads the log, with the topology or platform it needs."""
    topology = any(need.topology for need in needs)
    platform = not topology and any(need.platform for need in needs)
    summarize = f"nccl-inspect summarize {_log(needs, job, again)}"
    if topology:
        return ["nvidia-smi topo -m > topo.txt", f"{summarize} --topology topo.txt"]
    return [summarize + (" --platform NAME" if platform else "")] if again or platform else []


def _log(needs: list[Needs], job: Job, again: bool) -> str:
    if again:
        return _LOGS if any(need.all_ranks for need in needs) else "job.log"
    name = job.sources[0].name if len(job.sources) == 1 else ""
    return shlex.quote(name) if name and not name.startswith("<") else "<the log>"
