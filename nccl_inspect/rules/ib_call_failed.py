"""A call to the NIC failed for a reason that has no rule of its own."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Facts, Notice, value
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.networks.ib_errors import AT_START, REFUSED
from nccl_inspect.judging.page_words import Hit

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


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the remaining calls that NCCL's wrapper of the verbs library reports (src/misc/ibvwrap.cc)."""
    notices = [notice for notice in facts.notices("nccl/ib-call-failed") if _is_left(facts, notice)]
    if notices and _follows(facts, notices):
        yield Effects(notices)
    elif notices:
        yield Hit(notices, {"cleaning": value(notices[0], "name") in _CLEANING})


def _follows(facts: Facts, notices: list[Notice]) -> bool:
    """Whether NCCL only cleans up after another error, which needs no finding of its own."""
    first = first_of_each(notice.evidence[0] for notice in facts.errors() if value(notice, "name") not in _CLEANING)
    lines = [notice.evidence[0] for notice in notices]
    is_late = all(line.order > first.get(line.source, line.order) for line in lines)
    return is_late and all(value(notice, "name") in _CLEANING for notice in notices)


def _is_left(facts: Facts, notice: Notice) -> bool:
    name, error = value(notice, "name"), value(notice, "error")
    if name in AT_START:
        return error != _FILES and not facts.notices("nccl/ib-device-not-usable")
    if name in _JUDGED or error in (*REFUSED, _FILES):
        return False
    if name in _LOCKING:
        return error not in (None, _NO_MEMORY)
    return name != "modify_qp" or error not in _TO_THE_PEER
