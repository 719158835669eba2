"""GPUDirect-TCPXO is told to use LLCM, whose devices are not in the container."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="tcpxo-llcm-missing",
    category="plugins",
    cloud="GCP",
    severity="error",
    title="The devices of LLCM are missing for GPUDirect-TCPXO",
    supersedes=("tcpxo-init-failed",),
)

_REASONS = ("No files found matching", "No LLCM device", "resource0", "resource2", "BAR4", "mmap Llcm", "mmap Reverse")
_READ_ONLY = "Read-only file system"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the search for the devices of LLCM; one that cannot be read is passed over by the plugin itself."""
    told = [*facts.leading_to(RULE.name), *google_plugins.aborted(facts, *_REASONS)]
    if not told or (google_plugins.works(facts) and not facts.job.failed):
        return
    read_only = any(_READ_ONLY in str(value(notice, "error")) for notice in told) or any(
        _READ_ONLY in google_plugins.reason(notice) for notice in told
    )
    yield RULE.finding(
        "GPUDirect-TCPXO cannot use LLCM: "
        + ("its devices are on a read-only file system" if read_only else "its devices are not in the container"),
        cause="NCCL_FASTRAK_USE_LLCM=1 needs the aperture devices of the NICs; the container sees /sys read-only, or "
        "they are not mounted where NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY says",
        impact="the plugin ends the process: the job does not start",
        fix=[
            "volumeMounts: [{name: aperture-devices, mountPath: /dev/aperture_devices}]   # with a hostPath volume of "
            "the same path; in the container of the job",
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices   # GKE; on VMs the devices are in /sys",
            "ls /dev/aperture_devices   # inside the container: one folder for each NIC",
            "NCCL_FASTRAK_USE_LLCM=0   # a stop-gap: control messages then go over UDP, which is slower",
        ],
        notices=told,
        fatal=True,
    )
