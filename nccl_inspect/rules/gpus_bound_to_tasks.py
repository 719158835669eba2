"""The Slurm script limits each task to its own GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.judging.engine import Evidence, Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.page_words import Hit

if TYPE_CHECKING:
    from nccl_inspect.artifacts.slurm_script import Option

_BINDINGS = ("single", "per_task", "map_gpu", "mask_gpu")


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find options of sbatch and srun that explain GPU memory that could not be shared."""
    faults = workloads.faults("gpus-bound-to-tasks", findings)
    scripts = artifacts.of(facts.job.artifacts, "slurm_script") if faults else ()
    bound = [(script.name, option) for script in scripts for option in script.options if _binds(option)]
    if bound:
        file, option = bound[0]
        named = {
            "option": f"{option.name}={option.value}",
            "name": option.name,
            "place": f"{file.rpartition('/')[2]}:{option.line}",
        }
        yield Hit([], named, evidence=[Evidence(name, one.line, one.text) for name, one in bound], effects=faults)


def _binds(option: Option) -> bool:
    is_bound = option.name == "--gpu-bind" and option.value.startswith(_BINDINGS)
    return is_bound or option.name == "--gpus-per-task"
