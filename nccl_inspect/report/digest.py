"""A job in words, for reports that people read.

What the log lacks, the evidence beside it, what is left to ``--verbose``; the reason for the verdict, the facts of the
job, the nesting of findings, and what happened, in order; then the head of every report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nccl_inspect import bandwidth
from nccl_inspect.event.base import is_named
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.sources.log_detection import HARMLESS, OTHER, UNKNOWN
from nccl_inspect.judging import culprits, remedies
from nccl_inspect.judging.facts import shares_ranks
from nccl_inspect.judging.places import Places, culprit_ranks
from nccl_inspect.judging.statements import is_error, is_propagated_error, notices_shown, rank_prefix
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.finding import ACTIONS, Finding, Head, Place
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import CommunicatorInfo, FirstFailure, Job, Notice, Setting
from nccl_inspect.model.statements import ages
from nccl_inspect.report.words import duration
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.times import show_time
from nccl_inspect.util.wording import STATES, count, is_or_are, ranges, ranks_word, some_names, some_ranks

# What the log lacks

_INCOMPLETE, _SPARSE = "log-incomplete", "debug-level-too-low"
_STARTING = ("rank-missing", "hang-in-init")
_MAX_GUESSES = 2
_MAX_RUNS = 12
_LEAST = 60.0  # seconds without a line that are worth mentioning


def _is_end(finding: Finding) -> bool:
    return finding.clue and finding.category == "failures"


def _describe_missing_ranks(job: Job) -> str:
    """Return ranks of the world without a line, or the processes without a rank that they probably are."""
    absent = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    mute = [last for last in job.last_lines if not last.ranks]
    likely = {last.likely_rank: last.process for last in mute if last.likely_rank is not None}
    if likely.keys() >= set(absent):
        guesses = [f"rank {rank} is probably pid {likely[rank].pid} on {likely[rank].host}" for rank in absent]
        return some_names(guesses, _MAX_GUESSES)
    runs = some_names(ranges(absent).split(","), _MAX_RUNS).replace(", ", ",")
    ranks = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {runs} have"
    where = "this log" if len(job.sources) == 1 else f"these {len(job.sources)} files"
    others = f"{len(mute)} processes that name no rank" if len(mute) > 1 else "one process that names no rank"
    return f"{ranks} no NCCL line in {where}" + (f" (unless in those of {others})" if mute else "")


def describe_interruption(job: Job) -> str:
    """Return how far the log was read, if that was interrupted; else empty."""
    lines = sum(source.lines for source in job.sources)
    return f"interrupted after {lines:,} {'line' if lines == 1 else 'lines'}" if job.partial else ""


def list_unread(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield what was not read whole: a name, ``partial`` or ``not read``, and why."""
    if job.partial:
        yield "complete", "partial", describe_interruption(job)
    yield from ((source.name, "not read", source.problem) for source in job.sources if source.problem)


# The evidence beside it

_MAX_UNUSED = 3
_MAX_PASSED = 3


def evidence_rows(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the evidence in use by kind, the unused evidence, and the skipped files, if any."""
    used = Counter(entry.kind for entry in job.artifacts if not entry.problem)
    if used:
        yield "evidence", ", ".join(count(number, kind) for kind, number in used.items())
    unused = list(list_unused_evidence(job.artifacts, short=True))
    for place, words in enumerate(unused[:_MAX_UNUSED]):
        yield "" if place else "not used", words
    if len(unused) > _MAX_UNUSED:
        yield "", f"… and {len(unused) - _MAX_UNUSED} more"
    if job.passed_over:  # a few, first what may have been meant as input: its name does not explain the reason
        weights = {OTHER: 3, UNKNOWN: 1, **dict.fromkeys(HARMLESS, 2)}
        names: dict[str, None] = {}
        for file in sorted(job.passed_over, key=lambda file: weights.get(file.reason, 0)):
            name = file.name.rpartition("/")[2]
            names[name if file.reason in (UNKNOWN, OTHER) else f"{name} ({file.reason})"] = None
        number = f"{len(job.passed_over):,} files: " if len(job.passed_over) > 1 else ""
        yield "passed over", f"{number}{', '.join([*names][:_MAX_PASSED])}{', …' if len(names) > _MAX_PASSED else ''}"


def list_unused_evidence(artifacts: Iterable[Artifact], short: bool = False) -> Iterator[str]:
    """Yield unused evidence and the reasons, files of the same kind and reason together; in short without folders."""
    groups = group_values(((entry.kind, entry.problem), entry.name) for entry in artifacts if entry.problem)
    for (kind, problem), names in groups.items():
        name = names[0].rpartition("/")[2] if short else names[0]
        what = f"{name} ({kind})" if short else f"{name}: {kind}"
        what = f"{count(len(names), kind)} ({name}, …)" if len(names) > 1 else what
        yield f"{what}: {problem}" if short else f"{what} not used: {problem}"


# One finding, and how much of it is shown

MOST_STEPS = 4  # steps of a fix that are shown; later ones are less likely to help, or cost more
_FIRST_EVIDENCE = 3  # lines of evidence of the first finding; the others show one
MORE = "-v shows all of each"


def one_line(finding: Finding) -> str:
    """Return a finding without its details."""
    return f"{finding.severity.upper()} {finding.rule}: {finding.summary}"


def list_parts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, where, why, what it costs, and each step of the fix, with labels."""
    yield "what", finding.summary
    if finding.where:
        yield "where", finding.where
    yield "cause", finding.cause
    yield "impact", finding.impact
    yield from (("fix", step) for step in finding.fix)


class AlreadyShown:
    """Steps and lines that the report has shown already, so that it does not repeat them."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._steps: dict[str, str] = {}
        self._lines: set[tuple[str, int]] = set()
        self._is_first = True

    def steps(self, finding: Finding, steps: Iterable[str], most: int = MOST_STEPS) -> list[str]:
        """Return the first few new steps of a fix, and a word about the others."""
        steps = list(steps)
        if self._verbose:
            return steps
        fresh = [step for step in steps if step not in self._steps]
        above = list(dict.fromkeys(self._steps[step] for step in steps if step in self._steps))
        self._steps.update(dict.fromkeys(fresh[:most], finding.rule))
        also = [f"{'Also as' if fresh else 'As'} above under {', '.join(above)}."] if above else []
        return [*fresh[:most], *also, *([f"{len(fresh) - most} more with -v."] if len(fresh) > most else [])]

    def evidence(self, evidence: Iterable[Evidence], most: int = _FIRST_EVIDENCE) -> list[Evidence]:
        """Return the first few new lines; one line for later findings."""
        evidence = list(evidence)
        if self._verbose:
            return evidence
        fresh = [line for line in evidence if line.position not in self._lines]
        shown = fresh[: most if self._is_first else 1]
        self._is_first = False
        self._lines |= positions_in(shown)
        return shown


# The verdict with its reason, and the facts of the job

_MAX_COMMUNICATORS = 8
_MAX_PROBLEMS = 5
_MAX_HOSTS = 3
_MAX_DEVICES = 4
_MAX_GROUPS = 4
_MAX_PARTS = 6  # of the ranks of one group
_MAX_MESSAGE = 300
_MAX_NAMED = 2
_MAX_MEASURED = 3
_LOOKS = ("parent", "nranks", "nnodes", "channels", "state")
_BY_VERDICT = ("low", "unknown", "ok")
MAX_ERRORS = 10  # errors without a rule that formats for machines show
_MEANING = {
    "ok": "every path that the log shows is as good as expected",
    "degraded": "the job runs, and part of it is slower than it should be",
    "failed": "the job is dead or stuck",
    "unknown": "the log does not show enough to judge a path",
}
_EXCERPT = "an excerpt, not a whole log: pass the complete output of the job to get a verdict"
_COMMAND = "command-failed"  # the rule for a command that failed whatever NCCL shows
_TRACEBACK_HEAD = "torch/rank-traceback"  # how a traceback begins: what it leads to says more


def verdict_line(job: Job) -> str:
    """Return the verdict with its reason: ``UNKNOWN, likely: GPUDirect RDMA is off for mlx5_0``."""
    leads = _list_leads(job) if job.verdict == "unknown" else []
    joint = ", " if leads and (leads[0].severity != "info" or leads[0].confidence == "possible") else ": "
    return f"{verdict_word(job)}{joint}{reason(job)}"


def verdict_word(job: Job) -> str:
    """Return the verdict in capitals; ``WAITING`` if ranks are stuck and the log may end before the job does."""
    leads = _list_leads(job) if job.verdict == "failed" else []
    return "WAITING" if leads and leads[0].open_end else job.verdict.upper()


def _list_leads(job: Job) -> list[Finding]:
    """Return the candidates for the headline.

    In a job without a verdict, likely ones come before possible ones; in a degraded one, a failure that is only
    possible comes last, since the verdict denies it. Where there are none, the end from outside with which the story
    begins is one, or what a few lines say that show nothing of the job.
    """
    leads = [finding for finding in job.findings if finding.root and finding.severity != "info"]
    if not leads and job.verdict in ("failed", "unknown") and (end := _find_external_end(job)):
        return [end]
    if job.verdict == "failed":
        return leads
    if not leads and job.verdict == "unknown":
        return _list_remarks(job)
    doubted = ("error",) if job.verdict == "degraded" else ("error", "warning")
    return sorted(leads, key=lambda f: f.confidence == "possible" and f.severity in doubted)


def _find_external_end(job: Job) -> Finding | None:
    """Return the info with which the story begins, if it is certain: somebody ended the job, which did not fail."""
    infos = (f for f in job.findings if f.root and (f.severity, f.confidence) == ("info", "certain"))
    return next((finding for finding in infos if job.story and finding.rule == job.story[0].rule), None)


def find_lead(job: Job) -> Finding | None:
    """Return the finding in the headline; None if an error without a rule is there, or nothing explains the verdict."""
    leads = _list_leads(job)
    return None if job.verdict == "failed" and not _explain(leads, job) else next(iter(leads), None)


def _explain(leads: list[Finding], job: Job) -> bool:
    """Return whether a failed job failed of one of these, or of what follows from the first."""
    first = next((finding.rule for finding in leads), "")
    is_external = bool(leads) and leads[0] is _find_external_end(job)
    return is_external or any(f.fatal for f in leads) or any(f.fatal and first in f.because for f in job.findings)


def has_story(job: Job) -> bool:
    """Return whether reports print what happened: it begins with the headline, or an end from outside is known."""
    if len(job.story) < 2:
        return False
    lead, begin = find_lead(job), job.story[0]
    if lead is None and job.verdict != "failed":
        return any(finding.root and finding.rule == begin.rule for finding in job.findings)
    is_shown = lead is not None and begin.line.position in positions_in(lead.evidence)
    return is_shown or begin.rule == (lead.rule if lead else None)


def find_unexplained(job: Job) -> Notice | None:
    """Return the error to begin with, if no finding explains it: before messages that may be harmless."""
    notices = job.unexplained
    errors = [notice for notice in notices if notice.event is None or getattr(notice.event, "tone", "") == "error"]
    errors = [notice for notice in errors if notice.production != _TRACEBACK_HEAD] or errors
    return next((notice for notice in errors if not is_propagated_error(notice)), next(iter(errors or notices), None))


def describe_subject(finding: Finding) -> str:
    """Return the confidence and subject of a finding, for its heading: the culprit if known, else its ranks."""
    about = culprits.subject(finding.culprits) if finding.culprits else ""
    about = about or (ranks_word(finding.ranks) if finding.ranks else "")
    act = finding.action if finding.action == ACTIONS[0] else ""  # the one for which somebody has to choose hosts
    return ", ".join(filter(None, (finding.confidence, about, act)))


def reason(job: Job) -> str:
    """Return the reason for the verdict, in one sentence."""
    leads, notice, (paths, unjudged) = _list_leads(job), find_unexplained(job), _summarize_paths(job)
    message = cut(notice.message, _MAX_MESSAGE) if notice else ""
    if job.verdict == "failed" and not _explain(leads, job) and notice:
        return f"{_MEANING['failed']}; the log says: {message}"
    if job.verdict == "failed" and not (_explain(leads, job) or any(finding.fatal for finding in job.findings)):
        return f"{_MEANING['failed']}, and the log does not say why"  # what is slow in it did not end it
    if leads:
        lead, text = leads[0], leads[0].summary
        if job.verdict == "failed" and "rank" not in text and 0 < len(lead.ranks) <= _MAX_NAMED:
            text += f" ({ranks_word(lead.ranks)})"
        if lead.rule == _COMMAND and not job.unexplained and paths == _MEANING["ok"]:
            text += "; its paths are as good as expected"
        if job.verdict != "unknown":
            return text
        # The paths that an excerpt lacks may be bad.
        is_shown = paths != _MEANING["unknown"] and not (job.excerpt and paths == _MEANING["ok"])
        is_sure = lead.severity == "info" and lead.confidence != "possible"
        how = "" if is_sure else "possibly: " if lead.confidence == "possible" else "likely: "
        return f"{how}{text}" + (f"; {paths}" if is_shown else "")
    if job.verdict != "unknown":
        return paths if job.verdict == "ok" else _MEANING[job.verdict]
    if notice:
        is_echo = "echoes-failure" in notice.roles and not is_error(notice)
        what = "the echo of a failure that is not in the log" if is_echo else "an error that no rule explains"
        return f"{what}: {message}"
    if job.excerpt and job.paths and paths == _MEANING["ok"]:
        return "only an excerpt; every path in it is as good as expected"
    ends = [f.summary for f in job.findings if f.rule in (_INCOMPLETE, _SPARSE) or _is_end(f)]
    begins = [entry.reason for entry in job.not_judged if entry.rule == _INCOMPLETE]
    starts = [entry.reason for entry in job.not_judged if entry.rule in _STARTING and not len(job.paths)]
    if lacking := next(filter(None, [*ends, *begins, *starts]), ""):
        number = len(job.paths)
        is_good = f"; the {count(number, 'path')} in it {is_or_are(number)} ok" if paths == _MEANING["ok"] else ""
        is_sparse = any(finding.rule == _SPARSE for finding in job.findings)
        warned = next((one.message for one in job.notices if is_sparse and one.level == "WARN"), "")
        return lacking + (f": {cut(warned, _MAX_MESSAGE)}" if warned else is_good)
    if unjudged:
        return "; ".join(unjudged)
    if job.unplaced_lines and job.paths:
        return f"{count(job.unplaced_lines, 'connection line')} could not be placed: the path of each is unknown"
    is_of_nccl = any(source.nccl_lines for source in job.sources)
    return _MEANING["unknown"] if is_of_nccl else "the log has no line of NCCL itself"


def _summarize_paths(job: Job) -> tuple[str, list[str]]:
    of_all, verdicts, unjudged = f"of {count(len(job.paths), 'path')}", Counter[str](), []
    for kind, number in job.paths.count_kinds():
        verdicts[kind.verdict] += number
    if job.withheld:
        unjudged = [f"{job.withheld} {of_all} not judged: a rule that is left out has findings there"]
    elif job.left_out:
        unjudged = ["a rule that is left out has findings"]
    unknown = verdicts["unknown"] - job.withheld
    summary = _MEANING["ok"]
    if unjudged:
        summary = unjudged[0]
    elif job.verdict == "ok" and not job.paths:
        summary = "one rank, which needs no path to another, and ended in order"
    elif unknown or not job.paths:
        summary = _MEANING["unknown"]
    elif verdicts["fallback"]:
        summary = f"{verdicts['fallback']} {of_all} could be better; your settings lower this to info"
    return summary, [*unjudged, *([f"{unknown} {of_all} could not be judged"] if unknown else [])]


def list_facts(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the facts of a job as labels and texts; a text without a label continues the previous one."""
    yield "log", _sources(job)
    if job.excerpt:
        yield "", _EXCERPT
    problems = [source.problem for source in job.sources if source.problem]
    for problem in problems[:_MAX_PROBLEMS]:
        yield "not read", problem
    if len(problems) > _MAX_PROBLEMS:
        yield "", f"… and {len(problems) - _MAX_PROBLEMS} more"
    if commands := [notice for notice in job.notices if notice.rule == _COMMAND]:
        yield "command", some_names([notice.message.partition("the command ")[2] for notice in commands], 3)
    yield "job", _size(job)
    runs, verdicts = job.earlier_runs, job.earlier_verdicts
    if len(runs) > _MAX_PROBLEMS:
        yield "earlier runs", f"{len(runs)}, --run N reports one of them; the last ones:"
    first = len(runs) - len(verdicts) + 1
    for number, (run, verdict) in enumerate(zip(runs[first - 1 :], verdicts, strict=True), first):
        yield "earlier run", f"{run}: {verdict.upper()} (--run {number})"
    versions = ", ".join(job.nccl_versions) or "version not in the log"
    cuda = f", CUDA driver {', '.join(job.cuda_versions)}" if job.cuda_versions else ""
    yield "NCCL", versions + cuda
    if job.platform:
        yield "platform", job.platform
    network = job.network
    if network.name:
        plugin = f"plugin {network.plugin} {network.plugin_version or ''}".strip() if network.plugin else ""
        provider = f"provider {network.provider}" if network.provider else ""
        devices = f"devices {some_names(network.devices, _MAX_DEVICES)}" if network.devices else ""
        yield "network", ", ".join(filter(None, (network.name, plugin, provider, devices)))
    overrides = [setting for setting in job.environment if setting.source != "config"]
    if overrides:
        yield "environment", some_names(map(_setting, overrides), 12)
    yield from evidence_rows(job)
    yield from _benchmarks(job)
    if job.first_failure and not has_story(job):
        yield "first error", _first_failure(job, job.first_failure, short_names(job))
    # Nothing was printed for a while, and the job may still be running.
    if (waiting := job.waiting) and waiting.cut is not False and (waiting.age or 0) >= _LEAST:
        yield "waiting", f"no new line for {duration(waiting.age or 0)}"
    alike = (  # communicators of one split that look the same
        ((comm.id.partition(" color ")[0] if comm.parent else comm.id, *pick_fields(comm, *_LOOKS).values()), comm)
        for comm in job.communicators
    )
    groups = list(group_values(alike).values())
    for comms in groups[:_MAX_COMMUNICATORS]:
        yield "communicator", _communicators(comms)
    if len(groups) > _MAX_COMMUNICATORS:
        yield "", f"… and {sum(map(len, groups[_MAX_COMMUNICATORS:]))} more"


def _benchmarks(job: Job) -> Iterator[tuple[str, str]]:
    entries = sorted(job.bandwidth, key=lambda entry: (_BY_VERDICT.index(entry.verdict), entry.ratio or 0))
    lead = find_lead(job)
    if lead and lead.rule == "bandwidth-low" and entries and entries[0].verdict == "low":
        entries = entries[1:]  # it is in the headline
    for entry in entries[:_MAX_MEASURED]:
        yield "bandwidth", bandwidth.describe_measurement(entry, "GB/s")
    if len(entries) > _MAX_MEASURED:
        yield "", f"… and {len(entries) - _MAX_MEASURED} more: nccl-inspect bandwidth lists them"
    if job.training:
        yield "training", ", ".join(map(bandwidth.describe_speed, job.training))


def _first_failure(job: Job, failure: FirstFailure, names: dict[str, str]) -> str:
    ranks = ranks_word(failure.ranks) if failure.ranks else "rank not in the log"
    alone = len(failure.processes) == 1
    lasts = job.last_lines if not (alone or failure.ranks) else []
    gpus = {last.process[:2]: "" if last.device is None else f" CUDA device {last.device}" for last in lasts}
    processes = (f"{host} pid {pid}{gpus.get((host, pid), '')}" for host, pid in failure.processes)
    where = some_names(processes, 2) or "as its own output says"
    device = f", CUDA device {failure.device}" if alone and failure.device is not None else ""
    when = f" at {failure.time}" if failure.time else ""
    why = "the earliest of all errors" if failure.basis == "time" else "the only process with an error of its own"
    if len(failure.processes) > 1:
        why += f", {len(failure.processes)} at once"
    return f"{ranks} ({where}{device}){when}, {names[failure.evidence.source]}:{failure.evidence.line}: {why}"


def short_names(job: Job) -> dict[str, str]:
    """Return sources without their folders, where that leaves them different."""
    sources = [*(source.name for source in job.sources), *(beside.name for beside in job.artifacts)]
    short = {name: name.rpartition("/")[2] or name for name in sources}
    names = short if len(set(short.values())) == len(short) else {name: name for name in short}
    return {name: escape_controls(shown) for name, shown in names.items()}


def _sources(job: Job) -> str:
    kinds = ("lines", "nccl_lines", "newest_first", "unrecognised_lines", "repaired_lines", "damaged_lines")
    lines, nccl, turned, unknown, repaired, damaged = (sum(getattr(s, kind) for s in job.sources) for kind in kinds)
    names = some_names([source.name for source in job.sources if source.lines or not source.problem], 3)
    text = f"{names}: {lines:,} {'line' if lines == 1 else 'lines'}, {nccl:,} of NCCL"
    if turned:
        text += f", {'' if turned == len(job.sources) else f'{turned} of them '}newest first: read from the end"
    text += f", {unknown:,} not recognized (-v lists them)" if unknown else ""
    text += f", {repaired:,} repaired" if repaired else ""
    text += f", {damaged:,} damaged (-v lists them)" if damaged else ""
    return text + (f"; one of several jobs: {job.name}" if job.name else "")


def _setting(setting: Setting) -> str:
    """Return a variable with its value; who has it, where that are not all, and who put it there, if not the user."""
    about = [] if setting.source == "environment" else [setting.source]
    if setting.ranks is not None:
        about.append(ranks_word(setting.ranks) if setting.ranks else some_names(setting.hosts, 2))
    return f"{setting.name}={setting.value}" + (f" ({', '.join(filter(None, about))})" if any(about) else "")


def _size(job: Job) -> str:
    if not job.hosts:
        return "unknown from this log; run the job with NCCL_DEBUG=INFO"
    parts = []
    for has_ranks in (True, False):
        if names := [host.name for host in job.hosts if bool(host.ranks) is has_ranks]:
            named = f"{count(len(names), 'host')} ({some_names(names, _MAX_HOSTS)})"
            parts.append(named if any(map(is_named, names)) else "hosts that the log does not name")
    hosts = " and, without a known rank, ".join(parts)
    if job.world_size is None and not job.ranks_seen:
        return f"world size and ranks not in the log; {hosts}"
    if job.world_size is None:
        return f"world size not in the log; {ranks_word(job.ranks_seen)} (of their communicators) on {hosts}"
    if len(job.ranks_seen) < job.world_size:
        only = len(job.ranks_seen) == 1
        shown = f"only rank {job.ranks_seen[0]}" if only else f"of which {some_ranks(job.ranks_seen) or 'none'}"
        seen = f"{count(job.world_size, 'rank')}, {shown} seen"
        return f"{seen}; {_describe_missing_ranks(job)}; {hosts}"
    return f"{count(job.world_size, 'rank')} on {hosts}"


def _communicators(comms: list[CommunicatorInfo]) -> str:
    first = comms[0]
    nodes = f" on {count(first.nnodes, 'node')}" if first.nnodes else ""
    named = any(map(is_named, first.hosts))
    if named and first.nnodes and len(first.started) == first.nranks and len(first.hosts) != first.nnodes:
        nodes += f" as NCCL counts ({count(len(first.hosts), 'host name')})"
    channels = f", {count(first.channels, 'channel')}" if first.channels else ""
    size = f"{count(first.nranks, 'rank')}{nodes}{channels}, {STATES[first.state]}"
    kinds = [(comm, comm.parallelism) for comm in comms]
    purposes = {
        f"called {c.group}" if c.group else f"{kind.confidence} {kind.kind}" if kind else "" for c, kind in kinds
    }
    if first.id != "world" and len(purposes) == 1 and (purpose := purposes.pop()):
        size += f", {purpose}"
    if len(comms) == 1:
        ranks = some_ranks(rank for rank in first.ranks if rank is not None)
        return f"{first.id}: {size}" + ("" if first.id == "world" else f"; ranks {ranks or '?'}")
    groups = sorted([rank for rank in comm.ranks if rank is not None] for comm in comms)
    members = some_names([f"[{some_ranks(ranks, _MAX_PARTS) or '?'}]" for ranks in groups], _MAX_GROUPS)
    kind = first.id.partition(" color ")[0]
    return f"{kind} of {first.parent}: {len(comms)} x {size}; ranks {members}"


# Findings, nested


def list_own_steps(finding: Finding, lead: Finding) -> list[str]:
    """Return steps of a nested finding that its parent does not have; none for an effect."""
    return [step for step in finding.fix if step not in lead.fix] if finding.root else []


def meaning(notice: Notice) -> str:
    """Return what a message means; empty if unknown."""
    return engine.find_details(notice.event.dialect, notice.event.production).says if notice.event else ""


def explain_notice(notice: Notice) -> str:
    """Return a message with what it means, if known."""
    means = meaning(notice)
    return f"{notice.message} ({means})" if means else notice.message


class Outlined(NamedTuple):
    """A finding that reports show with those that it explains, or that explain it."""

    finding: Finding
    nested: list[Finding]  # its causes and its effects
    untold: list[Finding]  # they without effects that the story of the job tells, unless verbose
    accepted: list[str]  # the accepted findings that explain it, in words
    is_brief: bool  # whether it takes one line


def outline_findings(job: Job, verbose: bool) -> list[Outlined]:
    """Return the findings in the order in which reports show them, nested.

    In a failed job, those that do not explain the failure take one line; otherwise infos do, unless there is no
    verdict.
    """
    leaders, has_failed = _nest_findings(job.findings), job.verdict == "failed"
    is_explained = has_failed and any(finding.fatal for finding in job.findings)
    told = {entry.rule for entry in job.story[1:]} if has_story(job) and not verbose else set()
    reported = {finding.rule for finding in job.findings}
    outlined = []
    for finding in job.findings:
        if finding.rule in leaders:
            continue
        nested = [other for other in job.findings if leaders.get(other.rule) == finding.rule]
        untold = [other for other in nested if other.rule in finding.because or other.rule not in told]
        accepted = [
            f"{entry.finding.rule} (accepted: {entry.reason}): {entry.finding.summary}"
            for entry in job.suppressed
            if entry.finding.rule in finding.because and entry.finding.rule not in reported
        ]
        is_info = finding.severity == "info" and job.verdict != "unknown"
        is_brief = not verbose and (is_explained and not finding.fatal if has_failed else is_info)
        outlined.append(Outlined(finding, nested, untold, accepted, is_brief))
    return outlined


def find_nested(lead: Finding, job: Job) -> list[Finding]:
    """Return the findings nested under a finding: its causes and its effects."""
    leaders = _nest_findings(job.findings)
    return [finding for finding in job.findings if leaders.get(finding.rule) == lead.rule]


def _nest_findings(findings: list[Finding]) -> dict[str, str]:
    """Return which finding is nested under which: causes and echoes under what leads, but no failure under a clue."""
    under: dict[str, str] = {}
    rules = {finding.rule for finding in findings}
    fatal = {finding.rule for finding in findings if finding.fatal}
    for finding in findings:
        for cause in finding.because:
            lead, other = (cause, finding.rule)
            if finding.root and (finding.fatal or cause not in fatal):
                lead, other = other, lead
            lead = under.get(lead, lead)
            if cause in rules and lead not in under and other != lead:
                under.setdefault(other, lead)
    return under


# What happened, in order

_VERBS = ("was ", "raised ", "ended ", "waited ", "lost ", "fell ", "gave ", "died")
"""How a sentence continues after its subject."""
_MAX_STORY_HOSTS = 2
_MOST_ROWS = 64  # rows of a table by rank; of more ranks each host has one, and of more hosts the first are shown


class StoryLine(NamedTuple):
    """A line of the story is one thing that happened."""

    where: str  # file and line
    text: str
    is_lead: bool


def story_lines(job: Job) -> list[StoryLine]:
    """Return the story of a job, first where it began."""
    names, lines = short_names(job), []
    for entry in job.story:
        where = f"{names.get(entry.line.source, entry.line.source)}:{entry.line.line}" if entry.line.source else ""
        who = ranks_word(entry.ranks) if entry.ranks else some_names(entry.hosts, _MAX_STORY_HOSTS)
        what = re.sub("^was ", "were ", entry.what) if len(entry.ranks or entry.hosts) > 1 else entry.what
        goes_on = entry.what.startswith(_VERBS)
        times = f" ({count(entry.count, 'time')})" if entry.count > 1 else ""
        if not who or entry.what.startswith(("rank ", "ranks ", "RAS ")):
            text = f"a process {entry.what}" if goes_on else entry.what
            times = times and f" (and {count(entry.count - 1, 'more line')})"  # each may be about another process
        else:
            text = f"{who} {what}" if goes_on else f"{who}: {what}"
        lines.append(StoryLine(where, f"{text}{times}", entry.because is None))
    return lines


def story_rows(job: Job) -> list[tuple[str, str, list[bool]]]:
    """Return the ranks that the story names, of many the hosts, and which lines of the story are about them."""
    told = {rank for entry in job.story for rank in entry.ranks}
    hosts = job.hosts if job.rank_space == "global" else []
    placed = {rank: host.name for host in hosts for rank in host.ranks}
    placed |= {rank: host for entry in job.story for rank, host in entry.host_of.items()}
    if len(told) > _MOST_ROWS:
        by_host = group_values((placed[rank], rank) for rank in sorted(told) if rank in placed)
        rows = list(by_host.items())[:_MOST_ROWS]
    else:
        order = sorted(told, key=lambda rank: (rank not in placed, placed.get(rank, ""), rank))
        rows = [(placed.get(rank, ""), [rank]) for rank in order]
    return [
        (host, ranks_word(ranks), [not set(ranks).isdisjoint(entry.ranks) for entry in job.story])
        for host, ranks in rows
    ]


# The first lines of every report: the verdict, where, since when, and what to do now

_NO_LINE = ": no line in the log"
_MOST_PLACES = 2  # most ranks that are named with their processes; for more, the hosts are named
_MOST_HOSTS = 3
_MORE = "Pass the complete output of all ranks, from a run with NCCL_DEBUG=INFO (kubectl logs --tail=-1)."


def _list_remarks(job: Job) -> list[Finding]:
    """Return the infos where the log shows neither a start, a path nor work: a few lines that somebody asks about."""
    is_bare = any(f.rule in (_INCOMPLETE, _SPARSE) for f in job.findings) or not any(s.nccl_lines for s in job.sources)
    works = any(not _WORK.isdisjoint(notice.roles) for notice in job.notices)
    if job.communicators or job.paths or job.unexplained or works or not is_bare:
        return []
    return [f for f in job.findings if f.root and f.category != "log quality" and not _is_end(f)]


_WORK = {"works", "succeeded"}
_THINGS = ("rank", "setting", "version")
_BESIDE = ("setting", "version")


def make_head(job: Job, is_now: bool = False) -> Head:
    """Return the head of a judged job; documents, which must not depend on the time of the report, state no age."""
    if job.verdict == "ok":
        return Head(verdict_line(job))
    lead, notice = find_lead(job), find_unexplained(job)
    is_whole = job.paths and len(job.ranks_seen) == job.world_size
    is_unclear = not is_whole or (job.verdict == "failed" and lead is None)
    if lead and lead.fix:
        step = lead.fix[0]
    elif notice and job.verdict == "failed":
        line = notice.evidence[0]
        step = f"Read the log around {short_names(job).get(line.source, line.source)}:{line.line}."
    else:
        step = remedies.capture_command(job) or (_MORE if is_unclear else "")
    # The job may be stuck where its log ends.
    is_open = job.verdict == "unknown" and not (lead or step or job.unexplained)
    clue = next(filter(_is_end, job.findings), None) if is_open else None
    located = next(_list_located(lead, job), lead) if lead else clue
    index = Places(job)
    ranks, wait = None, job.waiting
    if clue and located is clue and wait and 0 < len(wait.missing) < len(wait.waiting):
        # The few that have not begun, for whom the others wait; none where their numbers are those of a group.
        ranks = wait.missing if wait.nranks == job.world_size else []
    if ranks is None:
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
    if places and len(places) <= _MOST_PLACES:
        words = "; ".join(filter(None, (_describe_place(place, _is_missed(place, job)) for place in places)))
    else:
        known = [] if shares_ranks(job) else places
        ranks = [place.rank for place in known if place.rank is not None]
        hosts: list[str] = []  # those of some ranks look like those of all
        if all(place.host for place in known):
            hosts = list(dict.fromkeys(place.host or "" for place in known)) or (lead.hosts if lead else [])
        on = f"{count(len(hosts), 'host')} ({some_names(hosts, _MOST_HOSTS)})" if len(hosts) > 1 else "".join(hosts)
        is_all = len(ranks) == len(job.ranks_seen) > 1
        who = f"all {len(ranks):,} ranks" if is_all else ranks_word(ranks) if ranks else ""
        words = " on ".join(filter(None, (who, on)))
    if lead and _are_only_named(lead, job):
        by = "; ".join(_describe_place(place, is_missed=False) for place in reporters)
        by = by or some_names(lead.hosts, _MOST_HOSTS)
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
        return "; ".join(filter(None, (words, none, f"only there: {some_names(beside, 2)}" if beside else "")))
    first = find_lead(job)
    line = next((finding.where for finding in _list_located(first, job)), "") if first else ""
    is_new = words not in line and len(places) <= _MOST_PLACES
    return "; ".join(filter(None, (line, words if is_new or not line else "")))


def _is_missed(place: Place, job: Job) -> bool:
    """Return whether a rank of a failed job has no NCCL line at all: its program may still have printed something."""
    speakers = _speakers(job)
    mute = {last.likely_rank for last in job.last_lines}  # its lines do not name it
    return job.verdict == "failed" and bool(speakers or job.ranks_seen) and place.rank not in speakers | mute


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


def label_lines(head: Head) -> list[tuple[str, str]]:
    """Return the lines under the headline, with their labels."""
    return [(name, text) for name in ("where", "since", "do") if (text := getattr(head, name))]
