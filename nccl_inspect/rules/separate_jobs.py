"""Each host runs its own job although one job across all hosts was intended."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Evidence, Facts, first_evidence, value
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import count


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators that all stay on one host although the log has several.

    Groups within hosts and independent replicas look the same: only nccl-tests are certainly meant to span all hosts.
    """
    comms = facts.job.communicators
    if not comms:
        yield from _of_tests(facts)
        return
    if facts.job.alongside:
        yield Hit(named={"alongside": facts.job.alongside + 1})
    jobs = [comm for comm in comms if comm.parent is None and len(comm.started) == comm.nranks and len(comm.hosts) == 1]
    hosts = {host for comm in jobs for host in comm.hosts if is_named(host)}
    has_rank_0 = {comm.hosts[0] for comm in jobs if 0 in comm.started}
    if len(jobs) < 2 or len(hosts) < 2 or any(len(comm.hosts) > 1 for comm in comms) or len(has_rank_0) < len(hosts):
        return
    sizes = [count(size, "rank") for size in sorted({comm.nranks for comm in jobs})]
    is_of_tests = "nccl-tests" in facts.job.dialects
    alone = not is_of_tests and all(comm.nranks == 1 for comm in comms)
    named = {"jobs": len(jobs), "sizes": sizes, "alone": alone, "unknown program": not is_of_tests and not alone}
    yield Hit(named=named | {"hosts": hosts}, hosts=hosts, evidence=[comm.evidence[0] for comm in jobs])


def _of_tests(facts: Facts) -> Iterator[Hit]:
    """Find tests that ran at once in the output of nccl-tests: each lists its ranks from 0, and prints a table."""
    firsts = [notice for notice in facts.with_role("rank-list") if value(notice, "rank") == 0]
    heads = _at_once(facts, [notice.evidence[0] for notice in firsts])
    hosts = {str(value(notice, "node")) for notice in firsts if notice.evidence[0] in heads}
    units, options = facts.notices("nccl-tests/test-units"), facts.notices("nccl-tests/test-options")
    tables = _at_once(facts, [line for notice in units for line in notice.evidence])
    starts = sum(notice.count for notice in options)
    if len(heads) > 1:
        yield Hit(named={"heads": heads, "hosts": hosts}, hosts=hosts, evidence=heads)
    elif len(tables) > 1:
        yield Hit(named={"tables": tables}, evidence=tables)
    elif starts > 1 and not (units or facts.with_role("test-end")):
        yield Hit(named={"starts": starts}, evidence=first_evidence(options))


def _at_once(facts: Facts, begins: list[Evidence]) -> list[Evidence]:
    """The first lines of tests that precede the end of the first test, in the source with the most of them."""
    ends = first_of_each(line for notice in facts.with_role("test-end") for line in notice.evidence)
    by_source: dict[str, list[Evidence]] = {}
    for line in begins:
        if line.order < ends.get(line.source, line.order + 1):
            by_source.setdefault(line.source, []).append(line)
    return max(by_source.values(), key=len, default=[])
