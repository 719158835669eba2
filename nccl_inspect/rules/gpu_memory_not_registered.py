"""A NIC cannot register GPU memory, so GPUDirect RDMA fails where NCCL chose it."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, value
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.networks.ib_errors import REFUSED
from nccl_inspect.model.statements import usage
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="gpu-memory-not-registered",
    category="gpudirect",
    layer=Layer.PROGRAM,
    title="GPU memory cannot be registered with the NIC",
    supersedes=("memory-registration-failed",),
    local=True,
)
_DMABUF = "reg_dmabuf_mr"
_IOVA2 = "reg_mr_iova2"
_CALLS = ("reg_mr", _IOVA2, _DMABUF)
_OF_OTHERS = (None, "Cannot allocate memory", "Too many open files", *REFUSED)
"""For ib-memlock (before 2.14 NCCL does not print why a call failed), open-files-limit and ib-bad-device."""
_BAD_ADDRESS = "Bad address"
_INVALID = "Invalid argument"
_RUNS = ("connected", "destroyed")
_STOPS = Outcome("error", "the rank cannot connect: the job stops", is_fatal=True)
_CONTINUES = Outcome(
    "warning",
    "NCCL continued: it copies a buffer that the application registered through its own, or found another way",
)


def judge(facts: Facts) -> Results:
    """Judge calls that register memory and fail for a reason other than the limit on locked memory."""
    failed = [
        notice
        for notice in facts.notices("nccl/ib-call-failed")
        if value(notice, "name") in _CALLS and value(notice, "error") not in _OF_OTHERS
    ]
    if not failed:
        return
    names = {value(notice, "name") for notice in failed}
    errors = {value(notice, "error") for notice in failed}
    outcome = _CONTINUES if _continued(facts) else _STOPS
    calls = listed(f"ibv_{value(notice, 'name')} failed with {value(notice, 'error')}" for notice in failed)
    yield RULE.finding(
        f"the NIC cannot register GPU memory: {calls}",
        cause=_cause(names, errors),
        impact=outcome.impact,
        fix=[
            "lsmod | grep nvidia_peermem; modprobe nvidia-peermem; dmesg -T | grep -i peermem   # on the host",
            "cat /proc/driver/nvidia/version   # 'Open Kernel Module': DMA-BUF does not need nvidia-peermem",
            *(
                ["NCCL_DMABUF_ENABLE=0   # a test: does registering through nvidia-peermem work?"]
                if _DMABUF in names
                else []
            ),
            *(
                ["NCCL_IB_PCI_RELAXED_ORDERING=0   # a test: does the NIC refuse these flags?"]
                if _IOVA2 in names and _INVALID in errors
                else []
            ),
            "NCCL_NET_GDR_LEVEL=LOC   # a test without GPUDirect RDMA: if the job runs, GPU memory registration is the "
            "cause",
        ],
        severity=outcome.severity,
        confidence="likely",
        notices=failed,
        fatal=outcome.is_fatal,
    )


def _continued(facts: Facts) -> bool:
    """Whether the log shows working communicators: NCCL can do without registering a buffer of the application."""
    states = [comm.state for comm in usage.in_use(facts.job)]
    works = bool(states) and all(state in _RUNS for state in states)
    return (
        works
        and not facts.job.failed
        and not facts.notices("nccl/proxy-operation-error", "nccl/proxy-operation-failed")
    )


def _cause(names: set[object], errors: set[object]) -> str:
    if _DMABUF in names:
        return (
            "DMA-BUF between GPU and NIC does not work: it needs the open kernel modules of the NVIDIA driver, and a "
            "kernel (5.12 or later) and NIC driver that support it"
        )
    if _BAD_ADDRESS in errors:
        return (
            "the NIC driver does not know the address: nvidia-peermem is not loaded or was built for another NVIDIA or "
            "NIC driver (reload it after an update of either), or the container was started before that"
        )
    return (
        "not proved: nvidia-peermem is missing or does not match the NVIDIA and the NIC driver, or the NIC refuses the "
        "flags; the tests below show which"
    )
