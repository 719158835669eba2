"""A network plugin cannot register memory with the NIC."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.remedies import EFA_RELEASES, LIBFABRIC_SAYS, LOCKED_MEMORY_IN_POD

RULE = Rule(
    name="memory-registration-failed",
    category="network",
    layer=Layer.SYSTEM,
    title="A plugin cannot register memory with the network",
    shows=("no-locked-memory",),
)
_BAD_ADDRESS, _INVALID = -14, -22
_NO_GPU_MEMORY = (
    "the NIC cannot reach GPU memory: no GPUDirect RDMA on this machine or in this container (nvidia-peermem "
    "or DMA-BUF missing, or libfabric was built without CUDA)"
)
_OTHER_RELEASE = (
    "libfabric, its provider or the driver do not support what the plugin requests: their releases do not match"
)
_UNKNOWN = (
    "unknown from this log; likely: the limit on locked memory, GPU memory that the NIC cannot reach, or "
    "incompatible releases; the line before has the error of libfabric"
)
_OF_LIBFABRIC = "aws-ofi-nccl"
_OPEN_MODULES = "cat /proc/driver/nvidia/version   # 'Open Kernel Module': DMA-BUF does not need nvidia-peermem"
_GPU_STEPS = (
    "fi_info -p efa -c FI_HMEM; lsmod | grep nvidia_peermem   # must list the NICs, and the module",
    _OPEN_MODULES,
)
_FIXES = {
    _NO_GPU_MEMORY: _GPU_STEPS,
    _OTHER_RELEASE: (
        EFA_RELEASES,
        "Use libfabric and the plugin of one EFA installer in the image, and its driver on the node.",
    ),
    _UNKNOWN: (
        "ulimit -l   # in the container, through the launcher: must say unlimited",
        LOCKED_MEMORY_IN_POD,
        *_GPU_STEPS,
    ),
}


def judge(facts: Facts) -> Results:
    """Judge by the error of libfabric; ib-memlock judges the lack of locked memory."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    cause = _cause(notices)
    is_libfabric = any(notice.event and notice.event.dialect == _OF_LIBFABRIC for notice in notices)
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"memory cannot be registered with the network: {notices[0].message}",
        cause=cause,
        stops="the connection fails, and the job stops",
        fix=(*_FIXES[cause], LIBFABRIC_SAYS) if is_libfabric else (_OPEN_MODULES, *_FIXES[_UNKNOWN][:2]),
        confirm="Check whether a later connection of this rank uses the network (via NET/…).",
        confidence="possible" if cause is _UNKNOWN else "likely",
    )


def _cause(notices: list[Notice]) -> str:
    codes = {-abs(code) for notice in notices if isinstance(code := value(notice, "rc"), int)}
    if _BAD_ADDRESS in codes:
        return _NO_GPU_MEMORY
    return _OTHER_RELEASE if _INVALID in codes else _UNKNOWN
