"""What failed first: by the time of its lines, or because it is the only one whose error is no echo."""

from __future__ import annotations

from nccl_inspect.event.base import NO_HOST, Process
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.judgement import Judgement
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.judging.process_ends.reports import report_of
from nccl_inspect.judging.results import Results
from nccl_inspect.judging.statements import quoted, rank_in_front, value
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import FirstFailure, Notice
from nccl_inspect.util.times import in_order, moment

_Ranks = dict[Process, list[int]]


def first(facts: Facts, judgement: Judgement, results: Results) -> FirstFailure | None:
    """The first failing rank of a job that failed, or several at once; None where the log does not tell.

    Only the errors that the leading finding shows count, when it shows any: a local resource error beats the network
    errors that it leads to. What a file beside the log explains is shown by its effects.
    """
    if judgement.verdict != "failed":
        return None
    lead = next((finding for finding in judgement.findings if finding.fatal), None)
    leads = [one for one in judgement.findings if lead and (one is lead or one.rule in lead.explains)]
    shown = {id(notice) for one in leads for notice in quoted(facts.errors(), one)}
    errors = [notice for notice in facts.errors() if _counts(results, notice, id(notice) in shown)]
    kinds = {notice.production for notice in errors if id(notice) in shown}
    leading = [notice for notice in errors if notice.production in kinds]
    if lead and not leading:
        return None
    if any(process.host == NO_HOST for notice in leading or errors for process in notice.processes):
        return None  # which lines are of one process is not known
    found = _first_of(_known_ranks(facts, judgement), leading or errors)
    return found if found and (found.ranks or found.processes) else None


def follows(facts: Facts, finding: Finding, other: Finding) -> bool:
    """Whether all that one finding shows was said after the first line of another, by processes which said that.

    Excerpts without a prefix show no processes: then the order of the lines tells.
    """
    if finding is other or not finding.evidence or not other.evidence:
        return False
    first = other.evidence[0]
    own, others = _speakers(facts, finding), _speakers(facts, other)
    return all(is_before(first, line) for line in finding.evidence) and own <= others


def _speakers(facts: Facts, finding: Finding) -> set[Process]:
    """The processes that said what a finding shows."""
    told = {(line.source, line.order) for line in finding.evidence}
    return {
        process
        for notice in facts.job.notices
        for process, line in zip(notice.processes, notice.evidence, strict=False)  # evidence is of the first ones
        if (line.source, line.order) in told
    }


def _counts(results: Results, notice: Notice, is_shown: bool) -> bool:
    """Whether an error may be the first one.

    The traceback of a rank that lost another is shown, and is none; Hydra reports those that it killed, too.
    """
    if report_of(notice).kills_with:
        return False
    return not results.is_effect(notice) or (is_shown and notice.production != "torch/rank-traceback")


def _first_of(known: _Ranks, errors: list[Notice]) -> FirstFailure | None:
    if len({process for notice in errors for process in notice.processes}) == 1:
        # Other programs print without a prefix: then the ranks in front tell who it was.
        is_alone = len({rank for notice in errors if (rank := rank_in_front(notice)) is not None}) < 2
        return _failure(known, errors[:1], "alone") if is_alone else None
    times = [moment(notice.earliest.time) for notice in errors]
    if not in_order(*times) or not all(notice.earliest.is_ordered for notice in errors):
        return None
    first_time = min(time.seconds for time in times if time)
    at_once = [one for one, time in zip(errors, times, strict=True) if time and time.seconds == first_time]
    return _failure(known, at_once, "time")


def _stated(errors: list[Notice]) -> set[int]:
    """The ranks that lines of other programs name, and those that stand in front of what exceptions retell."""
    named = {rank for notice in errors if (rank := value(notice, "global_rank")) is not None}
    return named | {rank for notice in errors for rank in notice.ranks}


def _known_ranks(facts: Facts, judgement: Judgement) -> _Ranks:
    """The ranks of each process, or the one that it probably is."""
    likely = {position: [rank] for position, rank in judgement.likely_ranks.items()}
    return {last.process: last.ranks or likely.get(at, []) for at, last in enumerate(facts.job.last_lines)}


def _failure(known: _Ranks, errors: list[Notice], basis: str) -> FirstFailure:
    processes = [
        process
        for process in dict.fromkeys(process for notice in errors for process in notice.earliest.processes)
        if process.host  # other programs print without a prefix
    ]
    earliest = errors[0].earliest
    return FirstFailure(
        ranks=sorted({rank for process in processes for rank in known.get(process, [])} or _stated(errors)),
        processes=[(process.host, process.pid) for process in processes],
        device=earliest.device if len(processes) == 1 else None,
        time=earliest.time,
        basis=basis,
        evidence=earliest.evidence,
    )
