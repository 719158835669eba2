"""Variables that a job is given, unless somebody set them, and those by which launchers number its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nccl_inspect.util.records import Frozen, frozen

DEBUG_FILE = "NCCL_DEBUG_FILE"


@frozen
class Setting(Frozen):
    """A variable that is set where nobody set it."""

    name: str
    value: str
    """``{folder}`` stands for the folder of the run."""
    unless: tuple[str, ...] = ()
    """Variables that somebody set instead, or with which this one would change what is seen."""


SETTINGS = (
    Setting("NCCL_DEBUG", "INFO"),
    Setting("NCCL_DEBUG_SUBSYS", "INIT,ENV,BOOTSTRAP,NET,GRAPH"),
    # Who asked for the lines of NCCL wants to see them; who did not shall find the output as it was. A file for each
    # process has no torn lines.
    Setting(DEBUG_FILE, "{folder}/nccl.%h.%p.log", unless=("NCCL_DEBUG",)),
    Setting("NCCL_TOPO_DUMP_FILE", "{folder}/topology.xml"),
    # PyTorch 2.9 and later prefer the names with FR.
    Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", unless=("TORCH_FR_BUFFER_SIZE",)),
    Setting("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", unless=("TORCH_FR_DUMP_ON_TIMEOUT",)),
    Setting("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "{folder}/nccl_trace_rank_", unless=("TORCH_FR_DUMP_TEMP_FILE",)),
    Setting("TORCH_FR_DUMP_TEMP_FILE", "{folder}/nccl_trace_rank_", unless=("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",)),
)
_CONFIGURATION = "NCCL_CONF_FILE"
_CONFIGURATIONS = ("~/.nccl.conf", "/etc/nccl.conf")
"""What NCCL reads, in this order (src/misc/param.cc): a variable set there counts as well."""


@frozen
class Launcher(Frozen):
    """Holds how a launcher numbers processes."""

    mark: str
    """The variable that holds it."""
    rank: str
    local_rank: str


LAUNCHERS = (
    Launcher("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK"),
    Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    Launcher("PMI_RANK", "PMI_RANK", "MPI_LOCALRANKID"),
    Launcher("SLURM_PROCID", "SLURM_PROCID", "SLURM_LOCALID"),
    Launcher("RANK", "RANK", "LOCAL_RANK"),
)
"""The innermost first: what mpirun starts in a batch job of Slurm inherits the numbers of the batch step."""
JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
"""What all processes of a job have in common, by launcher."""
STEP = "SLURM_STEP_ID"
_MAX_NAME = 60


def given(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return what is to be added to the environment of a job."""
    names = {*environment, *_configured(environment)}
    wanted = [setting for setting in SETTINGS if names.isdisjoint((setting.name, *setting.unless))]
    return {entry.name: entry.value.replace("{folder}", _folder(entry.name, folder)) for entry in wanted}


def _folder(name: str, folder: Path) -> str:
    """The folder as a variable takes it: only in the name of the log file does % stand for something."""
    return str(folder).replace("%", "%%") if name == DEBUG_FILE else str(folder)


def _configured(environment: Mapping[str, str]) -> Iterable[str]:
    """The variables in files that NCCL reads itself."""
    first = environment.get(_CONFIGURATION)
    for path in ([first] if first else []) + list(_CONFIGURATIONS):
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
        except (OSError, RuntimeError):
            continue
        yield from re.findall(r"^\s*(\w+)\s*=", text, re.MULTILINE)


def ranks(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Rank and local rank that a launcher gave this process; None where it gave none."""
    launcher = next((launcher for launcher in LAUNCHERS if launcher.mark in environment), LAUNCHERS[-1])
    rank, local_rank = (environment.get(name, "") for name in (launcher.rank, launcher.local_rank))
    return _number(rank), _number(local_rank)


def _number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdecimal() else None


def job_name(environment: Mapping[str, str]) -> str:
    """Return what all processes of this job call it; empty where no launcher gave it a name."""
    name = next((environment[variable] for variable in JOB if environment.get(variable)), "")
    parts = [name, *([environment[STEP]] if name and environment.get(STEP) else [])]
    return re.sub(r"[^\w.-]", "_", "-".join(parts))[:_MAX_NAME]


def log_files(environment: Mapping[str, str]) -> str:
    """The pattern of the files that NCCL writes; empty where it writes none."""
    escaped = environment.get(DEBUG_FILE, "").replace("%%", "\0")
    return re.sub(r"%[hp]", "*", escaped).replace("\0", "%")
