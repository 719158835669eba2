"""A call to the NIC failed for a reason that has no rule of its own."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Effects, Facts, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.networks.ib_errors import AT_START, REFUSED
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD

RULE = Rule(
    name="ib-call-failed",
    category="network",
    layer=Layer.CALL,
    title="A call to an InfiniBand or RoCE card failed",
)
_JUDGED = ("reg_mr", "reg_mr_iova2", "reg_dmabuf_mr", "query_gid")
"""Calls that ib-memlock, gpu-memory-not-registered and ib-gid-index judge, whatever the error is."""
_LOCKING = ("create_cq", "create_qp")
"""Calls that ib-memlock judges where memory is short or the line has no error."""
_TO_THE_PEER = (
    *("Invalid argument", "No data available"),
    *("Connection timed out", "No route to host", "Network is unreachable"),
)
"""What ib-gid-index judges of modify_qp."""
_NO_MEMORY = "Cannot allocate memory"
_FILES = "Too many open files"
"""What open-files-limit judges."""
_CLEANING = ("destroy_cq", "destroy_qp", "destroy_srq", "dereg_mr", "dealloc_pd", "close_device", "free_device_list")
_RIGHTS = "the process lacks permission: the container has no device of /dev/infiniband, or no IPC_LOCK or NET_RAW"
_LIBRARIES = (
    "the libraries of the image (rdma-core, libmlx5) and the driver of the host are incompatible, the card or its "
    "firmware does not support this, or a setting requests what the card cannot do"
)
_TROUBLE = "the card, its firmware or its driver does not respond, was reset or was removed"
_CAUSES = {
    "Permission denied": _RIGHTS,
    _NO_MEMORY: "queues or memory of the card or of the host are used up, or the limit on locked memory is too small",
    **dict.fromkeys(
        ("Operation not supported", "Function not implemented", "Invalid argument", "Protocol not supported"),
        _LIBRARIES,
    ),
    **dict.fromkeys(("Input/output error", "Connection timed out", "Remote I/O error"), _TROUBLE),
}
_UNKNOWN = f"the line does not say. Either {_LIBRARIES}; or {_TROUBLE}"
_AFTERWARDS = "NCCL is cleaning up: usually a consequence of an earlier failure, or of a card that is gone"


def judge(facts: Facts) -> Results:
    """Judge the remaining calls that NCCL's wrapper of the verbs library reports (src/misc/ibvwrap.cc)."""
    notices = [notice for notice in facts.notices("nccl/ib-call-failed") if _is_left(facts, notice)]
    if not notices:
        return
    if _follows(facts, notices):
        yield Effects(notices)
        return
    name, error = value(notices[0], "name"), value(notices[0], "error")
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"a call to the NIC failed: {notices[0].message}",
        cause=_AFTERWARDS if name in _CLEANING else _CAUSES.get(str(error), _UNKNOWN),
        stops="NCCL skips this card, or cannot connect and stops",
        fix=(
            "ibv_devinfo; ls -l /dev/infiniband   # inside the container; compare with the host",
            "dmesg -T | grep -iE 'mlx5|bnxt|irdma'; ibstat   # on the host: errors, resets, firmware?",
            "ulimit -l   # in the container, through the launcher: must say unlimited",
            RDMA_IN_DOCKER,
            RDMA_IN_POD,
            "NCCL_IB_HCA='=mlx5_0,mlx5_1'   # only the cards for this job",
        ),
        confirm="Check whether connections over NET/IB follow (via …), and what failed before this line.",
        confidence="likely" if error and name not in _CLEANING else "possible",
    )


def _follows(facts: Facts, notices: list[Notice]) -> bool:
    """Whether NCCL only cleans up after another error, which needs no finding of its own."""
    first = first_of_each(notice.evidence[0] for notice in facts.errors() if value(notice, "name") not in _CLEANING)
    lines = [notice.evidence[0] for notice in notices]
    if not all(value(notice, "name") in _CLEANING for notice in notices):
        return False
    return all(line.order > first.get(line.source, line.order) for line in lines)


def _is_left(facts: Facts, notice: Notice) -> bool:
    name, error = value(notice, "name"), value(notice, "error")
    if name in AT_START:
        return error != _FILES and not facts.notices("nccl/ib-device-not-usable")
    if name in _JUDGED or error in (*REFUSED, _FILES):
        return False
    if name in _LOCKING:
        return error not in (None, _NO_MEMORY)
    return name != "modify_qp" or error not in _TO_THE_PEER
