"""The kernel command line lacks iommu=pt, according to RCCL."""

from nccl_inspect.event.types import CollectiveTimeout, Notice
from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="rccl-iommu-pt-missing",
    category="intra-node path",
    may_cause=("wait", "loss", "call"),
    severity="info",
    title='The kernel command line lacks "iommu=pt"',
)


def judge(facts: Facts) -> Results:
    """Judge the warning by how the job ended: alone it is only a note."""
    missing = facts.notices("rccl/rccl-host-setting-missing")
    if not missing:
        return
    names = sorted({str(notice.event.value("setting")) for notice in missing if isinstance(notice.event, Notice)})
    stuck = facts.with_event(CollectiveTimeout)
    yield RULE.finding(
        f"RCCL does not find {' and '.join(names)} on the kernel command line",
        cause="the IOMMU may translate the addresses of GPUs and NICs, which stalls or breaks P2P and RDMA on bare "
        "metal",
        impact="a collective did not finish, and this is one possible cause"
        if stuck or facts.job.ended_by
        else "none in this log; the line is harmless in virtual machines and with kernels that default to passthrough",
        fix=[
            'GRUB_CMDLINE_LINUX="<existing options> iommu=pt"   # in /etc/default/grub; then update-grub and reboot',
            "cat /sys/class/iommu/*/devices 2>/dev/null | head; dmesg | grep -i 'default domain type'   # "
            "must be Passthrough",
        ],
        severity="warning" if stuck or facts.job.ended_by else "info",
        confidence="possible" if stuck or facts.job.ended_by else "certain",
        notices=missing,
    )
