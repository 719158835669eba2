"""What Slurm's controller says of a job: ``scontrol show job``."""

from __future__ import annotations

import re
from dataclasses import field

from nccl_inspect.artifacts.identity import Identity, short
from nccl_inspect.artifacts.located import has_only
from nccl_inspect.util.records import Record, record
from nccl_inspect.util.wording import expand

KIND = "Slurm job"
_FIRST = re.compile(rb"\s*JobId=\d+ (?:Array\w+=\S+ )*JobName=")
_LINE = re.compile(rb"(?:JobId=\d.*|[ \t]+[A-Z][\w/:]*=.*|[ \t]*)\r?$")
_VALUE = re.compile(r"(?:^|\s)([A-Z][\w/:]*)=(\S*)")
_ONE = re.compile(r"(?:\[[^\]]*\]|[^,\[\]])+")  # one of the nodes of a list: `gpu-[01-04,7]` of `gpu-[01-04,7],login`
MOST = 8 << 20


@record
class Entry(Record):
    """One job."""

    number: str
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # where each value stands

    @property
    def nodes(self) -> set[str]:
        """Return the nodes on which it ran, as far as it names some."""
        listed = self.values.get("NodeList", "")
        return set() if listed == "(null)" else {name for one in _ONE.findall(listed) for name in expand(one)}


@record
class JobFile(Record):
    """One file."""

    name: str
    jobs: list[Entry]

    def identity(self) -> Identity:
        """Return what identifies its job."""
        nodes = [job.nodes for job in self.jobs]
        return Identity(
            hosts=frozenset(short(name) for of in nodes for name in of),
            are_all_hosts=all(nodes),
            numbers=frozenset(job.number for job in self.jobs),
            is_of_many=len(nodes) > 1,
        )


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is nothing but such an answer: many scripts print it at the beginning of a log."""
    return _FIRST.match(head) is not None and has_only(_LINE, head)


def read(name: str, data: bytes) -> JobFile:
    """Return an answer.

    Raises:
        ValueError: it names no job.
    """
    jobs: list[Entry] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        for key, value in _VALUE.findall(line):
            if key == "JobId":
                jobs.append(Entry(value))
            if jobs and key not in jobs[-1].values:
                jobs[-1].values[key] = value
                jobs[-1].lines[key] = number
    if not jobs:
        raise ValueError("it names no job")
    return JobFile(name, jobs)
