"""Something that the program or a setting asks for is not possible here."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="feature-unavailable",
    category="environment",
    severity="error",
    title="Something that was asked for is not possible with this build, driver or hardware",
)
_GPU_NETWORK = (
    "communication that the GPU starts (GIN), or one-sided communication, needs NICs, a plugin, a driver and "
    "memory that can do it, on every rank"
)
_CAUSES = {
    "nccl/cumem-unsupported": "NCCL was built for an older CUDA than this feature needs",
    "nccl/graph-unsupported": "CUDA graphs with NCCL need a build for CUDA 11.3 and driver R465 at least",
    "nccl/encryption-unsupported": "encrypted connections are asked for, and this build of NCCL cannot make them",
    "nccl/mem-manager-shared": "a communicator that shares resources with its parent (splitShare) cannot be suspended",
    "aws-ofi-nccl/ofi-dmabuf-not-compiled": "this build of aws-ofi-nccl cannot use DMA-BUF",
    "aws-ofi-nccl/ofi-blocking-interface": "the protocol of aws-ofi-nccl that is in use does not have this call",
    "tcpxo/fastrak-pxn-not-supported": "NCCL sends through the NIC of a neighbour (PXN), which Google's "
    "plugin cannot do",
    "rccl/rccl-unsupported-collective": "RCCL was built for some collectives only (ONLY_FUNCS)",
    "rccl/rccl-npkit": "the profiler NPKit, which is built in, cannot run here",
}
_WITHOUT = (
    "unset NCCL_GIN_TYPE; NCCL_GIN_ENABLE=0   # and let the program do without: DeepEP and NVSHMEM have other ways"
)
_FIXES = {
    "nccl/encryption-unsupported": "Take a build of NCCL with TLS, or take away the pre-shared key.",
    "nccl/mem-manager-shared": "Make the communicator without splitShare (NCCL_COMM_SPLIT_SHARE_RESOURCES=0).",
    "tcpxo/fastrak-pxn-not-supported": "NCCL_PXN_DISABLE=1   # as Google's profile (nccl-env-profile.sh) sets it",
    "aws-ofi-nccl/ofi-blocking-interface": "OFI_NCCL_PROTOCOL=RDMA   # where the NIC can do it; else another release "
    "of the plugin",
    "aws-ofi-nccl/ofi-dmabuf-not-compiled": "Take the plugin of a current EFA installer; or OFI_NCCL_DISABLE_DMABUF=1.",
}
_UPGRADE = "Take a build of NCCL, RCCL or the plugin, and a driver, that can do it; or let the program do without."


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what says so."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    kind, of_gpu = said[0].production, "gpu-network" in said[0].roles
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"not possible here: {said[0].message}",
        cause=_CAUSES.get(kind, _GPU_NETWORK if of_gpu else "the message tells"),
        stops="the call that asks for it fails, and a program that needs it ends",
        fix=tuple(dict.fromkeys((_WITHOUT if of_gpu else _FIXES.get(kind, _UPGRADE), _UPGRADE))),
        confirm="Check whether the program goes on without it.",
    )
