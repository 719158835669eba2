"""The program or a setting requests a feature that is not supported here."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="feature-unavailable",
    category="environment",
    layer=Layer.RESOURCE,
    title="A requested feature is not supported by this build, driver or hardware",
)
_GPU_NETWORK = (
    "GPU-initiated communication (GIN) and one-sided communication need NICs, a plugin, a driver and memory that "
    "support them, on every rank"
)
_CAUSES = {
    "nccl/cumem-unsupported": "NCCL was built for an older CUDA than this feature needs",
    "nccl/graph-unsupported": "CUDA graphs with NCCL need a build for CUDA 11.3 or later and driver R465 or later",
    "nccl/encryption-unsupported": "encrypted connections are requested, but this build of NCCL does not support them",
    "nccl/mem-manager-shared": "a communicator that shares resources with its parent (splitShare) cannot be suspended",
    "aws-ofi-nccl/ofi-dmabuf-not-compiled": "this build of aws-ofi-nccl does not support DMA-BUF",
    "aws-ofi-nccl/ofi-blocking-interface": "the aws-ofi-nccl protocol in use does not have this call",
    "tcpxo/fastrak-pxn-not-supported": "NCCL sends through the NIC of another GPU (PXN), which Google's plugin does "
    "not support",
    "rccl/rccl-unsupported-collective": "RCCL was built with only some collectives (ONLY_FUNCS)",
    "rccl/rccl-npkit": "the built-in profiler NPKit cannot run here",
}
_WITHOUT = (
    "unset NCCL_GIN_TYPE; NCCL_GIN_ENABLE=0   # and avoid GIN in the program: DeepEP and NVSHMEM have alternatives"
)
_FIXES = {
    "nccl/encryption-unsupported": "Use a build of NCCL with TLS, or remove the pre-shared key.",
    "nccl/mem-manager-shared": "Create the communicator without splitShare (NCCL_COMM_SPLIT_SHARE_RESOURCES=0).",
    "tcpxo/fastrak-pxn-not-supported": "NCCL_PXN_DISABLE=1   # as Google's profile (nccl-env-profile.sh) sets it",
    "aws-ofi-nccl/ofi-blocking-interface": "OFI_NCCL_PROTOCOL=RDMA   # if the NIC supports it; else use another "
    "release of the plugin",
    "aws-ofi-nccl/ofi-dmabuf-not-compiled": "Use the plugin of a current EFA installer, or set "
    "OFI_NCCL_DISABLE_DMABUF=1.",
}
_UPGRADE = "Use a build of NCCL, RCCL or the plugin, and a driver, that support it, or disable it in the program."


def judge(facts: Facts) -> Results:
    """Judge the errors that report it."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    kind, of_gpu = notices[0].production, "gpu-network" in notices[0].roles
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"not supported here: {notices[0].message}",
        cause=_CAUSES.get(kind, _GPU_NETWORK if of_gpu else "see the message"),
        stops="the call that requests it fails, and a program that needs it ends",
        fix=tuple(dict.fromkeys((_WITHOUT if of_gpu else _FIXES.get(kind, _UPGRADE), _UPGRADE))),
        confirm="Check whether the program continues without it.",
    )
