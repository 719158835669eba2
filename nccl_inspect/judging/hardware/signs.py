"""Signs of the machine type in a log, for :mod:`nccl_inspect.platforms`."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event import types as events
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.platforms import Shown

_TUNER = ("aws-ofi-nccl/ofi-tuner-not-available", "aws-ofi-nccl/ofi-tuner-internal")
_BLOCK = "aws-ofi-nccl/ofi-gdr-disabled-on-capable"
_LOADED = ("loading", "loaded")


def find_signs(job: Job, gpu_names: set[str]) -> Shown:
    """Return the signs of the machine type in a job, together with the names of its GPUs."""
    chosen = {(setting.name, setting.value) for setting in job.environment if setting.source != "plugin"}
    cliques = [notice for notice in job.notices if notice.production == "nccl/mnnvl-clique"]
    sizes = [int(str(value(notice, key) or 0)) for notice in cliques for key in ("clique_size", "domain_size")]
    return Shown(
        settings=chosen,
        networks={*_networks(job)},
        plugin=tuple(dict.fromkeys(_words_of_plugin(job))),
        nvlink_domain=max(sizes, default=0),
        gpu_names=gpu_names,
        gpus=nvidia_smi.most_gpus(job),
    )


def local_ranks(job: Job) -> int:
    """Return the most ranks that a communicator has on a host; 0 if no line shows it."""
    return max((comm.local_ranks or 0 for comm in job.communicators), default=0)


def _networks(job: Job) -> Iterator[str]:
    """Yield the networks that NCCL uses, and the plugins that were loaded, used or not."""
    yield from filter(None, (kind.net for kind in job.paths.kinds))
    yield from filter(None, (job.network.name, *(net for comm in job.communicators for net in comm.networks)))
    for notice in job.notices:
        event = notice.event
        if isinstance(event, events.PluginStatus) and event.kind == "NET" and event.status in _LOADED and event.plugin:
            yield event.plugin


def _words_of_plugin(job: Job) -> Iterator[str]:
    """Yield the instance type, or the group of types, that aws-ofi-nccl names."""
    for notice in job.notices:
        if isinstance(notice.event, events.OfiPlatform):
            yield notice.event.platform
        elif notice.production in _TUNER and (word := value(notice, "platform")):
            yield str(word)
        elif notice.production == _BLOCK:
            yield notice.message.rpartition(" ")[2]
