"""The first failure: by the times of its lines, or because it is the only error that is not an echo."""

from __future__ import annotations

from nccl_inspect.event.base import NO_HOST, Process
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.judgement import Judgement
from nccl_inspect.judging.results import Results
from nccl_inspect.judging.statements import notices_shown, rank_prefix, report_of, value
from nccl_inspect.model.job import FirstFailure, Notice
from nccl_inspect.util.times import in_order, moment

_Ranks = dict[Process, list[int]]


def first(facts: Facts, judgement: Judgement, results: Results) -> FirstFailure | None:
    """The first failing rank of a failed job, or several at once; None if the log does not show it.

    If the leading finding shows errors, only those count: a local resource error precedes the network errors that it
    leads to. For a finding from a file beside the log, the errors of its effects count.
    """
    if judgement.verdict != "failed":
        return None
    lead = next((finding for finding in judgement.findings if finding.fatal), None)
    leads = [entry for entry in judgement.findings if lead and (entry is lead or entry.rule in lead.explains)]
    shown = {id(notice) for entry in leads for notice in notices_shown(facts.errors(), entry)}
    errors = [notice for notice in facts.errors() if _counts(results, notice, id(notice) in shown)]
    kinds = {notice.production for notice in errors if id(notice) in shown}
    leading = [notice for notice in errors if notice.production in kinds]
    if lead and not leading:
        return None
    if any(process.host == NO_HOST for notice in leading or errors for process in notice.processes):
        return None  # lines cannot be assigned to processes
    failure = _first_of(_ranks_by_process(facts, judgement), leading or errors)
    return failure if failure and (failure.ranks or failure.processes) else None


def _counts(results: Results, notice: Notice, is_shown: bool) -> bool:
    """Whether an error may be the first failure.

    The traceback of a rank that lost its peer is evidence but not the first failure; Hydra also reports processes that
    it killed.
    """
    if report_of(notice).kills_with:
        return False
    return not results.is_effect(notice) or (is_shown and notice.production != "torch/rank-traceback")


def _first_of(ranks: _Ranks, errors: list[Notice]) -> FirstFailure | None:
    if len({process for notice in errors for process in notice.processes}) == 1:
        # Other programs print without a prefix: then PyTorch's rank prefixes identify the process.
        is_alone = len({rank for notice in errors if (rank := rank_prefix(notice)) is not None}) < 2
        return _failure(ranks, errors[:1], "alone") if is_alone else None
    times = [moment(notice.earliest.time) for notice in errors]
    if not in_order(*times) or not all(notice.earliest.is_ordered for notice in errors):
        return None
    first_time = min(time.seconds for time in times if time)
    at_once = [error for error, time in zip(errors, times, strict=True) if time and time.seconds == first_time]
    return _failure(ranks, at_once, "time")


def _stated(errors: list[Notice]) -> set[int]:
    """The ranks that lines of other programs name, and those in the prefixes of quoted exceptions."""
    named = {rank for notice in errors if (rank := value(notice, "global_rank")) is not None}
    return named | {rank for notice in errors for rank in notice.ranks}


def _ranks_by_process(facts: Facts, judgement: Judgement) -> _Ranks:
    """The ranks of each process, or its probable rank."""
    likely = {position: [rank] for position, rank in judgement.likely_ranks.items()}
    return {last.process: last.ranks or likely.get(at, []) for at, last in enumerate(facts.job.last_lines)}


def _failure(ranks: _Ranks, errors: list[Notice], basis: str) -> FirstFailure:
    processes = [
        process
        for process in dict.fromkeys(process for notice in errors for process in notice.earliest.processes)
        if process.host  # other programs print without a prefix
    ]
    earliest = errors[0].earliest
    return FirstFailure(
        ranks=sorted({rank for process in processes for rank in ranks.get(process, [])} or _stated(errors)),
        processes=[(process.host, process.pid) for process in processes],
        device=earliest.device if len(processes) == 1 else None,
        time=earliest.time,
        basis=basis,
        evidence=earliest.evidence,
    )
