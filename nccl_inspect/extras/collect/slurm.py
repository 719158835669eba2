"""What Slurm knows of a job, the files that it wrote, and the state of its nodes."""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.collect.collection import Collection, Wanted, load_commands

ARGUMENT = "JOBID"
HELP = "number of a job, running or ended a short while ago: 4711, or 4711_3 of an array"
COMMANDS = load_commands("slurm")
_NUMBER = re.compile(r"\d+(?:[_+]\d+)?(?:\.\w+)?")
_PATH = re.compile(r"^\s*Std(?:Out|Err)=(/.*\S)", re.MULTILINE)
_NODES = re.compile(r"^\s*NodeList=([A-Za-z0-9][\w.,\[\]-]*)$", re.MULTILINE)
_OF_TASK = re.compile(r"%\d*[A-Za-z]")  # what Slurm fills in for each step, node or task: `%t` of `job-%j-%t.out`


def collect(collection: Collection, wanted: Wanted) -> None:
    """Gather the files."""
    if not _NUMBER.fullmatch(wanted.argument):
        raise NcclInspectError(f"{wanted.argument}: not the number of a job", "squeue --me and sacct list them")
    description = collection.run(COMMANDS["job"].fill(job=wanted.argument)).decode("utf-8", "replace")
    account = collection.run(COMMANDS["account"].fill(job=wanted.argument))
    if not collection.is_dry and not description and not account.strip():
        why = next((f" ({entry.problem})" for entry in collection.outcomes if entry.problem), "")
        raise NcclInspectError(f"Slurm says nothing of job {wanted.argument}{why}", "run this on a host of the cluster")
    if description or collection.is_dry:
        collection.run(COMMANDS["steps"].fill(job=wanted.argument))
    nodes = list(dict.fromkeys(_NODES.findall(description))) or (["NODES"] if collection.is_dry else [])
    for number, listed in enumerate(nodes):
        command = COMMANDS["nodes"].fill(nodes=listed)
        collection.run(replace(command, file=f"{command.file}-{number}") if number else command)
    used: set[str] = set()
    for path in [Path("STDOUT")] if collection.is_dry else _files(description):
        name = path.name if path.name not in used else f"{len(used)}-{path.name}"
        used.add(name)
        file = "logs/" if collection.is_dry else f"logs/{name}"
        collection.keep(file, str(path), partial(shutil.copyfile, path), f"cp {path} {file}")
    collection.write_index()


def _files(description: str) -> Iterator[Path]:
    for named in dict.fromkeys(_PATH.findall(description)):
        if _OF_TASK.search(named) and not Path(named).exists():
            pattern = "*".join(map(glob.escape, _OF_TASK.split(named)))
            yield from (Path(name) for name in sorted(glob.glob(pattern)))  # noqa: PTH207 - the pattern is absolute
        else:
            yield Path(named)
