"""The first lines of every report: the verdict, where, since when, and what to do now."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging import remedies
from nccl_inspect.judging.places import Places, culprit_ranks
from nccl_inspect.judging.statements import is_error, notices_shown, rank_prefix
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Head, Place
from nccl_inspect.model.job import Job, Notice
from nccl_inspect.model.statements import ages
from nccl_inspect.report.digest import (
    find_clue,
    find_lead,
    find_nested,
    find_unexplained,
    has_story,
    short_names,
    verdict_line,
)
from nccl_inspect.report.words import duration, shorten_list
from nccl_inspect.util.times import show_time
from nccl_inspect.util.wording import count, ranks_word

_NO_LINE = ": no line in the log"
_MOST_PLACES = 2  # most ranks that are named with their processes; for more, the hosts are named
_MOST_HOSTS = 3
_MORE = "Pass the complete output of all ranks, from a run with NCCL_DEBUG=INFO (kubectl logs --tail=-1)."
_THINGS = ("rank", "setting", "version")
_BESIDE = ("setting", "version")


def make_head(job: Job, is_now: bool = False) -> Head:
    """Return the head of a judged job.

    Args:
        is_now: also state the age of the last line; documents must not depend on the time of the report.
    """
    if job.verdict == "ok":
        return Head(verdict_line(job))
    lead, notice = find_lead(job), find_unexplained(job)
    step = _first_step(job, lead, notice)
    clue = None if lead or step else find_clue(job)
    located = next(_list_located(lead, job), lead) if lead else clue
    index = Places(job)
    ranks = culprit_ranks(located) if located else notice.ranks if notice else []
    places = [index.locate(rank) for rank in ranks] if ranks else _reporters(job, located, notice)
    if located and len(places) == len(located.hosts) == 1 and not (places[0].host or _is_missed(places[0], job)):
        places = [places[0].with_fields(host=located.hosts[0])]  # a launcher names it
    reporters = _reporters(job, located, notice) if located and _are_only_named(located, job) else []
    since = (
        "" if has_story(job) else _describe_begin(job, lead, notice),
        *(_silence(job, places) if job.verdict == "failed" else ()),
        _end(job, is_now),
    )
    return Head(
        headline=verdict_line(job),
        rule=lead.rule if lead else None,
        where=_describe_culprit(job, located, places, reporters),
        since="; ".join(filter(None, since)),
        do=step or (clue.confirm if clue else ""),
        places=[*(places if len(places) <= _MOST_PLACES else []), *reporters],
    )


def _list_located(lead: Finding, job: Job) -> Iterator[Finding]:
    """Yield the leading finding and its causes, if they locate the fault; effects only name victims."""
    for finding in (lead, *find_nested(lead, job)):
        if finding.where and (finding is lead or finding.root):
            yield finding


def _reporters(job: Job, lead: Finding | None, notice: Notice | None) -> list[Place]:
    failure = job.first_failure
    processes = failure.processes if failure else [process[:2] for process in notice.processes] if notice else []
    if lead and lead.hosts and {host for host, _ in processes} != set(lead.hosts):
        return []  # who reports first is one of them, or none: not the culprit
    return [Place(None, host, pid) for host, pid in processes if is_named(host) and host and pid >= 0]


def _describe_culprit(job: Job, lead: Finding | None, places: list[Place], reporters: list[Place]) -> str:
    words = _describe_places(job, lead, places)
    if lead and _are_only_named(lead, job):
        by = "; ".join(_describe_place(place, is_missed=False) for place in reporters)
        by = by or shorten_list(lead.hosts, _MOST_HOSTS)
        words = ranks_word(lead.ranks) + (f"; reported by {by}" if by else "")
    culprits = lead.culprits if lead else []
    are_ranks = bool(culprits) and culprits[0].kind == "rank" and all(one.kind in _THINGS for one in culprits)
    if lead and not lead.paths and 0 < len(places) <= _MOST_PLACES:  # the words name their host
        are_ranks |= bool(culprits) and all(one.kind == "host" and f"on {one.name}" in words for one in culprits)
    if are_ranks:
        others = culprits[0].good_elsewhere
        beside = [culprit.name for culprit in culprits if culprit.kind in _BESIDE]
        is_apart = bool(others) and not words.endswith(_NO_LINE)  # else the words show it
        none = f"not the other {'rank' if others == 1 else f'{others:,}'}" if is_apart else ""
        return "; ".join(filter(None, (words, none, f"only there: {shorten_list(beside, 2)}" if beside else "")))
    first = find_lead(job)
    line = next((finding.where for finding in _list_located(first, job)), "") if first else ""
    is_new = words not in line and len(places) <= _MOST_PLACES
    return "; ".join(filter(None, (line, words if is_new or not line else "")))


def _describe_places(job: Job, lead: Finding | None, places: list[Place]) -> str:
    if places and len(places) <= _MOST_PLACES:
        return "; ".join(filter(None, (_describe_place(place, _is_missed(place, job)) for place in places)))
    ranks = [place.rank for place in places if place.rank is not None]
    if all(place.host for place in places):
        hosts = list(dict.fromkeys(place.host or "" for place in places)) or (lead.hosts if lead else [])
    else:
        hosts = []  # those of some ranks look like those of all
    on = f"{count(len(hosts), 'host')} ({shorten_list(hosts, _MOST_HOSTS)})" if len(hosts) > 1 else "".join(hosts)
    who = f"all {len(ranks):,} ranks" if len(ranks) == len(job.ranks_seen) > 1 else ranks_word(ranks) if ranks else ""
    return " on ".join(filter(None, (who, on)))


def _is_missed(place: Place, job: Job) -> bool:
    """Return whether a rank of a failed job has no NCCL line at all: its program may still have printed something."""
    speakers = _speakers(job)
    return job.verdict == "failed" and bool(speakers or job.ranks_seen) and place.rank not in speakers


def _are_only_named(finding: Finding, job: Job) -> bool:
    return bool(finding.ranks) and not (job.ranks_seen or _speakers(job))


def _speakers(job: Job) -> set[int]:
    first = job.first_failure.ranks if job.first_failure else []
    return {*first, *(rank for entry in job.notices if (rank := rank_prefix(entry)) is not None)}


def _describe_place(place: Place, is_missed: bool) -> str:
    parts = [place.host if place.rank is None else f"on {place.host}"] if place.host else []
    parts += [f"pod {place.pod}"] if place.pod and place.pod != place.host else []
    parts += [f"pid {place.pid}"] if place.pid is not None else []
    parts += [f"GPU {place.gpu}"] if place.gpu is not None else []
    who = "" if place.rank is None else f"rank {place.rank}"
    if not parts:
        return who + _NO_LINE if who and is_missed else who
    return f"{who} {', '.join(parts)}".strip() if place.host else f"{who} ({', '.join(parts)})"


def _describe_begin(job: Job, lead: Finding | None, notice: Notice | None) -> str:
    names = short_names(job)
    if job.first_failure:
        return _line("first error", job.first_failure.evidence, job.first_failure.time, names)
    if lead is None:
        return _line("first error", notice.evidence[0], notice.earliest.time, names) if notice else ""
    notices = notices_shown(job.notices, lead)
    if job.verdict == "failed":
        errors = [candidate for candidate in notices if is_error(candidate)]
        signs = errors or [candidate for candidate in notices if candidate.level == "WARN"]
        first = min(signs, key=lambda candidate: candidate.place, default=None)
        what = "first error" if errors else "first sign"
        return _line(what, first.evidence[0], first.earliest.time, names) if first else ""
    for line in lead.evidence[:1]:
        times = (candidate.earliest.time for candidate in notices if candidate.earliest.evidence == line)
        return _line("first seen", line, next(times, None), names)
    return ""


def _silence(job: Job, places: list[Place]) -> Iterator[str]:
    """Yield the last lines of the ranks to blame that report no error, if others continue after them."""
    few = places if len(places) <= _MOST_PLACES and len(places) < len(job.ranks_seen) else []
    ends = {(place.host, place.pid): place.rank for place in few if place.rank is not None}
    spoke = {rank for entry in job.notices if is_error(entry) for rank in (*entry.ranks, rank_prefix(entry))}
    last = max((entry.order for entry in job.last_lines), default=0)
    for entry in job.last_lines:
        rank = ends.get(entry.process[:2])
        if rank is None or rank in spoke:
            continue
        if len(entry.ranks) == 1 and (entry.order < last or len(job.sources) > 1):
            times = [row.stamps["last"].time for row in job.timeline if row.rank == rank and "last" in row.stamps]
            line = Evidence(entry.source, entry.line, "")
            yield _line(f"rank {rank} silent since", line, times[0] if times else None, short_names(job))


def _line(what: str, line: Evidence, when: str | None, names: dict[str, str]) -> str:
    return f"{what} {f'{show_time(when)}, ' if when else ''}{names.get(line.source, line.source)}:{line.line}"


def _end(job: Job, is_now: bool) -> str:
    stamps, names = [row.stamps["last"] for row in job.timeline if "last" in row.stamps], short_names(job)
    if stamps:
        last = max(stamps, key=lambda stamp: stamp.seconds)
        age = ages.line_age(last.source, last.time) if is_now else None
        ago = "" if age is None else f" ({duration(age)} ago)"
        return f"last line {show_time(last.time)}{ago}, {names.get(last.source, last.source)}:{last.line}"
    if len(job.sources) != 1:
        return ""
    if job.is_one_of_several:
        final = max(job.last_lines, key=lambda line: line.order, default=None)
        first = job.first_failure.evidence if job.first_failure else None
        if final is None or (first and first.source == final.source and first.line > final.line):
            return ""  # the program continued after the last NCCL line: its end is unknown
        return f"last line {names[final.source]}:{final.line}"
    (source,) = job.sources
    return f"last line {names[source.name]}:{source.lines}" if source.lines else ""


def _first_step(job: Job, lead: Finding | None, notice: Notice | None) -> str:
    if lead and lead.fix:
        return lead.fix[0]
    if notice and job.verdict == "failed":
        line = notice.evidence[0]
        return f"Read the log around {short_names(job).get(line.source, line.source)}:{line.line}."
    is_whole = job.paths and len(job.ranks_seen) == job.world_size
    is_unclear = not is_whole or (job.verdict == "failed" and lead is None)
    return remedies.capture_command(job) or (_MORE if is_unclear else "")


def label_lines(head: Head) -> list[tuple[str, str]]:
    """Return the lines under the headline, with their labels."""
    return [(name, text) for name in ("where", "since", "do") if (text := getattr(head, name))]
