"""What a log lacks, holds twice or has damaged, and what benchmarks and timings in it show."""

from collections import Counter
from collections.abc import Iterator

from nccl_inspect import bandwidth
from nccl_inspect.bandwidth import VERY_LOW, measure
from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging import at_end, life
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.check import Evidence, Facts, Hit, value
from nccl_inspect.judging.facts import first_of_each, global_ranks
from nccl_inspect.judging.impact import Estimate, cite
from nccl_inspect.model.inventory import Measured
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.levels import ANY, STATEMENTS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import count, list_words


def debug_level_too_low(facts: Facts) -> Iterator[Hit]:
    """Find logs whose NCCL lines are all warnings or the version line; excerpts omit lines."""
    sparse = [notice for notice in facts.job.notices if notice.level in (*STATEMENTS, "VERSION")]
    lines = sum(source.nccl_lines for source in facts.job.sources)
    if sparse and sum(notice.count for notice in sparse) >= lines and not facts.job.excerpt:
        yield Hit(evidence=sparse, named={"warnings": any(notice.level != "VERSION" for notice in sparse)})


def lines_cut_off(facts: Facts) -> Iterator[Hit]:
    """Find unrecognized lines most shapes of which are as long as the longest one."""
    unknown = facts.job.unrecognised
    lengths = Counter(len(shape.example.text) for shape in unknown)
    width = max(lengths, default=0)
    if lengths[width] >= max(4, len(unknown) / 2):  # so many shapes do not end at the same column by chance
        cut = [shape for shape in unknown if len(shape.example.text) == width]
        named = {"lines": sum(shape.count for shape in cut), "width": width}
        yield Hit(named=named, evidence=[shape.example for shape in cut])


_ANY = ANY.decode("ascii")
_TWO = compile_later(rf"NCCL (?:{_ANY}) .*NCCL (?:{_ANY}) ")
"""A line into which another one was written: unknown prefixes do not do that."""


def lines_damaged(facts: Facts) -> Iterator[Hit]:
    """Find torn NCCL lines, repaired or not, if they are more than a few."""
    lost, repaired, lines = (
        sum(getattr(source, f"{kind}_lines") for source in facts.job.sources)
        for kind in ("damaged", "repaired", "nccl")
    )
    if lost + repaired > lines * 0.01:  # even in torn blocks most lines are whole
        examples = facts.job.damaged
        written_into = repaired or any(_TWO.search(example.text) for example in examples)
        alike = lost >= 0.9 * lines and not written_into
        named = {
            "torn": lost + repaired,
            "lines": f"{lines:,}",
            "repaired": repaired,
            "lost": lost,
            "unread": f"{lost:,}",
            "alike": alike,
        }
        yield Hit(named=named, evidence=examples or facts.job.repaired)


def log_flood(facts: Facts) -> Iterator[Hit]:
    """Find warnings, errors and cascades that repeat; the output of NCCL_DEBUG_SUBSYS=ALL was requested."""
    # Fewer than these are no flood, however short the log is.
    often = [notice for notice in facts.job.notices if notice.count >= 100]
    repeated = [
        one
        for one in sorted(often, key=lambda one: one.place)
        if one.level in STATEMENTS
        or getattr(one.event, "tone", "info") != "info"
        or isinstance(one.event, ErrorCascade)
    ]
    total = sum(notice.count for notice in repeated)
    lines = sum(source.lines for source in facts.job.sources)
    if any(notice.count > 10_000 for notice in repeated) or total * 2 > lines:
        yield Hit(repeated, {"total": f"{total:,}", "lines": f"{lines:,}"})


def log_incomplete(facts: Facts) -> Iterator[Hit]:
    """Find whether every process shows how it began, and whether every rank of the world has a line."""
    job = facts.job
    if job.failed or facts.errors(forced_ends=False):
        return  # that says more than a missing line
    last = [] if len(job.paths) else [one.evidence for one in job.last_lines]
    is_info = any(line is None or " NCCL INFO " in line.text for line in last)  # lines without information are not kept
    files = [source.name for source in job.sources if not source.name.startswith("<")]
    if job.paths and job.excerpt:
        yield Hit(named={"excerpt": True})
    elif job.paths:
        missing = {*range(job.world_size or 0)}.difference(job.ranks_seen) if job.rank_space == "global" else set()
        if missing and not at_end.waiting_ranks(facts):
            is_file = bool(files) or len(job.sources) > 1
            homes = actors_of(facts).homes
            few = [rank for rank in sorted(missing)[:2] if rank in homes]
            places = ["rank {}: host {}, local rank {}".format(rank, *homes[rank]) for rank in few]
            where = f" ({'; '.join(places)}{'; …' if len(missing) > len(places) else ''})" if places else ""
            mute = actors_of(facts).mute
            yield Hit(named={"missing": missing, "where": where, "file": is_file, "mute": mute})
        elif late := at_end.find_stragglers(facts):
            yield Hit(named={name: late.get(name) for name in ("halves", "late", "unended", "unready", "unfinished")})
        elif job.rank_space != "global" and (absent := [one for one in job.communicators if one.lacks_members]):
            first = absent[0]
            named = {"absent": absent, "one": first.id, "seen": len(first.started), "nranks": first.nranks}
            yield Hit(named=named)
    elif is_info and not any(comm.announced for comm in job.communicators) and not life.find_begun(facts):
        pods = [one.process.apart for one in job.last_lines if "/" in one.process.apart]
        pod = pods[0].removeprefix("pod/").partition("/")[0] if pods else "<pod>"
        begin = sorted(filter(None, last), key=lambda line: line.position)[:1]
        yield Hit(named={"file": files[0] if files else "", "pod": pod}, evidence=begin)
    elif is_info and not job.communicators:
        end = max((line.line for line in last if line), default=0)
        source = job.sources[0]
        # Other programs print fewer lines after NCCL's last one in a job that is still starting.
        came_up = life.worked_last(facts)
        is_long = len(job.sources) == 1 and source.lines - end >= 100 and not source.newest_first
        if end and (is_long or came_up):
            yield Hit(named={"settings": f"{end:,}", "lines": f"{source.lines:,}", "open": not came_up})
        else:
            yield Hit(named={"end": at_end.list_possible_ends(facts)})


def paths_between_hosts_missing(facts: Facts) -> Iterator[Hit]:
    """Find communicators with ranks of several hosts in the log: their rings cross hosts."""
    comms = [
        comm
        for comm in facts.job.communicators
        if len(comm.hosts) > 1 and not comm.guessed and all(map(is_named, comm.hosts))
        # Paths within hosts only, which cannot all be those of another communicator.
        if (paths := facts.paths_of(comm)) and all(kind.scope == "intra" for kind in paths.kinds)
    ]
    if comms:
        hosts = sorted({host for comm in comms for host in comm.hosts})
        nets = sorted({net for comm in comms for net in comm.networks})
        named: dict[str, object] = {"hosts": hosts, "names": [comm.id for comm in comms], "nets": nets}
        if unseen := next((comm for comm in comms if len(comm.started) < comm.nranks), None):
            named |= {"unseen": unseen.id, "seen": len(unseen.started), "nranks": unseen.nranks}
        ranks = [rank for comm in comms for rank in global_ranks(comm, comm.started)]
        yield Hit(
            [], named, ranks, hosts, [line for comm in comms for line in (comm.network_lines or comm.evidence)[:1]]
        )


def separate_jobs(facts: Facts) -> Iterator[Hit]:
    """Find communicators that all stay on one host although the log has several.

    Groups within hosts and independent replicas look the same: only nccl-tests are certainly meant to span all hosts.
    """
    comms = facts.job.communicators
    if not comms:
        yield from _find_tests(facts)
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


def _find_tests(facts: Facts) -> Iterator[Hit]:
    """Find tests that ran at once in the output of nccl-tests: each lists its ranks from 0, and prints a table."""
    firsts = [notice for notice in facts.with_role("rank-list") if value(notice, "rank") == 0]
    heads = _at_once(facts, [notice.evidence[0] for notice in firsts])
    hosts = {str(value(notice, "node")) for notice in firsts if notice.evidence[0] in heads}
    units = facts.notices("nccl-tests/test-units")
    options = facts.notices("nccl-tests/test-options")
    tables = _at_once(facts, [line for notice in units for line in notice.evidence])
    starts = sum(notice.count for notice in options)
    if len(heads) > 1:
        yield Hit(named={"heads": heads, "hosts": hosts}, hosts=hosts, evidence=heads)
    elif len(tables) > 1:
        yield Hit(named={"tables": tables}, evidence=tables)
    elif starts > 1 and not (units or facts.with_role("test-end")):
        yield Hit(named={"starts": starts}, evidence=options)


def _at_once(facts: Facts, begins: list[Evidence]) -> list[Evidence]:
    """Return the first lines of tests that precede the end of the first test, in the source with the most of them."""
    ends = first_of_each(line for notice in facts.with_role("test-end") for line in notice.evidence)
    early = [line for line in begins if line.order < ends.get(line.source, line.order + 1)]
    return max(group_values((line.source, line) for line in early).values(), key=len, default=[])


def bandwidth_low(facts: Facts) -> Iterator[Hit]:
    """Find the operation that is furthest behind what is expected of it; others are in the same state or better."""
    low = [entry for entry in measure(facts) if entry.is_below]
    worst = min(low, key=_ratio, default=None)
    if worst is None or worst.line is None:
        return
    others = [bandwidth.measurement_name(entry) for entry in low if entry is not worst]
    source = cite(f"{bandwidth.expected_range(worst)} GB/s", worst.what, worst.expected_source or "")
    paths, times = facts.job.paths, 1 / max(_ratio(worst), 1e-3)
    named = {
        "measured": bandwidth.describe_measurement(worst),
        "others": others[0] if len(others) == 1 else f"{len(others)} others" if others else "",
        "part": worst.part,
        "times": Estimate(f"{times:{'.2g' if times < 100 else '.0f'}}", (source,)),
        "severe": _ratio(worst) < VERY_LOW,
        "assumed": worst.is_assumed,
    }
    hosts, lines = worst.hosts or facts.hosts(), [worst.line, *paths.first_lines()[:1]]
    yield Hit([], named, facts.job.ranks_seen, hosts, lines, open_paths=paths)


def _ratio(entry: Measured) -> float:
    return 1.0 if entry.ratio is None else entry.ratio


def bandwidth_uneven(facts: Facts) -> Iterator[Hit]:
    """Find sizes that are far behind smaller ones: a switch of protocol costs a little, and larger ones recover."""
    uneven = [entry for entry in measure(facts) if entry.dips]
    if not uneven:
        return
    worst = max(uneven, key=lambda entry: (entry.falls, len(entry.dips)))
    before = max((row for row in worst.sizes if row.size < worst.dips[0].size), key=lambda row: row.gbps)
    named = {
        "what": bandwidth.measurement_name(worst),
        "falls": worst.falls,
        "several": len(worst.dips) > 1,
        "peak": bandwidth.rate_text(before.gbps),
        "size": bandwidth.size_text(before.size),
        "dips": list_words(f"{bandwidth.rate_text(d.gbps)} GB/s at {bandwidth.size_text(d.size)}" for d in worst.dips),
        "several nodes": (worst.nodes or 2) > 1,
    }
    lines = [before.line, *(dip.line for dip in worst.dips)]
    yield Hit([], named, facts.job.ranks_seen, worst.hosts or facts.hosts(), lines)


def init_slow(facts: Facts) -> Iterator[Hit]:
    """Find the slowest communicator in NCCL's own timings (2.22 and later), if a phase took half of it."""
    least = 30.0  # seconds: large jobs need some, and lazily loaded kernels do
    timed = [(timing, comm) for comm in facts.job.communicators for timing in comm.timings if timing.total >= least]
    for timing, comm in sorted(timed, key=lambda pair: -pair[0].total)[:1]:
        phase = max(timing.phases, key=timing.phases.__getitem__, default="")
        seconds = timing.phases.get(phase, 0.0)
        others = [other.phases.get(phase, 0.0) for other in comm.timings if other is not timing]
        rank = comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None
        if seconds >= timing.total / 2:
            named = {
                "nranks": comm.nranks,
                "total": f"{timing.total:.0f}",
                "seconds": f"{seconds:.0f}",
                "phase": phase,
                "others": f"{min(others):.0f} to {max(others):.0f}" if others else "",
            }
            yield Hit([], named, [] if rank is None else [rank], evidence=filter(None, [timing.evidence]))


def wrong_results(facts: Facts) -> Iterator[Hit]:
    """Find the test's result, which does not name the faulty link or memory."""
    wrong = facts.notices("nccl-tests/test-wrong")
    rows = [line for entry in measure(facts) for line in entry.wrong_lines]  # of a table without its last lines
    if wrong or rows:
        failed = sum(value(notice, "wrong_count") for notice in wrong) if wrong else len(rows)
        named = {"checks": count(failed, "check"), "over P2P": facts.paths(transport="P2P")}
        yield Hit(named=named, ranks=facts.job.ranks_seen, hosts=facts.hosts(), evidence=wrong or rows)
