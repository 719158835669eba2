"""Slurm's controller reports why it ended the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.event.base import is_named
from nccl_inspect.judging.evidence import workloads

if TYPE_CHECKING:
    from nccl_inspect.artifacts.slurm_job import Entry
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="slurm-ended-job",
    category="failures",
    layer=Layer.SYSTEM,
    title="Slurm ended the job: time limit, failed node or memory",
    may_cause=("death", "gone", "ended"),
)
_BY_TIME = ("ended", "gone")
"""Kinds of effects: a hanging job also reaches its time limit, which explains how it ended, not why it hung."""
_STATES = {
    "TIMEOUT": "the time limit was reached",
    "DEADLINE": "the deadline of the job was reached",
    "NODE_FAIL": "a node of the job failed",
    "BOOT_FAIL": "a node of the job did not boot",
    "OUT_OF_MEMORY": "a task exceeded the job's memory limit, and the kernel killed it",
    "PREEMPTED": "a job of higher priority preempted it",
}
_LATE = ("TIMEOUT", "DEADLINE")


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge a job that ended by its state in Slurm."""
    faults = workloads.faults(RULE, effects)
    by_time = [effect for effect in faults if workloads.shows(effect, *_BY_TIME)]
    ends = [effect for effect in faults if effect.fatal or effect in by_time]
    for output in artifacts.of(facts.job.artifacts, "slurm_job") if ends else ():
        for job in output.jobs:
            state = job.values.get("JobState", "")
            if state in _STATES and _is_this(facts, job):
                explained = by_time if state in _LATE else ends
                if explained:
                    yield _finding(facts, output.name, job, explained)
                    return


def _finding(facts: Facts, file: str, job: Entry, effects: list[Finding]) -> Finding:
    state = job.values["JobState"]
    keys = [key for key in ("JobState", "RunTime", "NodeList") if key in job.values]
    limit = job.values.get("TimeLimit", "")
    return workloads.finding_of(
        RULE,
        facts,
        [],
        effects,
        f"job {job.number}: {_STATES[state]}" + (f" (TimeLimit={limit})" if state in _LATE and limit else ""),
        cause=f"Slurm reports JobState={state}, Reason={job.values.get('Reason', 'None')}, "
        f"ExitCode={job.values.get('ExitCode', '?')}",
        fix=list(_fix(job)),
        evidence=[
            Evidence(file, job.lines[key], " ".join(f"{name}={job.values[name]}" for name in _same_line(job, key)))
            for key in keys
        ],
    )


def _same_line(job: Entry, key: str) -> list[str]:
    """The names of the values on the line of a key."""
    return [name for name, line in job.lines.items() if line == job.lines[key]]


def _fix(job: Entry) -> Iterator[str]:
    state, number = job.values["JobState"], job.number
    if state in _LATE:
        yield "#SBATCH --time=<longer>   # and --signal=B:USR1@300 to leave time for a checkpoint"
        yield "Check when the job last completed a step: a hanging job also reaches its time limit."
    elif state == "OUT_OF_MEMORY":
        yield "#SBATCH --mem=0   # all memory of the node"
        yield f"sacct -j {number} --format=JobID,NodeList,MaxRSS,ReqMem,State   # which step used how much?"
    elif state in ("NODE_FAIL", "BOOT_FAIL"):
        yield f"sacct -j {number} --format=JobID,NodeList,State,Reason; sinfo -R   # which node is down, and why?"
        yield "#SBATCH --exclude=<node>   # run the job again without it"
    else:
        yield "#SBATCH --requeue   # with checkpoints; or use a partition or QOS that is not preempted"


def _is_this(facts: Facts, job: Entry) -> bool:
    """Whether hosts of the log are nodes of the job, where both have names."""
    hosts = {name.partition(".")[0] for name in facts.hosts() if is_named(name)}
    nodes = job.nodes
    return not hosts or not nodes or bool(hosts & nodes)
