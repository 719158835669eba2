"""nccl-tests compared the results and found wrong ones."""

from collections.abc import Iterator

from nccl_inspect.bandwidth import measure
from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import count


def find(facts: Facts) -> Iterator[Hit]:
    """Find the test's result, which does not name the faulty link or memory."""
    wrong = facts.notices("nccl-tests/test-wrong")
    failed = sum(value(notice, "wrong_count") for notice in wrong)
    evidence = first_evidence(wrong)
    if not wrong:  # the table without its last lines
        evidence = [line for entry in measure(facts) for line in entry.wrong_lines]
        failed = len(evidence)
    if evidence:
        known = ("over P2P",) if facts.paths(transport="P2P") else ()
        named = {"checks": count(failed, "check")}
        yield Hit(named=named, known=known, ranks=facts.job.ranks_seen, hosts=facts.hosts(), evidence=evidence)
