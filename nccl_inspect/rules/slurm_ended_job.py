"""Slurm's controller reports why it ended the job."""

from collections.abc import Iterator, Sequence

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.check import Evidence, Facts, Finding, Hit
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.model.inventory import contents_of

_BY_TIME = ("ended", "gone")
"""Kinds of effects: a hanging job also reaches its time limit, which explains how it ended, not why it hung."""
_LATE = ("TIMEOUT", "DEADLINE")
_STATES = (*_LATE, "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
_SHOWN = ("JobState", "RunTime", "NodeList")


def find(facts: Facts, effects: Sequence[Finding]) -> Iterator[Hit]:
    """Find a job that ended by its state in Slurm, if its nodes are hosts of the log, where both have names."""
    faults = workloads.faults("slurm-ended-job", effects)
    by_time = [effect for effect in faults if workloads.shows(effect, *_BY_TIME)]
    ends = [effect for effect in faults if effect.fatal or effect in by_time]
    hosts = {name.partition(".")[0] for name in facts.hosts() if is_named(name)}
    for output in contents_of(facts.job.artifacts, "slurm_job") if ends else ():
        for job in output.jobs:
            values, state = job.values, job.values.get("JobState", "")
            explained = by_time if state in _LATE else ends
            if state not in _STATES or (hosts and job.nodes and hosts.isdisjoint(job.nodes)) or not explained:
                continue
            by_line = {line: [key for key in job.lines if job.lines[key] == line] for line in job.lines.values()}
            yield Hit(
                named={
                    "number": job.number,
                    "state": state,
                    "limit": values.get("TimeLimit") if state in _LATE else "",
                    "reason": values.get("Reason", "None"),
                    "code": values.get("ExitCode", "?"),
                },
                evidence=[
                    Evidence(output.name, line, " ".join(f"{key}={values[key]}" for key in by_line[line]))
                    for line in (job.lines[key] for key in _SHOWN if key in values)
                ],
                effects=explained,
            )
            return
