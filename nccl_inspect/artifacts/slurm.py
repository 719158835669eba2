"""What Slurm says of a job (``scontrol show job``), and what its scripts ask for and set."""

from __future__ import annotations

import re
from dataclasses import field

from nccl_inspect.artifacts import Identity, Kind, short
from nccl_inspect.artifacts.containers import OF_A_LOG, Variable, variables
from nccl_inspect.artifacts.located import has_only
from nccl_inspect.util.records import Frozen, Record
from nccl_inspect.util.wording import expand

_FIRST = re.compile(rb"\s*JobId=\d+ (?:Array\w+=\S+ )*JobName=")
_LINE = re.compile(rb"(?:JobId=\d.*|[ \t]+[A-Z][\w/:]*=.*|[ \t]*)\r?$")
_VALUE = re.compile(r"(?:^|\s)([A-Z][\w/:]*)=(\S*)")
_ONE = re.compile(r"(?:\[[^\]]*\]|[^,\[\]])+")  # one of the nodes of a list: `gpu-[01-04,7]` of `gpu-[01-04,7],login`


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


class JobFile(Record):
    """One file with what the controller says."""

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


def _is_answer(head: bytes) -> bool:
    """Return whether a file is nothing but such an answer: many scripts print it at the beginning of a log."""
    return _FIRST.match(head) is not None and has_only(_LINE, head)


def _read_answer(name: str, data: bytes) -> JobFile:
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


_DIRECTIVE = re.compile(rb"^#SBATCH[ \t]", re.MULTILINE)
_ASSIGNED = re.compile(r"""(?:^|[\s,;"'])([A-Z]+_\w+)=("[^"]*"|'[^']*'|[^\s,;"'|&]*)""")
_OPTION = re.compile(r"(?:^|\s)(--[a-z][a-z-]*)(?:=|\s+(?!-))?(\S*)")
_LAUNCHER = re.compile(r"\bsrun\b(.*)")


class Option(Frozen):
    """An option of sbatch or srun."""

    name: str
    value: str
    line: int
    text: str


class Script(Record):
    """One script."""

    name: str
    options: list[Option]
    env: list[Variable]


def _is_script(head: bytes) -> bool:
    """Return whether a file is a script for sbatch: a log may quote one."""
    return head.startswith(b"#!") and _DIRECTIVE.search(head) is not None and not OF_A_LOG.search(head)


def read_script(name: str, data: bytes) -> Script:
    """Return the options and variables of a script."""
    texts: list[tuple[str, int]] = []  # those with options
    pairs: list[tuple[str, str | None, int]] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if line.startswith("#SBATCH"):
            texts.append((line.removeprefix("#SBATCH"), number))
        elif not line.lstrip().startswith("#"):
            pairs += [(key, value.strip("\"'"), number) for key, value in _ASSIGNED.findall(line)]
            launched = _LAUNCHER.search(line)
            texts.append((launched[1] if launched else line if line.lstrip().startswith("--") else "", number))
    found = ((option, text, number) for text, number in texts for option in _OPTION.findall(text))
    options = [Option(name, value, number, text.strip()) for (name, value), text, number in found]
    return Script(name, options, variables(pairs, "the script"))


KINDS = (
    Kind("slurm_job", "Slurm job", _is_answer, _read_answer, most=8 << 20),
    Kind("slurm_script", "Slurm script", _is_script, read_script, most=1 << 20),
)
