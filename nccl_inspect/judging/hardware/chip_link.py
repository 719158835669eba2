"""GPUDirect RDMA on hosts with GPUs attached to the CPU via NVLink-C2C (Grace): depends on release and setting."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts, as_shell
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import list_words

_SWITCH = "NCCL_NET_GDR_C2C"


def decides(facts: Facts) -> bool:
    """Return whether NCCL may leave it unused although the machine supports it: due to the release, or to a setting."""
    platform = facts.platform
    return platform is not None and platform.gdr_since is not None and (platform.gdr is None or bool(_off(facts)))


def words(facts: Facts) -> str:
    """Why NCCL may leave it unused."""
    platform = facts.platform
    name, since = (platform.name, platform.gdr_since) if platform else ("", "")
    if off := _off(facts):
        return f"{as_shell(off)} disables it where the NIC is reached over NVLink-C2C, as on a {name}"
    releases = list_words(facts.job.nccl_versions) or "not in the log"
    return (
        f"a {name} supports it, but NCCL uses it there by default only since {since} (2.26: with {_SWITCH}=1); the "
        f"release here: {releases}"
    )


def _off(facts: Facts) -> list[Setting]:
    return [setting for setting in facts.settings(_SWITCH) if setting.value == "0"]
