"""The driver does not let the GPU ring the doorbell of a NIC (IBGDA)."""

from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="ibgda-not-permitted",
    category="gpudirect",
    title="The driver does not let the GPU drive the NIC (IBGDA)",
    may_cause=("no-nvshmem",),
    local=True,
)
_FAILED = ("nvshmem-no-transport", "nvshmem-connect-failed", "nvshmem-failed")


def judge(facts: Facts) -> Results:
    """Judge NVSHMEM's statements that the registers of a NIC cannot be mapped into the GPU."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    stops = facts.job.failed or any(facts.errors_of_rule(rule) for rule in _FAILED)
    yield RULE.finding(
        f"the GPU may not drive the NIC: {errors[0].message}",
        cause="IBGDA needs the registers of the NIC mapped into the GPU, and the NVIDIA driver permits that only with "
        "PeerMappingOverride=1. Otherwise the container lacks /dev/infiniband, or the NIC is of another vendor",
        impact="NVSHMEM does not start"
        if stops
        else "the NIC is left out, or a CPU thread drives it: small messages between hosts are slower",
        fix=[
            "grep -E 'PeerMappingOverride|EnableStreamMemOPs' /proc/driver/nvidia/params   # on the host",
            'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords="PeerMappingOverride=1;"   # '
            "/etc/modprobe.d/nvidia.conf; then update-initramfs -u, and reboot",
            "NVSHMEM_IBGDA_NIC_HANDLER=cpu   # without the permission: a CPU thread drives the NIC (needs GDRCopy)",
        ],
        severity="error" if stops else "warning",
        confidence="likely",
        notices=errors,
        explains_errors=errors,
        fatal=stops,
    )
