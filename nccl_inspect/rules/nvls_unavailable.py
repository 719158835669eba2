"""Reduction inside the NVSwitch is not available although the GPUs support it."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit

_LEAST = 3
"""Ranks of a host that NVLS needs."""
_HAVE_IT = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's line on machines with Hopper or newer GPUs behind an NVSwitch, or '0 nvls channels' on request.

    GPUs report a fabric only behind an NVSwitch (2.20 on).
    """
    platform, without = facts.platform, facts.notices("nccl/nvls-not-available")
    local = [comm.local_ranks for comm in facts.job.communicators if comm.local_ranks is not None]
    has_model = platform is not None and bool(platform.nvlink) and platform.gpu in _HAVE_IT
    has_nvswitch = has_model or bool(facts.notices("nccl/mnnvl-fabric"))
    if local and max(local) < _LEAST:
        return
    if without and has_nvswitch:
        yield Hit(without)
    elif not without and (has_nvswitch or platform is None or platform.gpu is None):
        algo = [one for one in facts.user_settings("NCCL_ALGO") if "NVLS" in one.value.upper() and "^" not in one.value]
        asked = [*algo, *(one for one in facts.user_settings("NCCL_NVLS_ENABLE") if one.value == "1")]
        if asked and (counted := facts.job.without_nvls):
            yield Hit(settings=asked, hosts=(), evidence=[*evidence_of_settings(asked, 1), *counted[:2]])
