"""The summary for people: verdict first, then the job, its paths, what was found and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from nccl_inspect.model.job import CommunicatorInfo, Evidence, Finding, FirstFailure, Job
from nccl_inspect.report import Style
from nccl_inspect.report.tables import KIND_HEAD, by_kind
from nccl_inspect.report.words import block, cut, paint, shortened, verdict_color
from nccl_inspect.rules import capture
from nccl_inspect.rules.facts import count, ranges
from nccl_inspect.text import printable

_MAX_COMMUNICATORS = 8
_MAX_ERRORS = 5
_MAX_PROBLEMS = 5
_MAX_RUNS = 12
_MEANING = {
    "ok": "every path that the log shows is as good as expected",
    "degraded": "the job runs, and part of it is slower than it should be",
    "failed": "the job is dead or stuck",
    "unknown": "the log does not show enough to judge a path",
}


def render(job: Job, style: Style) -> str:
    """The summary; it fits any width from 40 columns."""
    parts = [
        _verdict(job, style),
        _job(job, style),
        _paths(job, style),
        _findings(job, style),
        _suppressed(job, style),
        _errors(job, style),
        _open(job, style),
        _unknown(job, style),
    ]
    return "\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def brief(finding: Finding, job: Job, style: Style) -> list[str]:
    """A finding in few lines: what, the first fix and the first line of evidence."""
    return list(_finding(finding, style, _short_names(job), in_brief=True))


def _verdict(job: Job, style: Style) -> Iterator[str]:
    if job.partial:
        lines = sum(source.lines for source in job.sources)
        yield f"partial: interrupted after {lines:,} {'line' if lines == 1 else 'lines'}"
    yield from headline(job, style)
    yield ""


def headline(job: Job, style: Style) -> Iterator[str]:
    """The verdict with its main reason."""
    headline = _reason(job)
    word = paint(job.verdict.upper(), verdict_color(job.verdict), style)
    lines = block("", printable(f"{job.verdict.upper()}: {headline}"), style, indent=0, hang=0)
    yield lines[0].replace(job.verdict.upper(), word, 1)
    yield from lines[1:]


def _reason(job: Job) -> str:
    """What the verdict rests on, in one sentence."""
    leads = [finding for finding in job.findings if finding.root and finding.severity != "info"]
    if job.verdict == "failed" and not any(finding.fatal for finding in leads) and job.unexplained:
        return f"{_MEANING['failed']}; the log says: {job.unexplained[0].message}"
    if leads:
        doubt = f"{_MEANING['unknown']}; perhaps: " if job.verdict == "unknown" else ""
        return doubt + leads[0].summary
    if job.verdict == "unknown" and job.unexplained:
        return f"an error that no rule explains: {job.unexplained[0].message}"
    unjudged = sum(path.verdict == "unknown" for path in job.paths)
    if job.verdict == "unknown" and unjudged:
        return f"{unjudged} of {count(len(job.paths), 'path')} could not be judged"
    return _MEANING[job.verdict]


def _job(job: Job, style: Style) -> Iterator[str]:
    for label, text in _facts(job):
        yield from block(label, printable(text), style, indent=0, hang=13)
    yield ""


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    yield "log", _sources(job)
    problems = [source.problem for source in job.sources if source.problem]
    for problem in problems[:_MAX_PROBLEMS]:
        yield "not read", problem
    if len(problems) > _MAX_PROBLEMS:
        yield "", f"… and {len(problems) - _MAX_PROBLEMS} more"
    yield "job", _size(job)
    for run in job.earlier_runs[-_MAX_PROBLEMS:]:
        yield "earlier run", f"{run}: not judged"
    versions = ", ".join(job.nccl_versions) or "version not in the log"
    cuda = f", CUDA driver {', '.join(job.cuda_versions)}" if job.cuda_versions else ""
    yield "NCCL", versions + cuda
    if job.platform:
        yield "platform", job.platform
    if job.network.name:
        yield "network", _network(job)
    overrides = [setting for setting in job.environment if setting.source != "config"]
    if overrides:
        words = [f"{s.name}={s.value}" + ("" if s.source == "environment" else f" ({s.source})") for s in overrides]
        yield "environment", shortened(words, 12)
    if job.first_failure:
        yield "first failed", _first_failure(job.first_failure, _short_names(job))
    groups = _alike(job.communicators)
    for comms in groups[:_MAX_COMMUNICATORS]:
        yield "communicator", _communicators(comms)
    if len(groups) > _MAX_COMMUNICATORS:
        yield "", f"… and {sum(map(len, groups[_MAX_COMMUNICATORS:]))} more"


def _first_failure(failure: FirstFailure, names: dict[str, str]) -> str:
    ranks = f"rank{'s' * (len(failure.ranks) > 1)} {_some(failure.ranks)}" if failure.ranks else "rank not in the log"
    where = shortened([f"{host} pid {pid}" for host, pid in failure.processes], 2) or "as its own output says"
    device = "" if failure.device is None else f", GPU {failure.device}"
    when = f" at {failure.time}" if failure.time else ""
    why = "the earliest of all errors" if failure.basis == "time" else "the only process with an error that is no echo"
    if len(failure.processes) > 1:
        why += f", {len(failure.processes)} at once"
    return f"{ranks} ({where}{device}){when}, {names[failure.evidence.source]}:{failure.evidence.line}: {why}"


def _alike(communicators: list[CommunicatorInfo]) -> list[list[CommunicatorInfo]]:
    """Communicators that one split made and that look the same are told together."""
    groups: dict[tuple[object, ...], list[CommunicatorInfo]] = {}
    for comm in communicators:
        kind = comm.id.partition(" color ")[0] if comm.parent else comm.id
        key = (kind, comm.parent, comm.nranks, comm.nnodes, comm.channels, comm.state)
        groups.setdefault(key, []).append(comm)
    return list(groups.values())


def _short_names(job: Job) -> dict[str, str]:
    """Sources without their folders, where that leaves them different."""
    short = {source.name: source.name.rpartition("/")[2] or source.name for source in job.sources}
    return short if len(set(short.values())) == len(short) else {name: name for name in short}


def _sources(job: Job) -> str:
    lines = sum(source.lines for source in job.sources)
    nccl = sum(source.nccl_lines for source in job.sources)
    names = shortened([source.name for source in job.sources], 3)
    text = f"{names}: {lines:,} {'line' if lines == 1 else 'lines'}, {nccl:,} of NCCL"
    unknown = sum(source.unrecognised_lines for source in job.sources)
    damaged = sum(source.damaged_lines for source in job.sources)
    if unknown:
        text += f", {unknown:,} not recognised (-v lists them)"
    repaired = sum(source.repaired_lines for source in job.sources)
    if repaired:
        text += f", {repaired:,} repaired"
    if damaged:
        text += f", {damaged:,} damaged (torn or run together; -v lists them)"
    return text


def _size(job: Job) -> str:
    hosts = f"{count(len(job.hosts), 'host')} ({shortened([host.name for host in job.hosts], 3)})"
    if not job.hosts:
        return "not in the log: run it with NCCL_DEBUG=INFO"
    if job.world_size is None:
        return f"world size not in the log; ranks {ranges(job.ranks_seen) or '?'} (of their communicators) on {hosts}"
    if len(job.ranks_seen) < job.world_size:
        seen = f"{count(job.world_size, 'rank')}, of which {_some(job.ranks_seen) or 'none'} seen"
        return f"{seen}; {_missing(job)}; {hosts}"
    return f"{count(job.world_size, 'rank')} on {hosts}"


def _missing(job: Job) -> str:
    """Ranks of the world that printed nothing, and where they were looked for."""
    missing = sorted(set(range(job.world_size or 0)) - set(job.ranks_seen))
    ranks = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {_some(missing)} have"
    where = "this log" if len(job.sources) == 1 else f"these {len(job.sources)} files"
    return f"{ranks} no line in {where}"


def _some(ranks: Sequence[int]) -> str:
    """Ranks in words, shortened when they are many and scattered."""
    return shortened(ranges(ranks).split(","), _MAX_RUNS).replace(", ", ",")


def _network(job: Job) -> str:
    network = job.network
    parts = [network.name or "?"]
    if network.plugin:
        parts.append(f"plugin {network.plugin} {network.plugin_version or ''}".strip())
    if network.provider:
        parts.append(f"provider {network.provider}")
    if network.devices:
        parts.append(f"devices {shortened(network.devices, 4)}")
    return ", ".join(parts)


def _communicators(comms: list[CommunicatorInfo]) -> str:
    first = comms[0]
    nodes = f" on {count(first.nnodes, 'node')}" if first.nnodes else ""
    channels = f", {count(first.channels, 'channel')}" if first.channels else ""
    size = f"{count(first.nranks, 'rank')}{nodes}{channels}, {first.state}"
    if len(comms) == 1:
        known = ranges(rank for rank in first.ranks if rank is not None)
        return f"{first.id}: {size}" + ("" if first.id == "world" else f"; ranks {known or '?'}")
    groups = sorted([rank for rank in comm.ranks if rank is not None] for comm in comms)
    members = shortened([f"[{ranges(ranks) or '?'}]" for ranks in groups], 4)
    kind = first.id.partition(" color ")[0]
    return f"{kind} of {first.parent}: {len(comms)} x {size}; ranks {members}"


def _paths(job: Job, style: Style) -> Iterator[str]:
    if not len(job.paths):
        return
    rows = by_kind(job.paths)
    table = tabulate(rows, KIND_HEAD, tablefmt="simple", disable_numparse=True)
    if max(map(len, table.split("\n"))) <= style.width:
        yield table
    else:
        for scope, detail, pairs, gdr, channels, verdict in rows:
            text = f"{scope} {detail}: pairs {pairs}, GDR {gdr}, channels {channels}, {verdict}"
            yield from block("path", text, style, indent=0)
    if job.unplaced_lines:
        lines = count(job.unplaced_lines, "connection line")
        text = f"{lines} could not be placed: no communicator in the log has them, or they name one end only (CollNet)"
        yield from block("", text, style, indent=0, hang=0)
    yield ""


def _findings(job: Job, style: Style) -> Iterator[str]:
    folded = _folded(job.findings)
    names = _short_names(job)
    for finding in job.findings:
        if finding.rule in folded:
            continue
        yield from _finding(finding, style, names)
        for other in job.findings:
            if folded.get(other.rule) == finding.rule:
                yield from _folded_finding(other, style, names, finding.evidence)
        yield ""


def _suppressed(job: Job, style: Style) -> Iterator[str]:
    """What the user knows and accepts, each in one line with the reason."""
    for entry in job.suppressed:
        finding = entry.finding
        text = f"{finding.rule} ({finding.severity}): {finding.summary}; accepted: {entry.reason}"
        yield from block("suppressed", printable(text), style, indent=0, hang=12)
    if job.suppressed:
        yield ""


def _folded(findings: list[Finding]) -> dict[str, str]:
    """Which finding is told under which: causes and echoes under what leads."""
    under: dict[str, str] = {}
    for finding in findings:
        for cause in finding.because:
            lead, other = (finding.rule, cause) if finding.root else (cause, finding.rule)
            if lead not in under and other != lead:
                under.setdefault(other, lead)
    return under


def _finding(finding: Finding, style: Style, names: dict[str, str], in_brief: bool = False) -> Iterator[str]:
    severity = finding.severity.upper()
    where = f", ranks {ranges(finding.ranks)}" if finding.ranks else ""
    for line in block("", f"{severity} {finding.rule} ({finding.confidence}{where})", style, indent=0, hang=0):
        marked = line.replace(severity, paint(severity, finding.severity, style), 1)
        yield marked.replace(finding.rule, paint(finding.rule, "bold", style), 1)
    yield from block("what", printable(finding.summary), style)
    if not in_brief:
        yield from block("cause", printable(finding.cause), style)
        yield from block("impact", printable(finding.impact), style)
    for index, fix in enumerate(finding.fix[: 1 if in_brief else None]):
        yield from block("fix" if index == 0 else "", printable(fix), style)
    yield from _evidence(finding.evidence[: 1 if in_brief else None], style, names)


def _folded_finding(finding: Finding, style: Style, names: dict[str, str], told: list[Evidence]) -> Iterator[str]:
    kind = "because" if finding.root else "effect"
    yield from block(kind, printable(f"{finding.rule} ({finding.confidence}): {finding.summary}"), style)
    for fix in finding.fix[:2]:
        yield from block("", f"fix: {printable(fix)}", style)
    fresh = [line for line in finding.evidence if line not in told]
    yield from _evidence(fresh, style, names, limit=2)


def _evidence(evidence: list[Evidence], style: Style, names: dict[str, str], limit: int = 3) -> Iterator[str]:
    for index, line in enumerate(evidence[: None if style.verbose else limit]):
        label = "" if index else "evidence"
        text = f"{names[line.source]}:{line.line}: {printable(line.text)}"
        for part in block(label, text, style):
            yield paint(part, "dim", style)


def _errors(job: Job, style: Style) -> Iterator[str]:
    """Errors that no finding explains, so that none is passed over in silence."""
    errors = job.unexplained
    if not errors:
        return
    names = _short_names(job)
    for text in block("", f"errors in the log that no rule explains ({len(errors)})", style, indent=0, hang=0):
        yield paint(text, "bold", style)
    for notice in errors[:_MAX_ERRORS]:
        line = notice.evidence[0]
        text = f"  {names[line.source]}:{line.line}: {printable(notice.message)} ({notice.count} x)"
        yield text if style.verbose else cut(text, max(style.width, 40))
    if len(errors) > _MAX_ERRORS:
        yield f"  … and {len(errors) - _MAX_ERRORS} more"
    yield ""


def _open(job: Job, style: Style) -> Iterator[str]:
    if not job.not_judged:
        return
    yield paint("not judged", "bold", style)
    for entry in job.not_judged:
        yield from block(entry.rule, f"{printable(entry.reason)}", style, hang=len(entry.rule) + 2)
        yield from block("needs", entry.needs, style, indent=4, hang=7)
    yield from block("to capture it", capture.command(job) or "", style, indent=2, hang=15)


def _unknown(job: Job, style: Style) -> Iterator[str]:
    """With -v: lines that the grammar does not know, fit to be pasted into a report, and damaged ones."""
    if not style.verbose:
        return
    if job.unrecognised:
        yield paint("NCCL lines that the grammar does not know (please report them)", "bold", style)
        for entry in job.unrecognised:
            yield f"  {entry.count} x  {printable(entry.example.text)}"
    if job.damaged:
        yield paint("damaged lines that could not be repaired: no rule uses them", "bold", style)
        for line in job.damaged:
            yield f"  {line.source}:{line.line}: {printable(line.text)}"
        left = sum(source.damaged_lines for source in job.sources) - len(job.damaged)
        if left > 0:
            yield f"  … and {left:,} more"
