"""The machine type, from signs in the log and the names of the GPUs that it or a file beside it lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nccl_inspect import platforms
from nccl_inspect.event import types as events
from nccl_inspect.judging.statements import value
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.platforms import Platform, Shown, recognise_platform

if TYPE_CHECKING:
    from nccl_inspect.artifacts.tools import Item


def platform_of(job: Job) -> Platform | None:
    """Return the machine type by a sign in the log, else by the names of the GPUs."""
    chosen = {(setting.name, setting.value) for setting in job.environment if setting.source != "plugin"}
    cliques = [notice for notice in job.notices if notice.production == "nccl/mnnvl-clique"]
    sizes = [int(str(value(notice, key) or 0)) for notice in cliques for key in ("clique_size", "domain_size")]
    networks = {job.network.name, *(kind.net for kind in job.paths.kinds)}
    networks.update(net for comm in job.communicators for net in comm.networks)
    words: list[str | None] = []  # the instance type, or the group of types, that aws-ofi-nccl names
    for notice in job.notices:
        match notice.event:
            case events.PluginStatus(kind="NET", status="loading" | "loaded", plugin=plugin):
                networks.add(plugin)  # used or not
            case events.OfiPlatform(platform=name):
                words.append(name)
            case _ if notice.production in ("aws-ofi-nccl/ofi-tuner-not-available", "aws-ofi-nccl/ofi-tuner-internal"):
                words.append(value(notice, "platform"))
            case _ if notice.production == "aws-ofi-nccl/ofi-gdr-disabled-on-capable":
                words.append(notice.message.rpartition(" ")[2])
    return recognise_platform(
        Shown(
            settings=chosen,
            networks=set(filter(None, networks)),
            plugin=tuple(dict.fromkeys(filter(None, words))),
            nvlink_domain=max(sizes, default=0),
            gpu_names=gpu_names(job),
            gpus=nvidia_smi.most_gpus(job),
        )
    )


def expected_of(platform: Platform | None, job: Job) -> Platform | None:
    """Return the machine type with what this job can expect of it."""
    settings = {(setting.name, setting.value) for setting in job.environment}
    uses_p2p = any(kind.transport == "P2P" for kind in job.paths.kinds)
    if platform and platform.p2p is False and platform.nvlink_pairs and uses_p2p:
        platform = replace(platform, p2p=None)  # it has bridges, between some GPUs
    local_ranks = max((comm.local_ranks or 0 for comm in job.communicators), default=0)
    return platform and platforms.expect_of_job(platform, job.nccl_versions, local_ranks, settings)


def gpu_names(job: Job) -> set[str]:
    """Return the names of the GPUs: those of the job if nccl-tests lists them, else those that nvidia-smi shows."""
    of_ranks = {str(value(notice, "gpu")) for notice in job.notices if "rank-list" in notice.roles}
    in_log = {str(value(notice, "gpu")) for notice in _gpu_list(job).lines.values()}
    return of_ranks or in_log or {str(item.values.get("model")) for item in _beside(job)}


def rests_on_list(given: Platform | None, platform: Platform | None, job: Job) -> bool:
    """Return whether the platform is only known from a list of nvidia-smi, maybe of another machine."""
    by_name = given is None and platform is not None and bool(platform.gpu_names)
    if not by_name or any("rank-list" in notice.roles for notice in job.notices):
        return False
    if _gpu_list(job).lines:
        return not _gpu_list(job).proven
    return {item.host for item in _beside(job)} != {host.name for host in job.hosts}


def _gpu_list(job: Job) -> nvidia_smi.Shown:
    """Return the output of nvidia-smi -L on the job's hosts; empty if it lists fewer GPUs than the job uses on one."""
    output = nvidia_smi.on_hosts(job, "gpu-list")
    is_whole = output.lines and len(output.lines) >= nvidia_smi.most_gpus(job)
    return output if is_whole else nvidia_smi.Shown()


def _beside(job: Job) -> list[Item]:
    reports = contents_of(job.artifacts, "nvidia_smi_list", "nvidia_smi_query")
    return [item for report in reports for item in report.items if item.part == "gpu" and "model" in item.values]
