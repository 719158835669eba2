"""GPUDirect-TCPXO is configured to use LLCM, but its devices are not in the container."""

from nccl_inspect.judging.engine import Facts, Results, Rule, value
from nccl_inspect.judging.networks import google_plugins

RULE = Rule(
    name="tcpxo-llcm-missing",
    category="plugins",
    cloud="GCP",
    title="GPUDirect-TCPXO does not find the LLCM devices",
    supersedes=("tcpxo-init-failed",),
)
_REASONS = ("No files found matching", "No LLCM device", "resource0", "resource2", "BAR4", "mmap Llcm", "mmap Reverse")
_READ_ONLY = "Read-only file system"


def judge(facts: Facts) -> Results:
    """Judge the search for the LLCM devices; the plugin itself skips unreadable ones."""
    errors = [*facts.errors_of_rule(RULE.name), *google_plugins.aborted(facts, *_REASONS)]
    if not errors or (google_plugins.works(facts) and not facts.job.failed):
        return
    read_only = any(
        _READ_ONLY in text for notice in errors for text in (str(value(notice, "error")), google_plugins.reason(notice))
    )
    yield RULE.finding(
        "GPUDirect-TCPXO cannot use LLCM: "
        + ("its devices are on a read-only file system" if read_only else "its devices are not in the container"),
        cause="NCCL_FASTRAK_USE_LLCM=1 needs the aperture devices of the NICs; the container mounts /sys read-only, or "
        "they are not mounted at NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY",
        impact="the plugin ends the process: the job does not start",
        fix=[
            "volumeMounts: [{name: aperture-devices, mountPath: /dev/aperture_devices}]   # with a hostPath volume of "
            "the same path; in the container of the job",
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices   # GKE; on VMs the devices are in /sys",
            "ls /dev/aperture_devices   # inside the container: one folder per NIC?",
            "NCCL_FASTRAK_USE_LLCM=0   # a workaround: control messages then use UDP, which is slower",
        ],
        notices=errors,
        fatal=True,
    )
