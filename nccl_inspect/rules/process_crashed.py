"""The kernel log shows that a process crashed."""

from collections.abc import Iterator

from nccl_inspect.judging.check import Facts, Hit, value
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.statements import message_of


def find(facts: Facts) -> Iterator[Hit]:
    """Find kernel lines, which may be older than the job, and whether a rank has a pid in them, as none has in pods."""
    crashes = facts.errors_of_rule("process-crashed")
    sure = {value(notice, "pid") for notice in crashes if kernel_log.confidence(facts, notice) != "possible"}
    is_rank = any(last.process.pid in sure for last in facts.job.last_lines if last.ranks)
    if crashes:
        known = ("a rank",) if is_rank else ()
        yield Hit(crashes, named={"words": message_of(crashes[0]).strip()}, known=known)
