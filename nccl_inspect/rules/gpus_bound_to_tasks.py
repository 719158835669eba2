"""The Slurm script limits each task to its own GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.remedies import COMMENT

if TYPE_CHECKING:
    from nccl_inspect.artifacts.slurm_script import Option
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="gpus-bound-to-tasks",
    category="intra-node path",
    layer=Layer.SETTING,
    title="The Slurm script limits each task to its own GPU",
    may_cause=("resource", "call", "no-gpu-access"),
)
_BINDINGS = ("single", "per_task", "map_gpu", "mask_gpu")


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Explain GPU memory that could not be shared by the options of sbatch and srun."""
    faults = workloads.faults(RULE, effects)
    bound = [
        (script.name, option)
        for script in (artifacts.of(facts.job.artifacts, "slurm_script") if faults else ())
        for option in script.options
        if _binds(option)
    ]
    if not bound:
        return
    file, option = bound[0]
    yield workloads.finding_of(
        RULE,
        facts,
        [],
        faults,
        f"{option.name}={option.value} limits each task to its own GPU",
        cause="Slurm hides the other GPUs of the node from the task (CUDA_VISIBLE_DEVICES, device cgroup), and CUDA "
        "cannot map the memory of a GPU that the process does not see",
        fix=[
            f"--gpus-per-node=<GPUs of the node> --gpu-bind=none{COMMENT}{file.rpartition('/')[2]}:{option.line}: "
            f"instead of {option.name}",
            'torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))   # in the program, before the first use of CUDA',
        ],
        evidence=[Evidence(name, option.line, option.text) for name, option in bound],
    )


def _binds(option: Option) -> bool:
    if option.name == "--gpus-per-task":
        return True
    return option.name == "--gpu-bind" and option.value.startswith(_BINDINGS)
