"""Slurm's controller says why it ended the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import DEATHS
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.slurm_job import Entry

RULE = Rule(
    name="slurm-ended-job",
    category="failures",
    severity="error",
    title="Slurm ended the job: time limit, failed node, memory",
    explains=(*DEATHS, "node-failed"),
    ends=True,
)
_BY_TIME = ("ended-from-outside", "peer-death", "process-unresponsive")
"""A job that hangs runs into its time limit, too: that explains how it ended, and not why it hung."""
_STATES = {
    "TIMEOUT": "the time limit was reached",
    "DEADLINE": "the deadline of the job was reached",
    "NODE_FAIL": "a node of the job failed",
    "BOOT_FAIL": "a node of the job did not boot",
    "OUT_OF_MEMORY": "a task used more memory than the job may, and the kernel killed it",
    "PREEMPTED": "a job of higher priority took its place",
}
_LATE = ("TIMEOUT", "DEADLINE")


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge a job that ended by the state in which Slurm has it."""
    shown = [one for one in workloads.faults(effects) + _ended(effects) if one.fatal or one.rule in _BY_TIME]
    for said in artifacts.of(facts.job.artifacts, "slurm_job") if shown else ():
        for job in said.jobs:
            state = job.values.get("JobState", "")
            if state in _STATES and _is_this(facts, job):
                effects = [one for one in shown if state not in _LATE or one.rule in _BY_TIME]
                if effects:
                    yield _finding(facts, said.name, job, effects)
                    return


def _ended(effects: Sequence[Finding]) -> list[Finding]:
    """That somebody ended the job is no fault, and still what is explained here."""
    return [one for one in effects if one.rule == "ended-from-outside" and one.severity == "info"]


def _finding(facts: Facts, file: str, job: Entry, shown: list[Finding]) -> Finding:
    state = job.values["JobState"]
    keys = [key for key in ("JobState", "RunTime", "NodeList") if key in job.values]
    limit = job.values.get("TimeLimit", "")
    return workloads.explained(
        RULE,
        facts,
        [],
        shown,
        f"job {job.number}: {_STATES[state]}" + (f" (TimeLimit={limit})" if state in _LATE and limit else ""),
        cause=f"Slurm has the job as {state}, Reason={job.values.get('Reason', 'None')}, "
        f"ExitCode={job.values.get('ExitCode', '?')}",
        fix=list(_fix(job)),
        evidence=[
            Evidence(file, job.lines[key], " ".join(f"{one}={job.values[one]}" for one in _beside(job, key)))
            for key in keys
        ],
    )


def _beside(job: Entry, key: str) -> list[str]:
    """The values on the line of one of them."""
    return [name for name, line in job.lines.items() if line == job.lines[key]]


def _fix(job: Entry) -> Iterator[str]:
    state, number = job.values["JobState"], job.number
    if state in _LATE:
        yield "#SBATCH --time=<longer>   # and --signal=B:USR1@300 for time to save a checkpoint"
        yield "Look when the job last made a step: one that hangs runs into its time limit, too."
    elif state == "OUT_OF_MEMORY":
        yield "#SBATCH --mem=0   # all memory of the node"
        yield f"sacct -j {number} --format=JobID,NodeList,MaxRSS,ReqMem,State   # which step, and how much"
    elif state in ("NODE_FAIL", "BOOT_FAIL"):
        yield f"sacct -j {number} --format=JobID,NodeList,State,Reason; sinfo -R   # which node, and why it is down"
        yield "#SBATCH --exclude=<node>   # run the job again without it"
    else:
        yield "#SBATCH --requeue   # with checkpoints; or a partition or QOS that is not preempted"


def _is_this(facts: Facts, job: Entry) -> bool:
    """Whether hosts of the log are nodes of the job, where both have names."""
    hosts = {name.partition(".")[0] for name in facts.hosts() if is_named(name)}
    nodes = job.nodes
    return not hosts or not nodes or bool(hosts & nodes)
