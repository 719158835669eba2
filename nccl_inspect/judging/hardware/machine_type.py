"""The type of the machines, by signs in the log and by the names of the GPUs that it or a file beside it lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.judging.hardware import signs
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.platforms import Platform, conditions
from nccl_inspect.platforms.recognition import recognised

if TYPE_CHECKING:
    from nccl_inspect.artifacts.machine import Item


def platform_of(job: Job) -> Platform | None:
    """The machine type that the log names by a sign, else what the names of the GPUs tell."""
    return recognised(signs.of(job, gpu_names(job)))


def expected_of(platform: Platform | None, job: Job) -> Platform | None:
    """What the machine lets this job expect."""
    settings = {(setting.name, setting.value) for setting in job.environment}
    return platform and conditions.expected_of(platform, job.nccl_versions, signs.local_ranks(job), settings)


def gpu_names(job: Job) -> set[str]:
    """The names of the GPUs: those of the job where nccl-tests lists them, else those that nvidia-smi shows."""
    said = {str(value(notice, "gpu")) for notice in job.notices if "rank-list" in notice.roles}
    in_log = {str(value(notice, "gpu")) for notice in _listed(job).lines.values()}
    return said or in_log or {str(item.values.get("model")) for item in _beside(job)}


def rests_on_list(given: Platform | None, platform: Platform | None, job: Job) -> bool:
    """Whether only a list of nvidia-smi, maybe of another machine, tells the platform.

    Args:
        given: the platform, where the user names it.
        platform: that was found.
        job: whose machines they are.
    """
    by_name = given is None and platform is not None and bool(platform.gpu_names)
    if not by_name or any("rank-list" in notice.roles for notice in job.notices):
        return False
    if _listed(job).lines:
        return not _listed(job).proven
    return {item.host for item in _beside(job)} != {host.name for host in job.hosts}


def _listed(job: Job) -> nvidia_smi.Shown:
    """What nvidia-smi -L printed of the job's hosts; nothing where it lists fewer GPUs than the job uses on one."""
    found = nvidia_smi.on_hosts(job, "gpu-list")
    return found if len(found.lines) >= nvidia_smi.most_gpus(job) else nvidia_smi.Shown()


def _beside(job: Job) -> list[Item]:
    """The GPUs that files beside the log name."""
    reports = artifacts.of(job.artifacts, "nvidia_smi_list", "nvidia_smi_query")
    return [item for report in reports for item in report.items if item.part == "gpu" and "model" in item.values]
