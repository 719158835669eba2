"""TrainJobs joined to the runtimes that they refer to: both together say all that their pods get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nccl_inspect.artifacts.containers import Container, Pod, Variable
from nccl_inspect.util.grouping import group_values

RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_TRAINED = ("node", "trainer")
"""What runtimes call the container that the trainer of a TrainJob replaces."""


def join_pods(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods, those of a runtime as the TrainJob has them that refers to it."""
    runtimes = group_values((pod.name, pod) for pod in pods if pod.kind in RUNTIMES)
    whole = {id(job): _build_pods(job, runtimes[job.runtime]) for job in pods if job.runtime in runtimes}
    used = {job.runtime for job in pods if id(job) in whole}
    return [
        made for pod in pods if not (pod.kind in RUNTIMES and pod.name in used) for made in whole.get(id(pod), [pod])
    ]


def _build_pods(job: Pod, runtime: Sequence[Pod]) -> list[Pod]:
    """Return the pods of a job; what stands neither here nor there they do not have."""
    (trainer,) = job.containers
    return [
        replace(
            pod,
            kind=job.kind,
            name=job.name,
            namespace=job.namespace,
            is_whole=True,
            containers=[
                _apply_trainer(container, trainer) if container.name in _TRAINED or len(runtime) == 1 else container
                for container in pod.containers
            ],
        )
        for pod in runtime
    ]


def _apply_trainer(container: Container, trainer: Container) -> Container:
    own = {variable.name for variable in trainer.env}
    env: list[Variable] = [*(entry for entry in container.env if entry.name not in own), *trainer.env]
    if not trainer.resources:
        return replace(container, env=env)
    return replace(container, env=env, resources=trainer.resources, elsewhere=trainer.elsewhere)
