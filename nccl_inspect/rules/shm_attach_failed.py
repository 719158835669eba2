"""A shared memory segment that another rank created could not be opened."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.page_words import Hit

_NOT_THERE = 2
_FILE = "misc/shmutils.cc"


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed attaching if nothing else failed: otherwise the segment's creator ended for another reason."""
    failed = [notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") == "attaching to"]
    failed += facts.errors_of_rule("shm-attach-failed")
    others = [n for n in facts.errors() if n.level == "WARN" and not _is_about_shm(n)]
    removed = [notice for notice in facts.notices("nccl/shm-unlink-failed") if _is_missing(notice)]
    if not others and (failed or (removed and facts.job.failed)):
        calls = [notice for notice in facts.notices("nccl/system-call-failed") if _is_about_shm(notice)]
        found = failed or removed
        reason = next((str(error) for notice in found if (error := value(notice, "error"))), "")
        named = {"failed": failed, "reason": reason, "missing": any(map(_is_missing, found))}
        yield Hit(found, named, evidence=first_evidence([*calls, *failed, *removed]))


def _is_about_shm(notice: Notice) -> bool:
    """Whether it is about a segment; the line of the failed call does not name it."""
    is_call = notice.production == "nccl/system-call-failed" and (notice.location or "").startswith(_FILE)
    return is_call or "shm-segment" in notice.roles


def _is_missing(notice: Notice) -> bool:
    return value(notice, "errno") == _NOT_THERE or "No such file" in str(value(notice, "error"))
