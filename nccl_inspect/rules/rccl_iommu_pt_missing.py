"""RCCL misses iommu=pt on the kernel command line."""

from collections.abc import Iterator

from nccl_inspect.event.types import CollectiveTimeout, Notice
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="rccl-iommu-pt-missing",
    category="intra-node path",
    severity="info",
    title='RCCL misses "iommu=pt" on the kernel command line',
    causes=("hang-after-init", "hang-in-init"),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the warning by what came of the job: alone it is but a note."""
    missing = facts.notices("rccl/rccl-host-setting-missing")
    if not missing:
        return
    names = sorted({str(notice.event.value("setting")) for notice in missing if isinstance(notice.event, Notice)})
    stuck = facts.said(CollectiveTimeout)
    yield RULE.finding(
        f"RCCL does not find {' and '.join(names)} on the kernel command line",
        cause="the IOMMU may translate the addresses of GPUs and NICs, which stalls or breaks P2P and RDMA on bare "
        "metal",
        impact="a collective did not finish: this is one possible reason"
        if stuck or facts.job.ended_by
        else "none in this log; kernels with passthrough as default, and virtual machines, give the line without harm",
        fix=[
            'GRUB_CMDLINE_LINUX="<what is there> iommu=pt"   # in /etc/default/grub, then update-grub and reboot',
            "cat /sys/class/iommu/*/devices 2>/dev/null | head; dmesg | grep -i 'default domain type'   # "
            "Passthrough is right",
        ],
        severity="warning" if stuck or facts.job.ended_by else "info",
        confidence="possible" if stuck or facts.job.ended_by else "certain",
        notices=missing,
    )
