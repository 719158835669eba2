"""A shared memory segment could not be created."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import error_of

_NO_SPACE = 28


def find(facts: Facts) -> Iterator[Hit]:
    """Find warnings about creating a segment; one about attaching to it alone is the echo of a failure elsewhere."""
    failed = [
        *facts.errors_of_rule("shm-segment-failed"),
        *(notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") == "creating"),
        *(notice for notice in facts.notices("nccl/shm-open-failed-old") if value(notice, "size") is not None),
    ]
    full = list(filter(_is_full, facts.notices("nccl/system-call-failed", "nccl/shm-open-failed-old")))
    if failed := failed or full:
        codes = {code for notice in failed if (code := value(notice, "errno")) is not None}
        size = max((size for notice in failed if (size := value(notice, "size")) is not None), default=0)
        named = {
            "size": f"{size / 1e6:.1f}" if size else "",
            "errors": ", ".join(
                sorted({str(value(n, "error")) for n in failed if value(n, "errno") in codes - {_NO_SPACE}})
            ),
            "full": full or _NO_SPACE in codes,
            "reason": full or codes,
        }
        yield Hit(failed, named, evidence=first_evidence([*full, *failed]))


def _is_full(notice: Notice) -> bool:
    """Whether there was no room for a file: up to 2.11 the call that creates the segment reports it."""
    allocates = value(notice, "size") is not None or "allocate" in str(value(notice, "call"))
    return allocates and error_of(notice) == "No space left on device"
