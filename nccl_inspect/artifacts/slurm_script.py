"""Scripts for Slurm: what ``#SBATCH`` and ``srun`` ask for, and the variables that they set."""

from __future__ import annotations

import re

from nccl_inspect.artifacts.containers import Variable, variables
from nccl_inspect.util.records import Frozen, Record, frozen, record

KIND = "Slurm script"
_DIRECTIVE = re.compile(rb"^#SBATCH[ \t]", re.MULTILINE)
_NCCL = re.compile(rb"\bNCCL (?:INFO|WARN|TRACE) ")
_ASSIGNED = re.compile(r"""(?:^|[\s,;"'])([A-Z]+_\w+)=("[^"]*"|'[^']*'|[^\s,;"'|&]*)""")
_OPTION = re.compile(r"(?:^|\s)(--[a-z][a-z-]*)(?:=|\s+(?!-))?(\S*)")
_LAUNCHER = re.compile(r"\bsrun\b(.*)")
MOST = 1 << 20


@frozen
class Option(Frozen):
    """An option of sbatch or srun."""

    name: str
    value: str
    line: int
    text: str


@record
class Script(Record):
    """One script."""

    name: str
    options: list[Option]
    env: list[Variable]


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is a script for sbatch: a log may quote one."""
    return head.startswith(b"#!") and _DIRECTIVE.search(head) is not None and not _NCCL.search(head)


def read(name: str, data: bytes) -> Script:
    """Return a script."""
    options: list[Option] = []
    pairs: list[tuple[str, str | None, int]] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if line.startswith("#SBATCH"):
            options += _options(line.removeprefix("#SBATCH"), number)
        elif not line.lstrip().startswith("#"):
            pairs += [(key, value.strip("\"'"), number) for key, value in _ASSIGNED.findall(line)]
            launched = _LAUNCHER.search(line)
            options += _options(launched[1] if launched else line if line.lstrip().startswith("--") else "", number)
    return Script(name, options, variables(pairs, "the script"))


def _options(text: str, number: int) -> list[Option]:
    return [Option(key, value, number, text.strip()) for key, value in _OPTION.findall(text)]
