"""A call to the NIC failed for another reason than those that have a rule of their own."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.networks.ib_errors import AT_START, REFUSED
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="ib-call-failed",
    category="network",
    severity="error",
    title="A call to an InfiniBand or RoCE card failed",
    symptom=True,
)
_JUDGED = ("reg_mr", "reg_mr_iova2", "reg_dmabuf_mr", "query_gid")
"""Calls that ib-memlock, gpu-memory-not-registered and ib-gid-index judge, whatever the error is."""
_LOCKING = ("create_cq", "create_qp")
"""Calls that ib-memlock judges where memory is short, or where the error is not told."""
_TO_THE_PEER = (
    *("Invalid argument", "No data available"),
    *("Connection timed out", "No route to host", "Network is unreachable"),
)
"""What ib-gid-index judges of modify_qp."""
_NO_MEMORY = "Cannot allocate memory"
_FILES = "Too many open files"
"""What open-files-limit judges."""
_CLEANING = ("destroy_cq", "destroy_qp", "destroy_srq", "dereg_mr", "dealloc_pd", "close_device", "free_device_list")
_RIGHTS = "the process may not do it: the container lacks a device of /dev/infiniband, IPC_LOCK or NET_RAW"
_LIBRARIES = (
    "the libraries of the image (rdma-core, libmlx5) and the driver of the host do not fit together, the card or its "
    "firmware does not offer this, or a setting asks for what it cannot do"
)
_TROUBLE = "the card, its firmware or its driver is in trouble: it does not answer, or was reset or taken away"
_CAUSES = {
    "Permission denied": _RIGHTS,
    _NO_MEMORY: "queues or memory of the card or of the host are used up, or the limit on locked memory is too small",
    **dict.fromkeys(
        ("Operation not supported", "Function not implemented", "Invalid argument", "Protocol not supported"),
        _LIBRARIES,
    ),
    **dict.fromkeys(("Input/output error", "Connection timed out", "Remote I/O error"), _TROUBLE),
}
_UNKNOWN = f"the line does not tell. Either {_LIBRARIES}; or {_TROUBLE}"
_AFTERWARDS = "NCCL cleans up: most often only a consequence of what failed before, or of a card that is gone"


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what is left of the calls that NCCL's wrapper of the verbs library reports (src/misc/ibvwrap.cc)."""
    said = [notice for notice in facts.notices("nccl/ib-call-failed") if _is_left(facts, notice)]
    if not said:
        return
    if _follows(facts, said):
        yield Effects(said)
        return
    name, error = value(said[0], "name"), value(said[0], "error")
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a call to the NIC failed: {said[0].message}",
        cause=_AFTERWARDS if name in _CLEANING else _CAUSES.get(str(error), _UNKNOWN),
        stops="NCCL does without this card, or cannot connect and stops",
        fix=(
            "ibv_devinfo; ls -l /dev/infiniband   # inside the container; compare with the host",
            "dmesg -T | grep -iE 'mlx5|bnxt|irdma'; ibstat   # on the host: errors, resets, firmware?",
            "ulimit -l   # in the container, through the launcher: must say unlimited",
            RDMA_IN_DOCKER,
            RDMA_IN_POD,
            "NCCL_IB_HCA='=mlx5_0,mlx5_1'   # only the cards that are meant for this job",
        ),
        confirm="Look whether connections over NET/IB follow (via …), and what failed before this line.",
        confidence="likely" if error and name not in _CLEANING else "possible",
    )


def _follows(facts: Facts, said: list[Notice]) -> bool:
    """Whether NCCL only cleans up below another error, which needs no finding of its own."""
    first = first_of_each(one.evidence[0] for one in facts.errors() if value(one, "name") not in _CLEANING)
    lines = [one.evidence[0] for one in said]
    if not all(value(one, "name") in _CLEANING for one in said):
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
