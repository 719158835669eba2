"""NVSHMEM has no transport to a peer."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule, value
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="nvshmem-no-transport",
    category="network",
    title="NVSHMEM has no transport to a peer",
    shows=("no-nvshmem",),
    supersedes=("nvshmem-failed",),
    local=True,
)
_SKIPPED = "nvshmem/nvshmem-transport-skipped"


def judge(facts: Facts) -> Results:
    """Judge NVSHMEM's own words; the transports that did not come up before them are part of the evidence."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    skipped = facts.notices(_SKIPPED)
    names = dict.fromkeys(str(value(notice, "transport") or value(notice, "library")) for notice in skipped)
    yield stated_errors.finding(
        RULE,
        facts,
        [*errors, *skipped],
        "NVSHMEM has no transport to a peer" + (f": {listed(names)} did not come up" if names else ""),
        cause="between hosts it needs IBGDA, IBRC, libfabric or UCX, with nvidia-peermem or DMA-BUF and a NIC that "
        "NVSHMEM knows; within a host P2P between the GPUs, which CUDA_VISIBLE_DEVICES or a virtual machine may "
        "prevent. The lines above name what each transport lacks",
        stops="NVSHMEM does not start, and with it DeepEP and whatever else uses it",
        fix=(
            "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'; ibv_devinfo -l   # on the host; the NICs also in the "
            "container",
            "NVSHMEM_DEBUG=INFO NVSHMEM_DEBUG_SUBSYS=INIT,TRANSPORT   # what each transport and each NIC lacks",
            "NVSHMEM_REMOTE_TRANSPORT=ibrc   # a test: without IBGDA; libfabric on EFA and Slingshot",
            "Let every process see all GPUs of the host: NVSHMEM chooses among them.",
        ),
        confirm="Check whether the program continues without NVSHMEM.",
    )
