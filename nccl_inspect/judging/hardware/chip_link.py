"""GPUDirect RDMA on hosts whose GPUs stand at the CPU by NVLink-C2C (Grace): a matter of release and setting."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts, words_of
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import listed

_SWITCH = "NCCL_NET_GDR_C2C"
FIX = f"{_SWITCH}=1   # NCCL 2.26; later releases have it by default: unset {_SWITCH} where it is 0"


def decides(facts: Facts) -> bool:
    """Whether NCCL may do without it although the machine has it: by its release, or because somebody says so."""
    platform = facts.platform
    return platform is not None and platform.gdr_since is not None and (platform.gdr is None or bool(_off(facts)))


def words(facts: Facts) -> str:
    """Why that is so."""
    platform = facts.platform
    name, since = (platform.name, platform.gdr_since) if platform else ("", "")
    if off := _off(facts):
        return f"{words_of(off)} keeps NCCL from it where the way to the NIC goes over NVLink-C2C, as on a {name}"
    releases = listed(facts.job.nccl_versions) or "not in the log"
    return (
        f"a {name} has it, and NCCL uses it there by default since {since} only (2.26: with {_SWITCH}=1); the release "
        f"here: {releases}"
    )


def _off(facts: Facts) -> list[Setting]:
    return [setting for setting in facts.settings(_SWITCH) if setting.value == "0"]
