"""A NIC was denied access to the memory of its own GPU: status 4, local protection."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.util.wording import count

RULE = Rule(
    name="ib-error4-acs",
    category="network",
    may_cause=("wait", "loss", "call"),
    title="A NIC was denied access to the buffer it had to send (status 4): ACS or an IOMMU between NIC and GPU",
    local=True,
)
_LOCAL_PROTECTION = 4


def judge(facts: Facts) -> Results:
    """Judge local protection errors, unless no path uses GPUDirect: then the memory is the host's."""
    failed = facts.completions(_LOCAL_PROTECTION)
    paths = facts.inter_host_net_paths()
    direct = paths.where(lambda kind: kind.gdr)
    if not failed or (paths and not direct):
        return
    yield RULE.finding(
        f"{count(len(failed), 'transfer')} failed: the NIC was denied access to local memory (status 4, "
        "local protection)",
        cause="GPUDirect RDMA is in use, and PCIe access control (ACS) or an IOMMU redirects or blocks traffic between "
        "NIC and GPU"
        if direct
        else "usually PCIe access control (ACS) or an IOMMU between NIC and GPU; this log does not show whether "
        "GPUDirect RDMA is in use",
        impact="the communicator is lost, and with it the job",
        fix=[
            "NCCL_NET_GDR_LEVEL=LOC   # a test without GPUDirect, slower: if it works, ACS or the IOMMU is the cause",
            "sudo lspci -vvv | grep ACSCtl   # SrcValid+ means ACS is on",
            "Disable ACS and VT-d in the BIOS, or boot with iommu=pt.",
            "setpci -s <bdf> ECAP_ACS+0x6.w=0000   # alternatively, for each bridge, after each boot",
            "In virtual machines ACS must stay on: enable ATS in the NIC instead.",
        ],
        confidence="likely" if direct else "possible",
        notices=failed,
        fatal=True,
    )
